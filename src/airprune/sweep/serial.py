"""Whole runs one after the other in this process."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

from airprune.sweep.runs import SweptRun
from airprune.sweep.whole_run import Outcome, WholeRun, finish


def outcomes(runs: Sequence[SweptRun], out: Path) -> Generator[Outcome]:
    for run in runs:
        yield Outcome(run, finish(WholeRun.of(run, out)))
