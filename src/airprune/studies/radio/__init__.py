"""Shows which findings survive a real radio: the paper's scene played again on one rung of radio after the other.

rungs        the radios, from the paper's to a city's, and the methods with their tuned settings
pressure     the deadline of a rung: as much pruning as on the paper's
timetable    times of a run without its training, and which runs learn the same
study        the runs of the study, trained once each
findings     the claims that are judged on every rung from runs
plan_claims  the paper's claims about plans, which need no runs
promises     plans that count on the mean or on a quantile of an uncertain channel
page         table, figure and Markdown
"""
