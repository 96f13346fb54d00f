"""The workers' side of a sweep on a Dask cluster, and what travels between them and the driver.

A worker that sees the sweep's folder writes there, and a run goes on from its checkpoint wherever it is handed out
next. On a machine without that folder it works in one of its own, and the files travel.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import get_worker

from airprune import files
from airprune.engines.cluster.tasks import ALONE, Refusal, other_version
from airprune.errors import UsageError
from airprune.runs.layout import RunFolder
from airprune.sweep.whole_run import WholeRun, finish

# By path within the run folder.
Files = dict[str, bytes]

# What the driver keeps in the sweep's folder meanwhile; a killed one leaves it behind.
ARRIVING = ".arriving-"
_MARKER = ".shared-"
_TABLE = "network-table"
_LOOK_S = 0.5
# How long a folder may stay somebody else's: a run that has lost its driver leaves it after its current round.
_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Marker:
    """A file in the sweep's folder with contents that nobody can guess."""

    path: Path
    contents: str

    @classmethod
    @contextmanager
    def placed(cls, out: Path) -> Iterator[Marker]:
        for left_behind in (*out.glob(f"{_MARKER}*"), *out.glob(f"{ARRIVING}*")):
            if left_behind.is_dir():
                shutil.rmtree(left_behind, ignore_errors=True)
            else:
                left_behind.unlink(missing_ok=True)
        marker = cls(out / f"{_MARKER}{secrets.token_hex(4)}", secrets.token_hex(16))
        try:
            marker.path.write_text(marker.contents)
        except OSError as error:
            raise UsageError(f"{out} cannot be used as a folder of runs: {error.strerror}.") from None
        try:
            yield marker
        finally:
            marker.path.unlink(missing_ok=True)

    def is_here(self) -> bool:
        """Whether this process may write the very folder."""
        try:
            return self.path.read_text() == self.contents and os.access(self.path.parent, os.W_OK)
        except (OSError, ValueError):
            return False


@dataclass(frozen=True)
class Parcel:
    """What a worker needs that does not see the driver's files: what there is of the run, and the network's table."""

    run: Files
    table: bytes | None

    @classmethod
    def of(cls, task: WholeRun) -> Parcel:
        table = task.scenario.network.table
        return cls(files_in(task.folder), None if table is None else Path(table).read_bytes())


@dataclass(frozen=True)
class Done:
    """What became of a run; the files, if they must travel."""

    trouble: str | None
    files: Files | None = None


def greet(wanted: dict[str, str], marker: Marker, *, dask_worker: Any = None) -> Refusal | bool:
    """Asks a worker whether it may take part, and whether it shares the sweep's folder."""
    return other_version(wanted, dask_worker.address) or marker.is_here()


def work(task: WholeRun, parcel: Parcel | None, wanted: dict[str, str]) -> Done | Refusal:
    """One whole run; with a parcel in a folder of this machine, else in the sweep's."""
    worker = get_worker()
    key = worker.get_current_task()

    def stopped() -> bool:
        """Whether the driver has cancelled the task or has gone."""
        state = worker.state.tasks.get(key)
        return state is None or state.state == "cancelled"

    refusal = other_version(wanted, worker.address)
    if refusal is not None:
        return refusal
    while not ALONE.acquire(timeout=_LOOK_S):
        if stopped():
            return Done("It was stopped.")
    try:
        return _at_home(task, stopped) if parcel is None else _away(task, parcel, stopped)
    finally:
        ALONE.release()


def _at_home(task: WholeRun, stopped: Callable[[], bool]) -> Done:
    folder, deadline = RunFolder(task.folder), time.monotonic() + _PATIENCE_S
    while folder.is_running and not stopped() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return Done(finish(task, stopped=stopped))


def _away(task: WholeRun, parcel: Parcel, stopped: Callable[[], bool]) -> Done:
    with tempfile.TemporaryDirectory(prefix="airprune-run-") as place:
        folder, table, scenario = Path(place) / task.folder.name, Path(place) / _TABLE, task.scenario
        put_files(parcel.run, folder)
        if parcel.table is not None:
            table = table.with_suffix(Path(str(scenario.network.table)).suffix)
            table.write_bytes(parcel.table)
            scenario = scenario.with_("network.table", str(table))
        trouble = finish(dataclasses.replace(task, folder=folder, scenario=scenario), stopped=stopped)
        found = files_in(folder)
        if "scenario.toml" in found:  # with the driver's paths
            found["scenario.toml"] = task.scenario.to_toml().encode()
        return Done(trouble, found)


def files_in(folder: Path) -> Files:
    """All that belongs to the run; none for a folder without one."""
    if not RunFolder(folder).has_run:
        return {}
    paths = [path for path in folder.rglob("*") if files.is_regular(path, inside=folder) and path.name[0] != "."]
    return {path.relative_to(folder).as_posix(): files.read_bytes(path) for path in paths if path.suffix != ".partial"}


def put_files(found: Files, folder: Path) -> None:
    for name, contents in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
