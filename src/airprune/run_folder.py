"""The files of one run folder, and the promise that a kill at any moment loses at most the round in progress."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy

from airprune.environment import environment
from airprune.errors import UsageError, WorkFailed
from airprune.experiment import Experiment
from airprune.records import Totals
from airprune.rounds import State
from airprune.scenario import Scenario
from airprune.tables import write_text_atomic

_FIRST_LOOK_BYTES = 64 * 2**10
_UNREADABLE = (OSError, KeyError, ValueError, TypeError, AttributeError, safetensors.SafetensorError)


class RunFolder:
    """Reads and writes one run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scenario_file = path / "scenario.toml"
        self.records_file = path / "records.jsonl"
        self.checkpoint_file = path / "checkpoint" / "state.safetensors"
        self.final_file = path / "final.safetensors"
        self.lock_file = path / ".lock"
        self._records_bytes = 0
        self._belongs_to: dict[str, str] = {}
        self._kernel = ""

    @property
    def has_run(self) -> bool:
        return self.scenario_file.exists()

    @property
    def is_finished(self) -> bool:
        return self.final_file.exists()

    def scenario(self) -> Scenario:
        return Scenario.load(self.scenario_file)

    def records(self) -> list[dict[str, Any]]:
        """All whole records so far; a line still being written, or spoilt, is left out."""
        if not self.records_file.exists():
            return []
        return [record for line in self.records_file.read_bytes().split(b"\n") if (record := record_in(line))]

    def last_record(self, kind: str, *, within_bytes: int) -> dict[str, Any] | None:
        """The last whole record of this kind, if it begins within so many bytes of the end."""
        with self.records_file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            num_bytes = min(size, within_bytes, _FIRST_LOOK_BYTES)
            while True:
                file.seek(size - num_bytes)
                lines = file.read(num_bytes).split(b"\n")
                for line in reversed(lines if num_bytes == size else lines[1:]):
                    if (record := record_in(line)) and record["kind"] == kind:
                        return record
                if num_bytes == min(size, within_bytes):
                    return None
                num_bytes = min(size, within_bytes, 8 * num_bytes)

    @property
    def kernel(self) -> str | None:
        """What has computed the gradients so far, if there is more to compute."""
        if self.is_finished or not self.checkpoint_file.exists():
            return None
        try:
            kernel = self._position().get("kernel")
        except _UNREADABLE:
            return None  # `load` will say so
        return kernel if kernel in ("native", "torch") else None

    def has_finished(self, scenario: Scenario) -> bool:
        """Whether the trained model of this very scenario is here."""
        try:
            with safetensors.safe_open(self.final_file, "numpy") as file:
                return file.metadata().get("scenario") == scenario.hash
        except (OSError, AttributeError, safetensors.SafetensorError):
            return False

    @property
    def is_running(self) -> bool:
        """Whether somebody writes this folder now."""
        try:
            with self.lock_file.open() as lock:
                return not _flocked(lock, fcntl.LOCK_SH)
        except OSError:
            return False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes this folder meanwhile; the lock goes with the process, however it ends.

        What fails before there is a run takes the lock and the folders made for it away again.
        """
        try:
            made = [path for path in (self.lock_file, self.path, *self.path.parents) if not path.exists()]
            lock = self._taken_lock()
        except OSError as error:
            raise UsageError(f"{self.path} cannot be used as a run folder: {error.strerror}.") from None
        with lock:
            try:
                yield
            except BaseException:
                if not self.has_run:
                    _remove(made)
                raise

    def _taken_lock(self) -> IO[str]:
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self.lock_file.open("w")
            if not _taken(lock):
                lock.close()
                raise UsageError(f"{self.path} is being written by another run; wait for it or choose another.")
            if _is_at(lock, self.lock_file):
                return lock
            lock.close()  # of a run that came to nothing: whoever comes next would take another one

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for what is needed only while the run goes on; what a killed run left there is cleared first."""
        path = self.path / ".scratch"
        shutil.rmtree(path, ignore_errors=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def check(self, experiment: Experiment) -> None:
        """Refuses a folder that holds anything but a run of this very scenario. Comes before load."""
        scenario = experiment.scenario
        self._belongs_to = {"scenario": scenario.hash, "identity": identity(experiment)}
        self._kernel = experiment.kernel
        if self.has_run:
            for key, theirs, wanted in self.scenario().diff(scenario):
                if not _is_free(key):
                    raise UsageError(
                        f"{self.path} holds another scenario: {key} is {theirs!r} there, {wanted!r} here; "
                        "resume with the same settings or choose another folder."
                    )
        elif self.records() or self.checkpoint_file.exists() or self.is_finished:
            raise UsageError(
                f"{self.path} has files of a run but no scenario.toml; restore it or choose another folder."
            )

    def begin(self, experiment: Experiment) -> None:
        """Lays out a new folder, or cuts an old one's records to what `load` found. Comes before save."""
        with self._sentence_if_unwritable():
            self.checkpoint_file.parent.mkdir(exist_ok=True)
            with self.records_file.open("ab") as file:
                file.truncate(self._records_bytes)
        if not self.checkpoint_file.exists():
            facts = environment() | {"kernel": experiment.kernel}
            write_text_atomic(self.path / "environment.json", json.dumps(facts, indent=2) + "\n")
        if not self.has_run:
            write_text_atomic(self.scenario_file, experiment.scenario.to_toml())  # last: from now on there is a run

    def save(self, state: State, record: dict[str, Any]) -> None:
        """Appends the record, then replaces the checkpoint."""
        with self._sentence_if_unwritable():
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
                "kernel": self._kernel,
                **self._belongs_to,
            }
            arrays = {"global": state.global_state, "edges": state.edge_states}
            self._write(self.checkpoint_file, arrays, {"position": json.dumps(position)})

    def load(self) -> State | None:
        """The state of the last checkpoint; None if there is none yet."""
        if not self.checkpoint_file.exists():
            if len(self.records()) > 1:  # a single one may have been killed before its checkpoint
                raise WorkFailed(f"{self.checkpoint_file} is gone; restore it or start over in another folder.")
            return None
        try:
            position = self._position()
            with safetensors.safe_open(self.checkpoint_file, "numpy") as file:
                arrays = {name: file.get_tensor(name) for name in ("global", "edges")}
            rows = [[math.nan if x is None else x for x in row] for row in position["edge_latency_s"]]
            state = State(
                global_state=arrays["global"],
                edge_states=arrays["edges"],
                global_round=position["global_round"],
                edge_round=position["edge_round"],
                edge_latency_s=rows,
                totals=Totals(**position["totals"]),
            )
            belongs_to = {name: position.get(name, mine) for name, mine in self._belongs_to.items()}
            self._records_bytes = int(position["records_bytes"])
        except _UNREADABLE as error:
            raise WorkFailed(
                f"{self.checkpoint_file} cannot be read ({error}); start over in another folder."
            ) from None
        if belongs_to["identity"] != self._belongs_to["identity"]:
            raise UsageError(
                f"{self.path} was started with another model or data set; give the same ones to resume. "
                "A model of your own starts the same if torch.manual_seed(…) comes before it."
            )
        if belongs_to["scenario"] != self._belongs_to["scenario"]:  # keys have been compared: a file's contents changed
            raise UsageError(f"{self.path} was started with other contents of the network table; resume with those.")
        size = self.records_file.stat().st_size if self.records_file.exists() else 0
        if size < self._records_bytes:
            raise WorkFailed(
                f"{self.records_file} must have at least {self._records_bytes:,} bytes, as when the run stopped, "
                f"got {size:,}; restore it or start over in another folder."
            )
        return state

    def _position(self) -> dict[str, Any]:
        """What the checkpoint tells besides the models."""
        with safetensors.safe_open(self.checkpoint_file, "numpy") as file:
            position: dict[str, Any] = json.loads(file.metadata()["position"])
        return position

    def finish(self, experiment: Experiment, state: State) -> None:
        """Writes the trained model under the module's own names, for `load_state_dict`."""
        if self.is_finished:
            return
        model = experiment.model
        start = model.state.numpy().copy()
        model.load(state.global_state)
        arrays = {name: tensor.numpy().copy(order="C") for name, tensor in model.module.state_dict().items()}
        model.load(start)
        with self._sentence_if_unwritable():
            self._write(self.final_file, arrays, {"scenario": experiment.scenario.hash})

    @contextlib.contextmanager
    def _sentence_if_unwritable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # a full disk, say
            raise WorkFailed(
                f"{self.path} was not written: {error.strerror or error}; mend that and resume."
            ) from error

    @staticmethod
    def _write(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(safetensors.numpy.save(arrays, metadata))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)


