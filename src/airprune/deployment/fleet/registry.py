"""Keeps jobs and delivered models of a fleet in one SQLite file, which the cloud and the operator's commands share.

A job is queued → running → ended, failed or stopped; one that runs and is to be stopped is `stopping` until it is. A
service that was killed finds its job still running, and continues it.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airprune.errors import UsageError, WorkFailed

FILE = "fleet.sqlite"
STATES = ("queued", "running", "stopping", "ended", "failed", "stopped")
OVER = ("ended", "failed", "stopped")
_WITHIN_S = 10.0
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    scenario TEXT NOT NULL,
    settings TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    submitted_s REAL NOT NULL,
    started_s REAL,
    ended_s REAL,
    deliver TEXT NOT NULL DEFAULT '',
    data TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS deliveries (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL,
    which TEXT NOT NULL,
    devices TEXT NOT NULL,
    created_s REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS totals (
    job INTEGER PRIMARY KEY,
    totals TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS held (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    trouble TEXT NOT NULL,
    at_s REAL NOT NULL
);
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A scenario to run on the fleet.

    Attributes:
      name: of the scenario.
      scenario: TOML.
      settings: of the cloud for this run, as `CloudSettings` takes them.
      state: one of `STATES`.
      reason: why it failed.
      submitted_s, started_s, ended_s: seconds since 1970.
      deliver: final or best: its model that is delivered when it has ended; empty: none.
      data: source of the cloud's test set, see `own_data`; empty: the scenario's.
    """

    number: int
    name: str
    scenario: str = field(repr=False)
    settings: dict[str, Any]
    state: str
    reason: str
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    deliver: str = ""
    data: str = ""

    @property
    def folder_name(self) -> str:
        """Name of its run folder among those of the fleet."""
        return f"job-{self.number:04d}-{self.name}"


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A model that was delivered.

    Attributes:
      which: final or best.
      devices: that it is for; none: all.
    """

    version: int
    job: int
    which: str
    devices: tuple[str, ...]
    created_s: float


@dataclass(frozen=True, kw_only=True)
class HeldModel:
    """The model that a node has, as it reported last.

    Attributes:
      version: 0: none.
      trouble: why it has not taken the last one.
    """

    name: str
    version: int
    trouble: str
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts of a run.

    Attributes:
      edge_rounds: that are over, and had uploads.
      uploads: by outcome.
      upload_bytes: that were received.
    """

    edge_rounds: int = 0
    uploads: Mapping[str, int] = field(default_factory=dict)
    upload_bytes: int = 0


