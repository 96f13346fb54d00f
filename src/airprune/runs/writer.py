"""Writes a run folder while its run goes on, so that a kill at any moment loses at most the round in progress.

One save: the record is appended and written through, the memory of devices is committed beside what the last checkpoint
names, the checkpoint that knows both takes the old one's place, and only then unnamed files are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from airprune import files
from airprune.errors import UsageError, WorkFailed
from airprune.methods.registration import files_used_by, registered
from airprune.runs import checkpoint
from airprune.runs.environment import environment
from airprune.runs.layout import Provenance, RunFolder, settings_digest, sha256_of
from airprune.runs.lines import Lines, sentence_if_unwritable
from airprune.runs.lock import Lock

if TYPE_CHECKING:
    from airprune.runs.store import DeviceStore
    from airprune.scenario import Scenario

Array = np.ndarray


class Savable(Protocol):
    """A state that can be saved: named arrays, and facts in plain JSON."""

    def arrays(self) -> Mapping[str, Array]: ...
    def facts(self) -> dict[str, Any]: ...


class Written(Protocol):
    """The owner of a run folder: an `Experiment`, or an app of others on our network."""

    @property
    def scenario(self) -> Scenario: ...
    @property
    def identity(self) -> str:
        """A digest of what a checkpoint belongs to beyond the scenario."""
        ...

    @property
    def used(self) -> str:
        """Name of the code that computes on devices."""
        ...


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The contents of the last checkpoint.

    Attributes:
      arrays, facts: of the state.
      memory: the table of the `DeviceStore`; empty if there is none.
    """

    arrays: dict[str, Array]
    facts: dict[str, Any]
    memory: dict[str, Any]