def record_in(line: bytes) -> dict[str, Any] | None:
    """The record that a line holds; None for one still being written, or spoilt."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "kind" in record else None


def _taken(lock: IO[str]) -> bool:
    """Takes the lock unless another run has it. Whoever only looks (`is_running`) shares it for a moment: not a run."""
    while not _flocked(lock, fcntl.LOCK_EX):
        if not _flocked(lock, fcntl.LOCK_SH):
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(0.001)
    return True


def _flocked(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(lock: IO[str], path: Path) -> bool:
    """Whether the open file is the one that lies there."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except OSError:
        return False


def _remove(made: list[Path]) -> None:
    """Takes away a file and the folders around it, from the inside out, as far as nothing else lies there."""
    with contextlib.suppress(OSError):
        for path in made:
            path.rmdir() if path.is_dir() else path.unlink()


def finite(value: Any) -> Any:
    """A record with None for NaN and infinities, e.g. the loss of a model that diverged, since JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return [finite(entry) for entry in value] if isinstance(value, list) else value


def _is_free(key: str) -> bool:
    """Whether a resumed run may differ in this key: results do not depend on it, or on its contents only."""
    return key in ("name", "data.data_dir", "network.table") or key.startswith("engine.")


def identity(experiment: Experiment) -> str:
    """What a checkpoint belongs to, beyond the scenario: the data set and the starting weights."""
    digest = hashlib.sha256(experiment.dataset.fingerprint.encode())
    digest.update(experiment.model.state.numpy().tobytes())
    return digest.hexdigest()
