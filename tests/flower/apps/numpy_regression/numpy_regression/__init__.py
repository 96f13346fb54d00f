"""Least squares by gradient steps, in numpy alone."""
