"""The paper's evaluation, one file per table or figure.

table2   per-round latency of three schemes, hierarchical and not
"""
