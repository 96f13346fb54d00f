"""A small torch app in the form of Flower's quickstart, with the data and the model of a run of airprune's fedavg."""
