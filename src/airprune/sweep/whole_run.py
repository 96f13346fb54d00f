"""One run from where it stands to its end, with the serial engine, wherever that happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from airprune.engines.work import MAX_TRIES
from airprune.errors import trouble_of
from airprune.runs import run as run_scenario
from airprune.scenario import Scenario
from airprune.sweep.runs import SweptRun


@dataclass(frozen=True)
class Outcome:
    """A run that has come to its end, or the one line that says why it has not."""

    run: SweptRun
    trouble: str | None


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """What a worker is told."""

    folder: Path
    scenario: Scenario

    @classmethod
    def of(cls, run: SweptRun, out: Path) -> WholeRun:
        return cls(folder=out / run.folder_name, scenario=run.scenario)


def finish(task: WholeRun, *, stopped: Callable[[], bool] = lambda: False) -> str | None:
    """Does what is left of a run; what went wrong, in one line. Asked to stop, it leaves the folder resumable."""
    try:
        with contextlib.closing(run_scenario(task.scenario, out=task.folder, resume=True)) as records:
            for _ in records:
                if stopped():
                    return "It was stopped."
    except Exception as error:
        return in_one_line(trouble_of(error))
    return None


def in_one_line(trouble: str) -> str:
    """The first line and, if there are more, what a traceback ends with."""
    first, *others = trouble.strip().splitlines() or [""]
    return f"{first} {others[-1].strip()}" if others else first


def given_up(how: str) -> str:
    return (
        f"Its worker died {MAX_TRIES} times, last by {how}; often this is too little memory, then fewer workers help."
    )


class WholeRuns:
    """A worker process that does whole runs."""

    def __init__(self, _: None) -> None:
        pass

    def finish(self, task: WholeRun) -> str | None:
        return finish(task)
