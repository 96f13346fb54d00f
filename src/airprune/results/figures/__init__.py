"""Figures fit for a paper: units on every axis, one colour, marker and line style per scheme.

styles      colours, markers and line styles; needs no drawing library
curves      runs and comparisons
crossover   time to a target, and its ratio to a reference
"""
