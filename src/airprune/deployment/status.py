"""Shows which nodes are online: a small file that the cloud replaces about every second, for those who look."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from airprune import files
from airprune.errors import WorkFailed
from airprune.json_types import Unreadable, read_dataclass
from airprune.runs.layout import RunFolder

STATES = ("idle", "waiting", "running", "ended")
ROLES = ("cloud", "edge", "device")
# After so long without an update, the cloud is taken to be unreachable.
STALE_AFTER_S = 10.0
MAX_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """An edge or a device as the cloud knows it.

    Attributes:
      edge: name of the edge that serves a device.
      home: name of the edge at which a device is at home.
      seen_s: when it was connected last, in seconds since 1970; None if never.
      software: SHA-256 of the files of airprune that it runs, hex.
      serial, expires_s: of its certificate: number, and end in seconds since 1970.
      late, refused: uploads so far that missed the deadline or were refused; of an edge, refused peers too.
      last_fate: outcome of a device in the last edge round for which it was selected.
      trouble: why it is not online or cannot take part, if that is known.
    """

    name: str
    role: str
    edge: str | None = None
    online: bool
    home: str | None = None
    seen_s: float | None = None
    rtt_s: float | None = None
    late: int = 0
    refused: int = 0
    last_fate: str | None = None
    trouble: str | None = None
    software: str | None = None
    serial: str | None = None
    expires_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Status:
    """A deployment at one moment.

    Attributes:
      run: its id; empty while a fleet waits for its next job.
      state: one of `STATES`.
      global_round, edge_round: at work now, counted from 1; None before the first.
      num_rounds: global rounds of the whole run.
      updated_s: seconds since 1970.
    """

    run: str
    federation: str
    state: str
    global_round: int | None
    edge_round: int | None
    num_rounds: int
    updated_s: float
    nodes: tuple[NodeStatus, ...] = ()

    def age_s(self, now_s: float | None = None) -> float:
        return (time.time() if now_s is None else now_s) - self.updated_s

    def is_stale(self, now_s: float | None = None) -> bool:
        """True if the cloud should have written again; one that has ended need not."""
        return self.state != "ended" and self.age_s(now_s) > STALE_AFTER_S

    def online(self, role: str) -> int:
        return sum(node.online for node in self.nodes if node.role == role)

    def count(self, role: str) -> int:
        return sum(node.role == role for node in self.nodes)


def write_status(folder: RunFolder, status: Status) -> None:
    """Replaces the file of a run in one step."""
    write_status_file(folder.status_file, status)


def write_status_file(path: Path, status: Status) -> None:
    """Replaces the file in one step."""
    content = json.dumps(asdict(status), allow_nan=False, separators=(",", ":")).encode()
    try:
        with files.replacing(path, partial="status.partial") as file:
            file.write(content)
    except OSError as error:
        raise WorkFailed(f"{path} was not written: {error.strerror or error}.") from error


def read_status(folder: RunFolder) -> Status | None:
    """Reads the status of a run; None if there is none, or nothing that can be read as one."""
    return read_status_file(folder.status_file)


def read_status_file(path: Path) -> Status | None:
    """Reads a status; None if there is none, or nothing that can be read as one."""
    try:
        with files.open_to_read(path) as file:
            return read_dataclass(Status, json.loads(file.read(MAX_BYTES)))
    except (OSError, ValueError, RecursionError, Unreadable):
        return None
