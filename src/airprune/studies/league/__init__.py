"""The league, a benchmark of all methods under the same rules: one network, clock and set of seeds, the same tuning.

tracks       the tables of the league: air interface, deadline, data, failures
schedule     the amount of work: rounds, samples, seeds
lineup       the methods of a track, and the reference lines
tuning       the same few tuning runs for every method, evaluated on held-out training images
runs         all runs, as one campaign
finished     the measurements of a finished run
ledger       the measurements of all runs in one small file
statistics   intervals, tests and ranks: pure functions
standings    the table of a track
tables       the same as CSV, LaTeX and text
figure       accuracy against seconds, bits and joules
judges       rules that compare the arms of a claim
claims       claims that are judged by runs
ablations    which part of a method does the work
sources      the claims of the methods' sources
page         one self-contained HTML report
document     all of it as plain data
folder       the files in a league's folder
"""