class RunWriter:
    """Writes the folder of one run; it holds the folder's lock.

    Refuses a folder that holds anything but a run of this very experiment.
    """

    def __init__(self, folder: RunFolder, experiment: Written, lock: Lock) -> None:
        self.folder = folder
        self._lock = lock
        self._scenario = experiment.scenario
        self._scenario_hash = experiment.scenario.hash
        self._identity = experiment.identity
        self._files = files_used_by(experiment.scenario)
        self._kernel = experiment.used
        self._settings = settings_digest(self._scenario.to_toml())
        self._records = Lines(folder.records_file)
        self._records_hash = hashlib.sha256()
        self._version = 0
        self._has_ended = False
        self._check()

    def _check(self) -> None:
        folder = self.folder
        if folder.has_run:
            folder.check_scenario(self._scenario)
            self._settings = folder.settings() or self._settings  # an earlier airprune wrote fewer keys
        elif folder.records() or any(map(os.path.lexists, (folder.checkpoint_file, folder.final_file))):
            raise UsageError(
                f"{folder.path} has files of a run but no scenario.toml; restore it or choose another folder."
            )

    def load(self) -> Saved | None:
        """Reads the last checkpoint; None if there is none yet."""
        folder = self.folder
        if not os.path.lexists(folder.checkpoint_file):
            if len(folder.records()) > 1 or os.path.lexists(folder.final_file):  # one may have been killed before it
                raise WorkFailed(f"{folder.checkpoint_file} is gone; restore it or start over in another folder.")
            return None
        try:
            arrays, facts = checkpoint.read(folder.checkpoint_file, inside=folder.path)
        except checkpoint.Unchecked:
            raise WorkFailed(
                f"{folder.checkpoint_file} has no checksums, as an earlier airprune wrote it: the run can be read but "
                "not resumed; start over in another folder."
            ) from None
        run = Provenance.of(facts, folder.checkpoint_file)
        self._check_belongs(run)
        fault = folder.fault_in_records(run)
        if fault is not None:
            raise WorkFailed(fault)
        if not run.has_ended and os.path.lexists(folder.final_file):
            raise WorkFailed(
                f"{folder.final_file} is not of this run, which has not ended; delete it or choose another folder."
            )
        with sentence_if_unwritable(self.folder.path), files.open_to_read(folder.records_file) as file:
            self._records_hash = sha256_of(file, run.records_bytes)
        self._records.num_bytes, self._has_ended = run.records_bytes, run.has_ended
        self._version = int(facts["version"])
        self._files = run.files  # by the names they had
        return Saved(arrays=arrays, facts=facts["state"], memory=facts["memory"])

    def _check_belongs(self, run: Provenance) -> None:
        path = self.folder.path
        if not run.uses(self._files):
            raise UsageError(f"{path} {_other_files(run.files, self._files)}")
        if run.identity != self._identity:
            raise UsageError(
                f"{path} was started with another model or data set; give the same ones to resume. "
                "A model of your own starts the same if torch.manual_seed(…) comes before it."
            )
        if run.settings != self.folder.settings():
            raise UsageError(
                f"{self.folder.scenario_file} is not the scenario that was run; restore it or choose another folder."
            )
        has_table = self._scenario.network.table is not None
        if has_table and run.scenario != self._scenario_hash:  # keys have been compared: the table's content changed
            raise UsageError(
                f"{path} was started with other contents of the network table, or by an earlier airprune; resume with "
                "those contents or choose another folder."
            )

    def begin(self) -> None:
        """Lays out a new folder, or cuts an old one's records to the length that `load` found. Comes before `save`."""
        folder = self.folder
        with sentence_if_unwritable(self.folder.path):
            self._lock.check()
            files.make_folder(folder.checkpoint_file.parent)
            self._records.cut()
            if not os.path.lexists(folder.checkpoint_file):
                facts = environment() | {"kernel": self._kernel} | registered()
                _write_text(folder.environment_file, json.dumps(facts, indent=2) + "\n")
            if not folder.has_run:  # last: from now on there is a run
                _write_text(folder.scenario_file, self._scenario.to_toml())

    def save(
        self, state: Savable, record: dict[str, Any], *, has_ended: bool, store: DeviceStore | None = None
    ) -> None:
        """Appends the record, commits the memory of devices, then replaces the checkpoint."""
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with sentence_if_unwritable(self.folder.path):
            self._lock.check()
            self._records.append(line)
            self._records_hash.update(line)
            self._version += 1
            memory = {} if store is None else store.commit(self._version)
            self._has_ended = has_ended
            facts = {
                "run": self._provenance().as_dict(),
                "state": state.facts(),
                "memory": memory,
                "version": self._version,
            }
            self._lock.check()
            checkpoint.write(self.folder.checkpoint_file, state.arrays(), facts, inside=self.folder.path)
            if store is not None:
                store.forget_unnamed()

    def end(self, state: Savable) -> None:
        """Marks the last saved round as the run's last, where it was stopped from outside; nothing else changes."""
        self._has_ended = True
        with sentence_if_unwritable(self.folder.path):
            self._lock.check()
            arrays, facts = checkpoint.read(self.folder.checkpoint_file, inside=self.folder.path)
            facts |= {"run": self._provenance().as_dict(), "state": state.facts()}
            checkpoint.write(self.folder.checkpoint_file, arrays, facts, inside=self.folder.path)

    def keep_best(self, arrays: Mapping[str, Array], record: Mapping[str, Any]) -> None:
        """Writes the best model so far; before the checkpoint, so that a kill between the two only repeats it."""
        facts = {"global_round": record["global_round"], "scenario": self._scenario_hash}
        with sentence_if_unwritable(self.folder.path):
            self._lock.check()
            checkpoint.write(self.folder.best_file, arrays, facts, inside=self.folder.path)

    def finish(self, arrays: Mapping[str, Array]) -> None:
        """Writes the trained model, unless it is there already."""
        run = self._provenance()
        with contextlib.suppress(WorkFailed):
            if self.folder.final_provenance() == run:
                return
        with sentence_if_unwritable(self.folder.path):
            self._lock.check()
            checkpoint.write(self.folder.final_file, arrays, {"run": run.as_dict()}, inside=self.folder.path)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Makes a folder for temporary files of the run; files of a killed run are deleted first."""
        path = self.folder.scratch_folder
        files.remove_folder(path)
        try:
            yield path
        finally:
            files.remove_folder(path)

    def _provenance(self) -> Provenance:
        return Provenance(
            scenario=self._scenario_hash,
            identity=self._identity,
            settings=self._settings,
            kernel=self._kernel,
            imports="\n".join(f"{digest} {name}" for name, digest in self._files.items()),
            records_bytes=self._records.num_bytes,
            records_sha256=self._records_hash.hexdigest(),
            has_ended=self._has_ended,
        )


def finite(value: Any) -> Any:
    """Returns a record with None for NaN and infinities, e.g. the loss of a diverged model, since JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return [finite(entry) for entry in value] if isinstance(value, list) else value


def _other_files(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """Describes how the imported files of a run differ from those of the process that resumes it; ends a sentence."""
    for name, digest in theirs.items():
        if name not in ours:
            return f"was started with {name}; resume with --import {name}."
        if ours[name] != digest:
            return f"was started with another {name}; resume with that one or choose another folder."
    name = next(name for name in ours if name not in theirs)
    return f"was started without {name}; resume without it or choose another folder."


def _write_text(path: Path, text: str) -> None:
    with files.replacing(path, partial=f"{path.stem}.partial") as file:
        file.write(text.encode())
