"""Whole runs as tasks of any engine: each from where it stands to its end, with the serial engine inside.

A worker that sees the sweep's folder writes there, and a run goes on from its checkpoint wherever it is handed out
next. On a machine without that folder it works in one of its own, and the files travel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airprune import files
from airprune.engines.base import MAX_TRIES, Died, Task, WorkerFactory
from airprune.engines.machine import cancelled, machine_trouble
from airprune.errors import Diverged, WorkFailed, trouble_of
from airprune.models.kernels import native
from airprune.runs import run as run_scenario
from airprune.runs.layout import RunFolder
from airprune.runs.lines import read_json
from airprune.scenario import Scenario
from airprune.studies.campaign.files import Files, Marker, files_in, put_files
from airprune.tables import write_text_atomic
from airprune.tables.source import MAX_TABLE_BYTES

_LOOK_S = 0.5
# CPU time of a run; no part of the run, whose files do not depend on the machine.
_USAGE = "usage.json"
# How long another process may hold a folder: a run that has lost its driver leaves it after its current round.
_PATIENCE_S = 600.0

Read = Callable[[Iterator[dict[str, Any]]], Any]


def read_all(records: Iterable[dict[str, Any]]) -> None:
    """Lets a run come to its end; its folder has the results."""
    for _ in records:
        pass


@dataclass(frozen=True, kw_only=True)
class WholeRun(Task):
    """One run.

    Attributes:
      folder: None: it leaves nothing behind.
      toml: its scenario; as text, since a Dask scheduler would look for the options of a user's component.
      carries: True if its files and the network's table are sent along, since workers may not see them.
    """

    folder: Path | None
    toml: str
    carries: bool = False
    read: Read = read_all
    files: Files = dataclasses.field(default_factory=dict)
    table: bytes | None = None

    @property
    def scenario(self) -> Scenario:
        return Scenario.from_text(self.toml)

    def loaded(self) -> WholeRun:
        if not self.carries or self.folder is None:
            return self
        path = self.scenario.network.table
        with contextlib.suppress(OSError):
            table = None if path is None else files.read_bytes(Path(path), max_bytes=MAX_TABLE_BYTES)
            return dataclasses.replace(self, files=files_in(self.folder), table=table)
        return self  # what cannot be read here is the run's own failure


@dataclass(frozen=True)
class Done:
    """The end of a run: its error in one line, its files if they must travel, and the result of `read`."""

    trouble: str | None
    files: Files | None = None
    found: Any = None


@dataclass(frozen=True, kw_only=True)
class WholeRuns(WorkerFactory):
    """Workers that do whole runs.

    Attributes:
      marker: where workers of other machines may be: how they find out whether they see the sweep's folder.
      kernel: what `train.kernel=auto` means on the driver's machine, and must mean on all.
    """

    marker: Marker | None
    kernel: str
    setup_payload: bytes | None = None
    way_out: str = "give the same command: it goes on from what is done"

    def open(self, folder: Path | None) -> WholeRuns:
        if own_kernel() != self.kernel:
            raise WorkFailed(f"its kernel is {own_kernel()}, but this sweep's is {self.kernel}")
        return self

    def finish(self, shared: None, task: WholeRun) -> Done:
        if self.marker is None or task.folder is None:
            return finish(task)
        if self.marker.is_here():
            folder, deadline = RunFolder(task.folder), time.monotonic() + _PATIENCE_S
            while folder.is_running and not cancelled() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            return finish(task)
        return _away(task, task.folder.name)


def own_kernel() -> str:
    return "torch" if native.trouble else "native"


def _away(task: WholeRun, name: str) -> Done:
    """Runs a task in a folder of this machine's own."""
    with tempfile.TemporaryDirectory(prefix="airprune-run-") as place:
        folder, scenario = Path(place) / name, task.scenario
        put_files(task.files, folder)
        if task.table is not None:
            table = (Path(place) / "network-table").with_suffix(Path(str(scenario.network.table)).suffix)
            table.write_bytes(task.table)
            scenario = scenario.with_("network.table", str(table))
        done = finish(dataclasses.replace(task, folder=folder, toml=scenario.to_toml()), blame_machine=True)
        files = files_in(folder)
        if "scenario.toml" in files:  # with the driver's paths
            files["scenario.toml"] = task.toml.encode()
        return dataclasses.replace(done, files=files)


def finish(task: WholeRun, *, blame_machine: bool = False) -> Done:
    """Does what is left of a run. Cancelled, it leaves the folder resumable.

    Args:
      blame_machine: raises for a full or forbidden disk, since the run may go well elsewhere.
    """
    started_s = time.process_time()
    try:
        with contextlib.closing(run_scenario(task.scenario, out=task.folder, resume=True)) as records:
            return Done(None, found=task.read(_until_cancelled(until_diverged(records))))
    except Exception as error:
        if blame_machine and machine_trouble(error):
            raise
        return Done(_in_one_line(trouble_of(error)))
    finally:
        if task.folder is not None and RunFolder(task.folder).has_run:
            _add_usage(task.folder, time.process_time() - started_s)


def cpu_seconds(folder: Path) -> float | None:
    """Returns the CPU time of a run of a campaign, all its parts together; None if it is not known."""
    found = read_json(folder / _USAGE, max_bytes=1_000)
    value = found.get("cpu_s") if isinstance(found, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _add_usage(folder: Path, cpu_s: float) -> None:
    with contextlib.suppress(OSError):
        total_s = round((cpu_seconds(folder) or 0.0) + cpu_s, 3)
        write_text_atomic(folder / _USAGE, json.dumps({"cpu_s": total_s}) + "\n", follow_link=False)


def until_diverged(records: Iterable[dict[str, Any]]) -> Generator[dict[str, Any]]:
    """Yields the records of a run; one that diverges ends like others, with a last record that says so."""
    with contextlib.suppress(Diverged):
        yield from records


def _until_cancelled(records: Iterable[dict[str, Any]]) -> Generator[dict[str, Any]]:
    for record in records:
        yield record
        if cancelled():
            raise WorkFailed("It was stopped.")


def _in_one_line(trouble: str) -> str:
    """The first line and, if there are more, what a traceback ends with."""
    first, *others = trouble.strip().splitlines() or [""]
    return f"{first} {others[-1].strip()}" if others else first


def given_up(death: Died) -> str:
    return f"Its worker died {MAX_TRIES} times, last by {death.how}; {death.advice}"
