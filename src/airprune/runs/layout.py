"""The layout of a run folder, and all reading of it. Needs neither torch nor the run's model or data.

    scenario.toml                   the resolved scenario
    environment.json                versions, commit and CPU
    records.jsonl                   one line per edge round and per global round
    checkpoint/state.safetensors    the state after the last record
    memory/                         the state of devices, in files that the checkpoint names
    final.safetensors               the trained model, when the run has ended; of one that diverged there is none

Of a run on real machines also:

    inputs.jsonl                    the inputs of each edge round's plan
    measured.jsonl                  the outcome of each device in it
    status.json                     the devices and edges that are connected now

Of a Flower app also:

    flower.json                     the app, its config, how compute times are found
    replies/                        answers of its clients, until the run has ended

The checkpoint and the final model know which run they belong to and the SHA-256 of the records that came before them
(`Provenance`), so an edited record or another run's file is found. Older folders without checksums can be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airprune import files
from airprune.errors import UsageError, WorkFailed
from airprune.runs import checkpoint
from airprune.runs.lines import read_json
from airprune.runs.lock import LOCK, is_locked
from airprune.runs.record_reader import MAX_RECORDS_BYTES, RecordReader

if TYPE_CHECKING:
    from airprune.scenario import Scenario

MAX_SCENARIO_BYTES = 2**20
MAX_ENVIRONMENT_BYTES = 2**22

_HASHED_AT_ONCE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The run that a checkpoint or a final model belongs to, and the records it had written by then.

    Attributes:
      scenario: its hash.
      identity: of the data set and the starting weights.
      settings: digest of scenario.toml, see `settings_digest`.
      kernel: what computed the gradients.
      imports: SHA-256 and name of each imported file that it used, one per line.
      records_bytes, records_sha256: of records.jsonl.
      has_ended: True if no round is left.
    """

    scenario: str
    identity: str
    settings: str
    kernel: str
    imports: str
    records_bytes: int
    records_sha256: str
    has_ended: bool

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 by name of the imported files."""
        return {name: digest for digest, _, name in (line.partition(" ") for line in self.imports.splitlines())}

    def uses(self, files: Mapping[str, str]) -> bool:
        """True if it used files of these contents, whatever their names are now."""
        return sorted(self.files.values()) == sorted(files.values())

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, facts: dict[str, Any], path: Path) -> Provenance:
        """Reads the provenance from the facts of a file; refuses a file without one."""
        given = facts.get("run")
        types = {field.name: {"str": str, "int": int, "bool": bool}[str(field.type)] for field in fields(cls)}
        if not isinstance(given, dict) or any(type(given.get(name)) is not kind for name, kind in types.items()):
            raise WorkFailed(
                f"{path} does not say which run it belongs to; restore it or start over in another folder."
            )
        return cls(**{name: given[name] for name in types})


class RunFolder:
    """Reads one run folder."""

    @classmethod
    def below(cls, folder: Path, name: str) -> RunFolder:
        """Returns one of many runs in a folder; refuses a link, which may lead elsewhere."""
        path = folder / name
        if path.is_symlink():
            raise UsageError(f"{path} is a link, and links in a folder of runs are not followed; delete it.")
        return cls(path)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scenario_file = path / "scenario.toml"
        self.environment_file = path / "environment.json"
        self.records_file = path / "records.jsonl"
        self.checkpoint_file = path / "checkpoint" / "state.safetensors"
        self.memory_folder = path / "memory"
        self.final_file = path / "final.safetensors"
        self.best_file = path / "best.safetensors"
        self.lock_file = path / LOCK
        self.scratch_folder = path / ".scratch"
        self.inputs_file = path / "inputs.jsonl"
        self.measured_file = path / "measured.jsonl"
        self.status_file = path / "status.json"
        self.flower_file = path / "flower.json"
        self.replies_folder = path / "replies"

    @property
    def has_run(self) -> bool:
        return os.path.lexists(self.scenario_file)

    @property
    def is_finished(self) -> bool:
        """True if a trained model is here; `has_finished` looks closely."""
        return checkpoint.is_whole(self.final_file)

    @property
    def has_ended(self) -> bool:
        """True if the checkpoint is that of the last round: at most the trained model is still to be written."""
        run = self._saved_or_none()
        return run is not None and run.has_ended

    @property
    def is_deployed(self) -> bool:
        """True if the run is, or was, on real machines."""
        return files.is_regular(self.measured_file)

    @property
    def divergence(self) -> str:
        """The sentence with which a run ended that diverged; empty for others."""
        try:
            last = self.reader.last("global", within_bytes=64 * 2**10)
        except OSError:
            return ""
        found = None if last is None else last.get("diverged")
        return found if isinstance(found, str) else ""

    @property
    def is_running(self) -> bool:
        """True if a process writes this folder now."""
        return is_locked(self.path)

    def scenario(self) -> Scenario:
        from airprune.scenario import Scenario

        try:
            content = files.read_bytes(self.scenario_file, max_bytes=MAX_SCENARIO_BYTES)
        except OSError as error:
            raise UsageError(f"{self.scenario_file} cannot be read: {error.strerror}.") from None
        return Scenario.stored(self.scenario_file, content)

    def flower(self) -> dict[str, Any] | None:
        """Reads what is recorded of the Flower app that ran here; None if there was none."""
        found = read_json(self.flower_file, max_bytes=MAX_ENVIRONMENT_BYTES)
        return found if isinstance(found, dict) else None

    def clock_words(self, scenario: Scenario) -> str:
        """Returns the name of the clock, for captions: the scenario's, or how a Flower app's calls were timed."""
        app = self.flower()
        return scenario.clock.words if app is None else f"of a Flower app, {app.get('compute_from')}"

    def environment(self) -> dict[str, Any]:
        """Reads versions, commit and CPU; empty if they cannot be read."""
        found = read_json(self.environment_file, max_bytes=MAX_ENVIRONMENT_BYTES)
        return found if isinstance(found, dict) else {}

    def check_scenario(self, scenario: Scenario) -> None:
        """Raises if the run here is one of another scenario."""
        for key, theirs, wanted in self.scenario().diff(scenario):
            if not is_free(key):
                raise UsageError(
                    f"{self.path} holds another scenario: {key} is {theirs!r} there, {wanted!r} here; "
                    "resume with the same settings or choose another folder."
                )

    @property
    def reader(self) -> RecordReader:
        """The reader of records.jsonl."""
        return RecordReader(self.records_file)

    def records(self) -> list[dict[str, Any]]:
        """Reads all complete records so far, as `run` yields them; unfinished and damaged lines are skipped."""
        return list(self.reader.objects())

    @property
    def kernel(self) -> str | None:
        """The kernel that has computed the gradients so far, if there is more to compute."""
        run = self._saved_or_none()
        return None if run is None or run.has_ended else _known_kernel(run)

    @property
    def kernel_used(self) -> str | None:
        """The kernel that has computed the gradients so far."""
        run = self._saved_or_none()
        return None if run is None else _known_kernel(run)

    def saved_provenance(self) -> Provenance | None:
        """Returns the provenance of the checkpoint; None if there is none."""
        return self._provenance(self.checkpoint_file)

    def _saved_or_none(self) -> Provenance | None:
        """Returns the same; None also for a file that cannot be read, which resuming the run will report."""
        with contextlib.suppress(WorkFailed):
            return self.saved_provenance()
        return None

    def final_provenance(self) -> Provenance | None:
        """Returns the provenance of the trained model; None if there is none."""
        return self._provenance(self.final_file)

    def has_finished(self, scenario: Scenario) -> bool:
        """True if this very scenario has been run here to its end: to a trained model, or until it diverged."""
        from airprune.methods.registration import files_used_by

        try:
            run = self.saved_provenance() if self.divergence else self.final_provenance()
            if run is None or not run.has_ended or run.scenario != scenario.hash:
                return False
            return run.uses(files_used_by(scenario)) and self.fault_in_records(run) is None
        except WorkFailed:
            return False

    def check(self) -> None:
        """Raises if the records are not what the run wrote; one without checksums has nothing to compare them with."""
        saved = self._saved_or_none()
        try:
            run = self.final_provenance() or saved
        except checkpoint.Unchecked:
            if saved is not None:
                raise
            return
        except WorkFailed:
            way_out = "delete it, then resume" if self.final_file.is_dir() else "resume"
            raise WorkFailed(
                f"{self.final_file} is not what the run wrote; {way_out} the run, which writes it again."
            ) from None
        if run is None:
            return
        fault = self.fault_in_records(run)
        if fault is not None:
            raise WorkFailed(fault)
        if self.settings() not in (None, run.settings):
            raise WorkFailed(
                f"{self.scenario_file} is not the scenario that was run; restore it or start over in another folder."
            )

    def fault_in_records(self, run: Provenance) -> str | None:
        """Returns the fault of the records in one sentence; None if they are those of this run.

        There may be more of them, since a record is written before the checkpoint that knows it; not after the last.
        """
        way_out = "restore it or start over in another folder"
        try:
            with files.open_to_read(self.records_file, max_bytes=MAX_RECORDS_BYTES) as file:
                size = os.fstat(file.fileno()).st_size
                digest = sha256_of(file, run.records_bytes).hexdigest()
        except FileNotFoundError:
            size, digest = 0, hashlib.sha256().hexdigest()
        except OSError as error:
            return f"{self.records_file} cannot be read: {error.strerror}."
        if size < run.records_bytes:
            rule = f"must have at least {run.records_bytes:,} bytes, as when the run stopped"
            return f"{self.records_file} {rule}, got {size:,}; {way_out}."
        if digest != run.records_sha256:
            return f"{self.records_file} is not what the run wrote: lines were changed, moved or exchanged; {way_out}."
        if run.has_ended and size > run.records_bytes:
            return f"{self.records_file} has lines after the run's last record; delete them or {way_out}."
        return None

    def settings(self) -> str | None:
        """Returns the digest of scenario.toml; None if it cannot be read."""
        try:
            return settings_digest(files.read_bytes(self.scenario_file, max_bytes=MAX_SCENARIO_BYTES).decode())
        except (OSError, ValueError, RecursionError):
            return None

    def _provenance(self, path: Path) -> Provenance | None:
        if not os.path.lexists(path):
            return None
        _, facts = checkpoint.read(path, inside=self.path)
        return Provenance.of(facts, path)


def _known_kernel(run: Provenance) -> str | None:
    return run.kernel if run.kernel.partition(":")[0] in ("native", "torch") else None


def is_free(key: str) -> bool:
    """True if a resumed run may differ in this key: results do not depend on it, or on its contents only."""
    if key == "engine.on_device_failure":
        return False
    free = ("name", "method", "rounds.target_accuracy", "data.data_dir", "data.path", "network.table")
    return key in free or key.startswith("engine.")


def settings_digest(text: str) -> str:
    """Returns the SHA-256 of the keys in a scenario.toml that a resumed run may not change; ValueError if no TOML.

    It depends on the text alone, so that it stays the same when a later airprune has more keys.
    """
    values: dict[str, Any] = {}
    for name, value in tomllib.loads(text).items():
        part = value if isinstance(value, dict) else {"": value}
        values |= {f"{name}.{key}".rstrip("."): entry for key, entry in part.items()}
    fixed = {key: value for key, value in values.items() if not is_free(key)}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True, default=str).encode()).hexdigest()


def sha256_of(file: Any, num_bytes: int) -> Any:
    """Returns the hash of the next bytes of a file, as far as there are as many; it can go on from there."""
    digest = hashlib.sha256()
    while num_bytes > 0 and (part := file.read(min(num_bytes, _HASHED_AT_ONCE_BYTES))):
        digest.update(part)
        num_bytes -= len(part)
    return digest
