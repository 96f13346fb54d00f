"""Every test of a run's model, read from its folder; of long records only what this takes."""

from __future__ import annotations

from airprune.results.time_to_target import FIELDS, Evaluation, evaluations
from airprune.rounds.records import record_in
from airprune.runs.layout import RunFolder


def evaluations_in(folder: RunFolder) -> list[Evaluation]:
    """In order; damaged lines are left out."""
    records = (record_in(line, only=FIELDS) for line in folder.record_lines() if line.strip())
    return evaluations(record for record in records if record is not None)