class Registry:
    """The jobs and models of one fleet; every call is a transaction of its own, from any process.

    Args:
      only_reads: changes nothing, and makes no file.
    """

    def __init__(self, path: Path, *, only_reads: bool = False) -> None:
        self._path, self._only_reads = path, only_reads
        if not only_reads:
            with self._opened() as base:
                base.executescript(_TABLES)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            place = f"{self._path.absolute().as_uri()}?mode={'ro' if self._only_reads else 'rwc'}"
            base = sqlite3.connect(place, timeout=_WITHIN_S, isolation_level=None, uri=True)
        except sqlite3.Error as error:
            raise UsageError(f"{self._path} cannot be opened: {error}.") from None
        base.row_factory = sqlite3.Row
        try:
            base.execute("BEGIN" if self._only_reads else "BEGIN IMMEDIATE")
            yield base
            if base.in_transaction:
                base.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            way_out = "restore it from a copy, or delete it and submit the jobs again; run folders are not concerned"
            raise WorkFailed(f"{self._path} cannot be used ({error}); {way_out}.") from None
        finally:
            base.close()

    def submit(self, *, name: str, scenario: str, settings: dict[str, Any], deliver: str = "", data: str = "") -> Job:
        """Puts a job at the end of the queue."""
        values = (name, scenario, json.dumps(settings), time.time(), deliver, data)
        columns = "(name, scenario, settings, state, submitted_s, deliver, data)"
        with self._opened() as base:
            words = f"INSERT INTO jobs {columns} VALUES (?, ?, ?, 'queued', ?, ?, ?)"
            number = base.execute(words, values).lastrowid
            return _job_of(base.execute("SELECT * FROM jobs WHERE number = ?", (number,)).fetchone())

    def jobs(self) -> list[Job]:
        """Returns all jobs, in the order in which they were submitted."""
        with self._opened() as base:
            return [_job_of(row) for row in base.execute("SELECT * FROM jobs ORDER BY number")]

    def job(self, number: int) -> Job:
        found = {job.number: job for job in self.jobs()}
        if number not in found:
            known = ", ".join(map(str, list(found)[-10:]))
            raise UsageError(
                f"Job {number} is unknown; " + (f"the latest are {known}." if known else "there is none yet.")
            )
        return found[number]

    def current(self) -> Job | None:
        """Returns the job that runs, or is being stopped."""
        return next((job for job in self.jobs() if job.state in ("running", "stopping")), None)

    def take_next(self) -> Job | None:
        """Returns the job to run now, which is `running` from now on: one that ran already, else the oldest queued."""
        with self._opened() as base:
            rows = base.execute("SELECT * FROM jobs WHERE state IN ('running', 'stopping', 'queued') ORDER BY number")
            jobs = sorted(map(_job_of, rows), key=lambda job: job.state == "queued")
            if not jobs:
                return None
            if jobs[0].state == "queued":
                words = "UPDATE jobs SET state = 'running', reason = '', started_s = ? WHERE number = ?"
                base.execute(words, (time.time(), jobs[0].number))
            return _job_of(base.execute("SELECT * FROM jobs WHERE number = ?", (jobs[0].number,)).fetchone())

    def finish(self, number: int, state: str, reason: str = "") -> None:
        """Notes how a job has ended."""
        assert state in OVER
        with self._opened() as base:
            words = "UPDATE jobs SET state = ?, reason = ?, ended_s = ? WHERE number = ?"
            base.execute(words, (state, reason, time.time(), number))

    def note_totals(self, number: int, totals: Totals) -> None:
        """Keeps the counts of a job that is over, so that its files need not be read again."""
        with self._opened() as base:
            base.execute("INSERT OR REPLACE INTO totals VALUES (?, ?)", (number, json.dumps(asdict(totals))))

    def totals(self) -> dict[int, Totals]:
        """Returns the counts of jobs that are over, by number."""
        with self._opened() as base:
            return {row["job"]: Totals(**json.loads(row["totals"])) for row in base.execute("SELECT * FROM totals")}

    def stop(self, number: int) -> Job:
        """Stops a job: at once if it is queued, else as soon as the service sees it."""
        job = self.job(number)
        if job.state in OVER:
            raise UsageError(f"Job {number} has {job.state} already.")
        with self._opened() as base:
            words = "UPDATE jobs SET state = CASE state WHEN 'queued' THEN 'stopped' ELSE 'stopping' END"
            base.execute(f"{words} WHERE number = ? AND state IN ('queued', 'running', 'stopping')", (number,))
        return self.job(number)

    def resume(self, number: int) -> Job:
        """Puts a job that was stopped or has failed back into the queue; it continues where it was."""
        job = self.job(number)
        if job.state not in ("stopped", "failed"):
            raise UsageError(f"Job {number} must be stopped or failed to be resumed, got {job.state}.")
        with self._opened() as base:
            words = "UPDATE jobs SET state = 'queued', reason = '', ended_s = NULL WHERE number = ?"
            base.execute(f"{words} AND state IN ('stopped', 'failed')", (number,))
            base.execute("DELETE FROM totals WHERE job = ?", (number,))
        return self.job(number)

    def deliver(self, job: int, which: str, devices: Sequence[str] = ()) -> Delivery:
        """Makes a job's model the one that nodes are to hold; versions only grow."""
        with self._opened() as base:
            words = "INSERT INTO deliveries (job, which, devices, created_s) VALUES (?, ?, ?, ?)"
            base.execute(words, (job, which, json.dumps(list(devices)), time.time()))
        return self.deliveries()[-1]

    def deliveries(self) -> list[Delivery]:
        """Returns all deliveries, oldest first."""
        with self._opened() as base:
            rows = [dict(row) for row in base.execute("SELECT * FROM deliveries ORDER BY version")]
        return [Delivery(**{**row, "devices": tuple(json.loads(row["devices"]))}) for row in rows]

    def note_held(self, name: str, version: int, trouble: str) -> None:
        """Notes which model a node has; one that could not take a model keeps the one that it had."""
        with self._opened() as base:
            words = "INSERT INTO held VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET trouble = excluded.trouble"
            kept = "" if trouble else ", version = excluded.version"
            base.execute(f"{words}, at_s = excluded.at_s{kept}", (name, version, trouble, time.time()))

    def held(self) -> list[HeldModel]:
        """Returns what nodes have reported last, by name."""
        with self._opened() as base:
            return [HeldModel(**dict(row)) for row in base.execute("SELECT * FROM held ORDER BY name")]


def _job_of(row: Sequence[Any]) -> Job:
    values = dict(row)
    return Job(**{**values, "settings": json.loads(values["settings"])})
