"""Keeps on disk what an edge must not forget: its model, its last report, and which uploads have counted."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from airprune.deployment.handshake import RETRY_S, log_if_new
from airprune.deployment.kept_rounds import KeptRound, kept_place
from airprune.deployment.packing import Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.errors import WorkFailed
from airprune.runs import checkpoint

# Between writings of states of which the cloud has all.
_SAVE_EVERY_S = 0.2

# Files of runs that are kept: one that was stopped may be continued.
_KEPT_RUNS = 8

Counted = Mapping[RoundKey, Mapping[int, str]]
Reported = tuple[pb.EdgeReport, bytes]


def read_state(path: Path, node: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads a state file of a node; of a damaged one, the sentence has the command that starts without it."""
    try:
        return checkpoint.read(path)
    except WorkFailed as error:
        reason = str(error).partition(";")[0].removesuffix(".")
        raise WorkFailed(
            f"{reason}. Delete it with `rm {shlex.quote(str(path))}` and start the {node} again: what it had not sent "
            "is lost, and the run goes on."
        ) from None


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeState:
    """Holds what an edge must not forget of one run.

    Attributes:
      station: the model, and the memory of the edge's step; None before the cloud has sent one.
      report: of the last round, without the station; None before there was one.
      counted: digests of uploads, by round and device; see `round_machine`.
    """

    station: Station | None = None
    report: Reported | None = None
    counted: Counted = field(default_factory=dict)

    def has_reported(self, key: RoundKey) -> bool:
        return self.report is not None and RoundKey.of(self.report[0]) == key

    def save(self, path: Path) -> None:
        """Writes the file in one step; OSError if it cannot be written."""
        assert self.station is not None and self.report is not None
        report, payload = self.report
        arrays = {"model": self.station.model, "report": np.frombuffer(payload, np.uint8)}
        arrays |= {f"slots/{name}": array for name, array in self.station.slots.items()}
        counted = [[k.global_round, k.edge_round, {str(d): x for d, x in c.items()}] for k, c in self.counted.items()]
        checkpoint.write(path, arrays, {"report": report.SerializeToString().hex(), "counted": counted})

    @classmethod
    def load(cls, path: Path, *, run: str, slots: Iterable[str]) -> EdgeState:
        """Reads the file; returns an empty one if there is none."""
        if not path.exists():
            return cls()
        arrays, facts = read_state(path, "edge")
        return cls(
            station=Station(model=arrays["model"], slots={name: arrays[f"slots/{name}"] for name in slots}),
            report=(pb.EdgeReport.FromString(bytes.fromhex(facts["report"])), arrays["report"].tobytes()),
            counted={
                RoundKey(run, q, e): {int(device): digest for device, digest in counted.items()}
                for q, e, counted in facts["counted"]
            },
        )


@dataclass(kw_only=True, eq=False)
class EdgeDisk:
    """Writes an edge's state into one folder, in a running event loop; waits for a full disk.

    Attributes:
      keeps_uploads: whether rounds are kept whole, see `kept_rounds`.
    """

    folder: Path
    keeps_uploads: bool
    _newest: EdgeState | None = None
    _saved_s: float = -_SAVE_EVERY_S
    _saving: asyncio.Lock = field(default_factory=asyncio.Lock)

    def file(self, run: str) -> Path:
        return self.folder / f"edge-{run}.safetensors"

    async def save(self, state: EdgeState, key: RoundKey, kept: KeptRound) -> None:
        """Writes the state after a round, and the round."""
        self._newest = state

        def write() -> None:
            if self.keeps_uploads:
                kept.save(kept_place(self.folder, key))
            state.save(self.file(key.run))

        async with self._saving:
            self._saved_s = time.monotonic()
            last = ""
            while True:
                try:
                    return await asyncio.to_thread(write)
                except OSError as error:
                    last = log_if_new(f"{self.folder} was not written: {error.strerror or error}; make room.", last)
                await asyncio.sleep(RETRY_S)

    async def save_soon(self, state: EdgeState, key: RoundKey, kept: KeptRound) -> None:
        """Writes a state of which the cloud has all; of several that follow each other in a moment, only the last."""
        self._newest = state
        if not self.keeps_uploads:
            await asyncio.sleep(self._saved_s + _SAVE_EVERY_S - time.monotonic())
            if self._newest is not state:
                return
        await self.save(state, key, kept)


def drop_old(folder: Path, pattern: str) -> None:
    """Deletes the files of all but the latest runs."""
    files = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    for path in files[:-_KEPT_RUNS]:
        path.unlink(missing_ok=True)
