"""How a run shows itself: a live line on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from airprune.cli.console import say
from airprune.scenario import Scenario


def num_records(scenario: Scenario) -> int:
    """Edge rounds plus global rounds of a whole run."""
    return scenario.rounds.global_rounds * (max(scenario.edge_rounds_of) + 1)


class Pulse:
    """The figures worth watching, gathered from the records.

    Args:
      times: what the records' times are: simulated or planned.
    """

    def __init__(self, times: str) -> None:
        self.times = times
        self.started = time.monotonic()
        self.samples = 0
        self.last: dict[str, Any] = {}

    def take(self, record: dict[str, Any]) -> None:
        self.last |= record
        if record["kind"] == "edge":
            self.samples += record["num_samples"]

    def words(self, global_rounds: int) -> str:
        seconds = max(time.monotonic() - self.started, 1e-9)
        parts = [f"round {self.last.get('global_round', 0)}/{global_rounds}"]
        if self.last.get("train_loss") is not None:
            parts.append(f"loss {self.last['train_loss']:.3f}")
        if self.last.get("test_accuracy") is not None:
            parts.append(f"accuracy {self.last['test_accuracy']:.1%}")
        if "time_s" in self.last:
            parts.append(f"{self.times} {self.last['time_s']:.2f} s")
        parts.append(f"{self.samples / seconds:,.0f} samples/s")
        return " · ".join(parts)


def watched(
    records: Iterable[dict[str, Any]], scenario: Scenario, *, label: str, done: int = 0, times: str = "simulated"
) -> Iterator[dict[str, Any]]:
    """The records, shown while they pass; `done` of them were there before."""
    pulse = Pulse(times)
    if sys.stderr.isatty():
        return _live(records, scenario, label, done, pulse)
    return _by_lines(records, scenario, label, pulse)


def _by_lines(
    records: Iterable[dict[str, Any]], scenario: Scenario, label: str, pulse: Pulse
) -> Iterator[dict[str, Any]]:
    for record in records:
        pulse.take(record)
        if record["kind"] == "global":
            say(f"{label}: {pulse.words(scenario.rounds.global_rounds)}")
        yield record


def _live(
    records: Iterable[dict[str, Any]], scenario: Scenario, label: str, done: int, pulse: Pulse
) -> Iterator[dict[str, Any]]:
    columns = (
        TextColumn("{task.fields[label]}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.fields[words]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    total = num_records(scenario)
    with Progress(*columns, console=Console(stderr=True), expand=True) as progress:  # a narrow one cuts the words
        task = progress.add_task("", total=total, completed=done, label=escape(label), words="starting …")
        for record in records:
            pulse.take(record)
            progress.update(task, advance=1, words=pulse.words(scenario.rounds.global_rounds))
            yield record
