"""The league: every method on one network, clock and set of seeds, tuned alike, with intervals and honest names.

divisions    what is played for: air interface, deadline, data, troubles
schedule     how much is run
lineup       who takes part, and the reference lines
tuning       the same few trials for everybody, judged on held-out training images
playing      the runs, by the machinery of sweeps
measured     what is read of a finished run
ledger       the same of all runs in one small file
statistics   intervals, tests, ranks, the Pareto front: pure functions
standings    a division's table
tables       the same as CSV, LaTeX and text
figure       what its figure shows: accuracy against seconds, bits and joules
judges       how the arms of a claim are judged
claims       what a claim of the league rests on, and how it comes to a verdict
sources      what the methods' sources claim
page         one self-contained HTML page
document     all of it as plain data
folder       what lies where in a league's folder
"""
