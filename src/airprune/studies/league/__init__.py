"""The league, a benchmark of all methods under the same rules: one network, clock and set of seeds, the same tuning.

tracks       the tables of the league: air interface, deadline, data, failures
schedule     the amount of work: rounds, samples, seeds
lineup       the methods of a track, and the reference lines
league_run   one run: what it is for, every link charged
tuning       the same race of tuning runs for every method and arm, evaluated on held-out samples
runs         the folder of all runs, and what is recorded of others
finished     the measurements of a finished run
ledger       the measurements of all runs in one file that explains itself
effort       CPU time of runs, to estimate what is left
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
folder       a league: the order of its work, and the files in its folder
verifying    a ledger checked: lines, tables and verdicts recomputed, runs made again
"""
