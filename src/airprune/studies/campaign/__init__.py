"""Many whole runs, each once, on several workers; and sweeps, every combination of the values given, over seeds.

driver     a list of runs: what is finished is skipped, the rest is done on any engine, or one by one
values     `key=a,b` and `seed=0-9` as lists of values
runs       the combinations: checked scenarios, and a folder for each run
folder     the sweep's folder: its note, its lock, results as a table
whole_run  whole runs as tasks of any engine
files      a run's files that are sent between machines
"""

from __future__ import annotations

from airprune.studies.campaign.driver import WITHIN, Campaign, CampaignRun, Outcome, at_a_time
from airprune.studies.campaign.folder import Row, SweepFolder, crossover_in
from airprune.studies.campaign.runs import MAX_RUNS, Sweep, SweptRun
from airprune.studies.campaign.whole_run import cpu_seconds

__all__ = [
    "MAX_RUNS",
    "WITHIN",
    "Campaign",
    "CampaignRun",
    "Outcome",
    "Row",
    "Sweep",
    "SweepFolder",
    "SweptRun",
    "at_a_time",
    "cpu_seconds",
    "crossover_in",
]
