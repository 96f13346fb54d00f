"""Many whole runs of one scenario: every combination of the values given, over seeds, on several workers.

values     `key=a,b` and `seed=0-9` as lists of values
runs       the combinations: checked scenarios, and a folder for each run
folder     the sweep's folder: its note, who writes it, results as a table
whole_run  whole runs as tasks of any engine
files      a run's files on their way between machines
"""

from __future__ import annotations

from airprune.studies.campaign.folder import Outcome, Row, SweepFolder, crossover_in
from airprune.studies.campaign.runs import MAX_RUNS, Sweep, SweptRun

__all__ = ["MAX_RUNS", "Outcome", "Row", "Sweep", "SweepFolder", "SweptRun", "crossover_in"]
