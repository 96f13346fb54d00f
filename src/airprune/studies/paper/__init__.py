"""The paper's evaluation: one file per table or figure, each with its runs, its picture and its claims.

table1, table2   parameters; per-round latency of three schemes, hierarchical and not
fig2 … fig6      ratios, deadlines, schemes, non-IID data, CPU clocks
bound            Theorem 1 over a run
errata           where the paper is wrong, observed by small computations
claims           all claims together; claim: what one is judged from
profiles         quick, default, full
training         figures made of runs; tidy: their tables
reproduction     a folder with all of it
"""
