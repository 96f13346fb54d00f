"""Renames the runs of a league's ledger after the rule of `Scenario.hash` has changed: nothing is run again.

PYTHONPATH=OLD/src python tools/rekey_ledger.py list LEDGER SCENARIOS      with the tree that has the old rule
PYTHONPATH=src python tools/rekey_ledger.py rekey LEDGER SCENARIOS         with the one that has the new rule

LEDGER is that of `airprune league --claims`, docs/league-played.jsonl; SCENARIOS, which the first writes and the second
reads, has the scenario of every run of the ledger, which the ledger itself does not tell.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from airprune.scenario import Scenario
from airprune.studies.campaign import CampaignRun
from airprune.studies.league import claims
from airprune.studies.league.folder import League
from airprune.studies.league.ledger import read_ledger, write_ledger
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.sources import CLAIMS
from airprune.studies.league.tracks import tracks_named


def league_of(ledger: Path) -> League:
    """Returns the default league on track A, with the runs of this ledger."""
    schedule = SCHEDULES["default"]
    base = schedule.scenario()
    return League(
        base=base,
        note=schedule.note,
        tracks=tuple(tracks_named("A")),
        methods=None,
        seeds=schedule.seeds,
        is_tuned=schedule.is_tuned,
        out=ledger.parent / "nowhere",
        engine=base.engine,
        recorded=read_ledger(ledger),
    )


def runs_of(ledger: Path) -> list[CampaignRun]:
    """Returns every run of the league that has this ledger, its tuning runs and claims."""
    league = league_of(ledger)
    base, schedule = league.base, SCHEDULES["default"]
    judged = claims.runs_for(claims.applicable(CLAIMS, base), base, schedule.seeds)
    return [*league.tuning_runs(), *league.ranked_runs(), *judged, *league.untuned_runs()]


def list_scenarios(ledger: Path, scenarios: Path) -> None:
    """Writes the scenario of each run in the ledger, by the name it has there."""
    recorded = read_ledger(ledger)
    found = {run.folder_name: run.scenario.to_dict() for run in runs_of(ledger) if run.folder_name in recorded}
    scenarios.write_text(json.dumps(found))
    sys.stdout.write(f"{len(found):,} of {len(recorded):,} runs\n")


def rekey(ledger: Path, scenarios: Path) -> None:
    """Writes the ledger with the names that its runs have now; refuses if the scenario of one is not known."""
    values = json.loads(scenarios.read_text())
    recorded = read_ledger(ledger)
    if unknown := [line.label for name, line in recorded.items() if name not in values]:
        sys.exit(f"{scenarios} has no scenario of {len(unknown):,} runs, the first: {unknown[0]}.")
    names = {name: Scenario(**values[name]).hash[:16] for name in recorded}
    if len(set(names.values())) < len(names):
        sys.exit("Two runs would have one name.")
    write_ledger(ledger, [dataclasses.replace(line, run=names[name]) for name, line in recorded.items()])


if __name__ == "__main__":
    what, *paths = sys.argv[1:]
    {"list": list_scenarios, "rekey": rekey}[what](*map(Path, paths))
