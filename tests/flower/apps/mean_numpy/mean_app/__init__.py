"""A model of 40 numbers that learns the mean of its clients' data, in numpy."""
