"""Many whole runs of one scenario: every combination of the values given, over seeds, on several workers.

values     `key=a,b` and `seed=0-9` as lists of values
runs       the combinations: checked scenarios, and a folder for each run
folder     the sweep's folder: its note, who writes it, results as a table
whole_run  one run from where it stands to its end, wherever that happens
serial     in this process
processes  in worker processes on this machine
cluster    on the workers of a Dask cluster (remote is their side)
"""

from __future__ import annotations

from airprune.sweep.folder import Row, SweepFolder
from airprune.sweep.runs import MAX_RUNS, Sweep, SweptRun
from airprune.sweep.whole_run import Outcome

__all__ = ["MAX_RUNS", "Outcome", "Row", "Sweep", "SweepFolder", "SweptRun"]
