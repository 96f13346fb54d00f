"""A strategy of the app's own: the median of each weight, which one wrong client cannot move."""
