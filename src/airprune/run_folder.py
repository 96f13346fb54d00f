"""The files of one run folder, and the promise that a kill at any moment loses at most the round in progress."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import torch

import airprune
from airprune.errors import UsageError, WorkFailed
from airprune.experiment import Experiment
from airprune.records import Totals
from airprune.rounds import State
from airprune.scenario import Scenario
from airprune.tables import write_text_atomic


class RunFolder:
    """Reads and writes one run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scenario_file = path / "scenario.toml"
        self.records_file = path / "records.jsonl"
        self.checkpoint_file = path / "checkpoint" / "state.safetensors"
        self.final_file = path / "final.safetensors"

    @property
    def has_run(self) -> bool:
        return self.scenario_file.exists()

    @property
    def is_finished(self) -> bool:
        return self.final_file.exists()

    def scenario(self) -> Scenario:
        return Scenario.load(self.scenario_file)

    def records(self) -> list[dict[str, Any]]:
        """All whole records so far; a line still being written is left out."""
        if not self.records_file.exists():
            return []
        found = []
        for line in self.records_file.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes this folder meanwhile; the lock goes with the process, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise UsageError(f"{self.path} cannot be used as a run folder: {error.strerror}.") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{self.path} is being written by another run; wait for it or choose another.") from None
            yield

    def prepare(self, experiment: Experiment) -> None:
        """Lays out a new folder, or checks that an old one holds this very scenario."""
        if self.has_run:
            mine = self.scenario()
            if mine.hash != experiment.scenario.hash:
                key, theirs, wanted = mine.diff(experiment.scenario)[0]
                raise UsageError(
                    f"{self.path} holds another scenario: {key} is {theirs!r} there, {wanted!r} here; "
                    "resume with the same settings or choose another folder."
                )
            return
        self.checkpoint_file.parent.mkdir(exist_ok=True)
        self.records_file.write_bytes(b"")
        write_text_atomic(self.path / "environment.json", json.dumps(environment(), indent=2) + "\n")
        write_text_atomic(self.scenario_file, experiment.scenario.to_toml())

    def save(self, experiment: Experiment, state: State, record: dict[str, Any]) -> None:
        """Appends the record, then replaces the checkpoint."""
        with self.records_file.open("ab") as file:
            file.write(json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            length = file.tell()
        position = {
            "global_round": state.global_round,
            "edge_round": state.edge_round,
            "edge_latency_s": [[None if math.isnan(x) else x for x in row] for row in state.edge_latency_s],
            "totals": state.totals.as_dict(),
            "records_bytes": length,
            "identity": identity(experiment),
        }
        arrays = {"global": state.global_state, "edges": state.edge_states}
        self._write(self.checkpoint_file, arrays, {"position": json.dumps(position)})

    def load(self, experiment: Experiment) -> State | None:
        """The state of the last checkpoint, with the records cut to match; None if there is none yet."""
        if not self.checkpoint_file.exists():
            self.records_file.write_bytes(b"")
            return None
        try:
            with safetensors.safe_open(self.checkpoint_file, "numpy") as file:
                position = json.loads(file.metadata()["position"])
                arrays = {name: file.get_tensor(name) for name in ("global", "edges")}
        except (OSError, KeyError, ValueError, TypeError, safetensors.SafetensorError) as error:
            raise WorkFailed(f"{self.checkpoint_file} cannot be read ({error}); start over in another folder.") from None
        if position["identity"] != identity(experiment):
            raise UsageError(f"{self.path} was started with another model or data set; give the same ones to resume.")
        os.truncate(self.records_file, position["records_bytes"])
        return State(
            global_state=arrays["global"],
            edge_states=arrays["edges"],
            global_round=position["global_round"],
            edge_round=position["edge_round"],
            edge_latency_s=[[math.nan if x is None else x for x in row] for row in position["edge_latency_s"]],
            totals=Totals(**position["totals"]),
        )

    def finish(self, experiment: Experiment, state: State) -> None:
        """Writes the trained model under the module's own names."""
        if not self.is_finished:
            arrays = experiment.model.named_arrays(state.global_state)
            self._write(self.final_file, arrays, {"scenario": experiment.scenario.hash})

    @staticmethod
    def _write(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
        partial = path.with_suffix(".partial")
        safetensors.numpy.save_file(arrays, partial, metadata=metadata)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)


def identity(experiment: Experiment) -> str:
    """What a checkpoint belongs to, beyond the scenario: the data set and the starting weights."""
    digest = hashlib.sha256(experiment.dataset.fingerprint.encode())
    digest.update(experiment.model.state.numpy().tobytes())
    return digest.hexdigest()


def environment() -> dict[str, Any]:
    """What a result may depend on besides the scenario."""
    return {
        "airprune": airprune.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
    }


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _commit() -> str | None:
    source = Path(__file__).parent
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "-C", str(source), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        return done.stdout.strip()
    return None
