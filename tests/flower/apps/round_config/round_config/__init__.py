"""A config that changes from round to round: the learning rate, and half of the clients in each."""
