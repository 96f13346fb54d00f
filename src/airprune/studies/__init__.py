"""Many runs with one question: comparisons, sweeps, the paper's evaluation, the league, advice, conformance.

calls         comparisons and sweeps from Python
comparison    several variants over several seeds
campaign/     many runs, each once, on any engine; sweeps over every combination of the values given
claims/       what a claim is, how numbers over seeds decide it, how its verdict is shown
paper/        the paper's tables, figures and claims
league/       all methods under the same rules
advice/       which method, which deadline, how long until an accuracy
conformance   the rules that every component keeps, tried by small runs
write_report  the report of any folder
"""
