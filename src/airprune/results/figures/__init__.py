"""Figures fit for a paper: units on every axis, one colour, marker and line style per scheme.

styles      colours, markers and line styles; needs no drawing library
curves      runs and comparisons; axes, lines, legends and files of all figures
crossover   time to a target, and its ratio to a reference
sweep       accuracy and costs against a swept value
pareto      accuracy against costs, and the front of those that no other beats
forecasts   accuracy against time as forecast
devices     the devices of one edge round
partition   the classes that every device holds
"""
