"""The paper's evaluation: one file per table or figure, each with its runs, its figure and its claims.

table1, table2   parameters; per-round latency of three schemes, hierarchical and not
fig2 … fig6      ratios, deadlines, schemes, non-IID data, CPU clocks
fair             Fig. 4 with fair shares and larger learning rates
bound            Theorem 1 over a run
errata           errors of the paper, shown by small computations
claim            claims and the tables they are judged from
profiles         quick, default, full
training         figures made of runs, and their tables
to_target        time, bits and joules to an accuracy
reproduction     a folder with all of it
report           its HTML report
"""
