"""A small torch network, evaluated by the server after every round."""
