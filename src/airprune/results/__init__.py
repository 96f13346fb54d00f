"""Results of runs: measures, time to a target, tables, figures, reports.

measures        every measure once, with its unit and its words
time_to_target  time, bits, joules and rounds until an accuracy; every test of a run's model
traffic         what went over which links
statistics      means over seeds and their intervals
crossover       where a method stops paying
frames, rows    records as pandas frames, as rows of plain numbers
tidy, latex     tables as CSV, as LaTeX
figures/        drawing, in one style
report/         one self-contained HTML page
"""
