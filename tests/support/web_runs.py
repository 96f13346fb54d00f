"""Run folders for the tests of the web pages: real runs, small enough to take a blink, and a mock-up of a long one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

import airprune as ap
from airprune.studies.paper.profiles import PROFILES
from airprune.studies.paper.reproduction import ARTEFACTS, Reproduction, write_claims
from support.tiny import TINY_TOML

HOSTILE = "<img src=x onerror=document.title='owned'>"


def tiny(**changes: Any) -> ap.Scenario:
    """Two edges of two devices, an MLP on glyphs, in this process."""
    values = {"engine.name": "serial", "rounds.global_rounds": 2}
    return ap.Scenario.from_text(TINY_TOML).with_values(
        values | {key.replace("__", "."): value for key, value in changes.items()}
    )


def make_run(folder: Path, **changes: Any) -> Path:
    """A finished run."""
    for _ in ap.run(tiny(**changes), out=folder):
        pass
    return folder


def stopped_run(folder: Path, num_records: int, **changes: Any) -> Path:
    """A run that was stopped after so many records."""
    records = ap.run(tiny(**changes), out=folder)
    for _ in range(num_records):
        next(records)
    records.close()
    return folder


def make_reproduction(folder: Path) -> Path:
    """What of a reproduction needs no training: Table I, Table II, Fig. 6 and the errata."""
    folder.mkdir(parents=True)
    reproduction = Reproduction(profile=PROFILES["quick"], seeds=(0,), out=folder)
    for name in ("table1", "table2", "fig6", "errata"):
        reproduction.write(ARTEFACTS[name])
    write_claims(folder)
    return folder


def global_line(number: int, **changes: Any) -> bytes:
    """The record of a global round as a long run would write it."""
    record = {
        "kind": "global",
        "global_round": number,
        "time_s": 0.03 * number,
        "uploaded_weights": 1000 * number,
        "uploaded_bits": 64e3 * number,
        "energy_j": 0.1 * number,
        "mean_pruning_ratio": 0.5,
        "train_loss": 2.0 / number,
        "test_loss": 2.5 / number,
        "test_accuracy": 1 - 1 / number,
        "participants": 4,
        "left_out": 0,
    }
    return json.dumps(record | changes, separators=(",", ":")).encode() + b"\n"


def edge_line(global_round: int, edge_round: int = 1, *, num_devices: int = 4) -> bytes:
    values = [0.5] * num_devices
    record = {
        "kind": "edge",
        "global_round": global_round,
        "edge_round": edge_round,
        "edge_id": [0],
        "coverage": [{"edge": 0, "min_count": 1, "num_uncovered": global_round}],
        "device": list(range(num_devices)),
        "edge": [0] * num_devices,
        "fate": ["ok"] * num_devices,
        "bandwidth_share": values,
        "pruning_ratio": values,
        "compute_s": values,
        "uplink_s": values,
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


class Events:
    """The server-sent events of one connection, as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        kind = ""
        for line in self._lines:
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))
            elif line.startswith(":"):
                yield "heartbeat", None

    def until(self, condition: Callable[[str, Any], bool], patience_s: float = 20.0) -> Any:
        """The first event's data for which the condition holds."""
        deadline = time.monotonic() + patience_s
        for kind, data in self:
            if condition(kind, data):
                return data
            assert time.monotonic() < deadline, "timed out"
        raise AssertionError("the stream ended")


def mock_run(folder: Path, accuracies: list[float], **changes: Any) -> Path:
    """A finished run of these test accuracies, written as a run would, without any training."""
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(tiny(**changes).to_toml())
    lines = [global_line(i, test_accuracy=accuracy) for i, accuracy in enumerate(accuracies, start=1)]
    (folder / "records.jsonl").write_bytes(b"".join(lines))
    (folder / "final.safetensors").write_bytes(b"")
    return folder
