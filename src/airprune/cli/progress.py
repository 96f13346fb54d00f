"""Progress on stderr: a live line on a terminal, plain lines elsewhere; and an estimate before long work begins."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from airprune.cli.console import say
from airprune.text import counted

if TYPE_CHECKING:
    from airprune.scenario import Scenario

# Work that ends sooner is not announced; with fewer samples it is not even timed.
_LONG_S = 20.0
_FEW_SAMPLES = 30_000
# Where there is no terminal a line comes at least this often.
_LINE_EVERY_S = 10.0


def announce_duration(scenarios: Sequence[Scenario], *, at_a_time: int = 1, elsewhere: bool = False) -> None:
    """Prints one line on how long these runs will take together, if that is long and can be known.

    Args:
      at_a_time: runs that go on side by side.
      elsewhere: on machines whose cores are not known here, so that CPU time is printed.
    """
    from airprune.runs.durations import about, expected_workload, workload_of
    from airprune.runs.timing import seconds_per_sample

    if sum(workload_of(scenario).samples for scenario in scenarios) < _FEW_SAMPLES:
        return
    models = {_model_kind(scenario): scenario for scenario in scenarios}
    rates = {kind: seconds_per_sample(scenario) for kind, scenario in models.items()}
    kinds = {_run_kind(scenario): scenario for scenario in scenarios}
    workloads = {kind: expected_workload(scenario) for kind, scenario in kinds.items()}
    total_s, cores = 0.0, at_a_time
    for scenario in scenarios:
        rate, workload = rates[_model_kind(scenario)], workloads[_run_kind(scenario)]
        if rate is None:
            return  # better nothing than a guess
        elsewhere |= scenario.engine.scheduler is not None
        workers = _workers(scenario)
        total_s += workload.cpu_seconds(rate) if elsewhere else workload.seconds(rate, workers=workers) / at_a_time
        cores = max(cores, workers)
    if total_s < _LONG_S:
        return
    where = "of CPU time" if elsewhere else f"on {counted(cores, 'core')}"
    runs = "" if len(scenarios) == 1 else f" for {counted(len(scenarios), 'run')}"
    say(f"This will take {about(total_s)} {where}{runs}.")


def _model_kind(scenario: Scenario) -> str:
    """Returns a text that scenarios share whose samples take the same time."""
    return repr((scenario.model, scenario.data.source, scenario.train))


def _run_kind(scenario: Scenario) -> str:
    """Returns a text that scenarios share which do the same work: they differ in the seed alone."""
    return repr(scenario.with_("seed", 0))


def _workers(scenario: Scenario) -> int:
    """Number of cores that a run's devices share."""
    from airprune.engines.machine import num_cores

    if scenario.engine.name == "serial":
        return 1
    return min(scenario.engine.workers or num_cores(), num_cores())


class Pulse:
    """Gathers the figures worth watching from the records.

    Args:
      times: the kind of the records' times: simulated or planned.
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


def show_progress(
    records: Iterable[dict[str, Any]], scenario: Scenario, *, label: str, done: int = 0, times: str = "simulated"
) -> Iterator[dict[str, Any]]:
    """Yields the records and shows them meanwhile; `done` of them were there before."""
    pulse = Pulse(times)
    if sys.stderr.isatty():
        return _live(records, scenario, label, done, pulse)
    return _by_lines(records, scenario, label, pulse)


def _by_lines(
    records: Iterable[dict[str, Any]], scenario: Scenario, label: str, pulse: Pulse
) -> Iterator[dict[str, Any]]:
    """Prints a line at every global round, and between them where a round takes long."""
    printed_at = time.monotonic()
    for record in records:
        pulse.take(record)
        if record["kind"] == "global" or time.monotonic() - printed_at > _LINE_EVERY_S:
            say(f"{label}: {pulse.words(scenario.rounds.global_rounds)}")
            printed_at = time.monotonic()
        yield record


def _live(
    records: Iterable[dict[str, Any]], scenario: Scenario, label: str, done: int, pulse: Pulse
) -> Iterator[dict[str, Any]]:
    total = scenario.rounds.global_rounds * (max(scenario.edge_rounds_of) + 1)  # edge rounds and global rounds
    with live_line(TextColumn("{task.fields[label]}"), BarColumn(bar_width=20), TaskProgressColumn()) as progress:
        task = progress.add_task("", total=total, completed=done, label=escape(label), words="starting …")
        for record in records:
            pulse.take(record)
            progress.update(task, advance=1, words=pulse.words(scenario.rounds.global_rounds))
            yield record


def live_line(*columns: Any) -> Progress:
    """Returns a line on the terminal: these columns, the time left, and the task's `words`."""
    words = TextColumn("{task.fields[words]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    left = (TimeRemainingColumn(), TextColumn("left"))
    return Progress(*columns, *left, words, console=Console(stderr=True), expand=True)  # a narrow one cuts the words


@contextlib.contextmanager
def repeated_line(line: Callable[[], str], *, every_s: float = 3 * _LINE_EVERY_S) -> Iterator[None]:
    """Prints a line every so often while work goes on that prints none of its own."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            say(line())

    threading.Thread(target=repeat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
