"""Shares one data set between processes: files that each of them maps, so no copy is made.

shared = share(dataset, folder)           small, and picklable: send it to the workers
dataset = shared.open()                   in each worker
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from airprune.data.dataset import ARRAYS, OWNERS, Dataset
from airprune.data.input_fields import InputField
from airprune.errors import WorkFailed, raise_if_exhausted
from airprune.files import atomic_file

_RECORD = "dataset.json"


@dataclass(frozen=True, kw_only=True)
class SharedDataset:
    """The folder of a shared data set, and its fingerprint."""

    folder: Path
    fingerprint: str
    name: str
    num_classes: int
    fields: tuple[InputField, ...] = ()
    owner_order: Literal["random", "sorted", "device"] = "random"

    @property
    def _facts(self) -> dict[str, Any]:
        """Returns what belongs to the fingerprint beside the arrays."""
        return {"num_classes": self.num_classes, "fields": self.fields, "owner_order": self.owner_order}

    def open(self) -> Dataset:
        """Maps the arrays read-only. Compares the recorded fingerprint and shapes; hashes nothing again."""
        record = self._record()
        if record.get("fingerprint") != self.fingerprint:
            raise WorkFailed(
                f"{self.folder} must hold the dataset {self.name!r} with fingerprint {self.fingerprint[:12]}…, "
                f"got {str(record.get('fingerprint'))[:12]}…; another run has used the folder, save the dataset again."
            )
        arrays = {name: self._map(name, record) for name in (*ARRAYS, *(name for name in OWNERS if name in record))}
        return Dataset.trusted(fingerprint=self.fingerprint, name=self.name, **self._facts, **arrays)

    def check(self) -> None:
        """Hashes the arrays again; for files that came from elsewhere."""
        opened = self.open()
        facts = self._facts | opened.arrays
        found = Dataset(name=self.name, **facts)
        if found.fingerprint != self.fingerprint:
            raise WorkFailed(
                f"{self.folder} holds data with hash {found.fingerprint[:12]}…, "
                f"but this run's data has {self.fingerprint[:12]}…."
            )

    def _record(self) -> dict[str, Any]:
        try:
            record = json.loads((self.folder / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise_if_exhausted(error)
            raise WorkFailed(
                f"{self.folder} holds no whole shared dataset ({error}); save the dataset again."
            ) from error
        return record if isinstance(record, dict) else {}

    def _map(self, name: str, record: dict[str, Any]) -> np.ndarray:
        path = self.folder / f"{name}.npy"
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise_if_exhausted(error)
            raise WorkFailed(f"{path} cannot be mapped ({error}); save the dataset again.") from error
        described = [array.dtype.str, *array.shape]
        if described != record.get(name):
            raise WorkFailed(f"{path} must be {record.get(name)}, got {described}; save the dataset again.")
        return np.asarray(array)  # a plain array over the map: slices of np.memmap are needlessly slow


def share(dataset: Dataset, folder: Path | str) -> SharedDataset:
    """Saves the data set; this process maps the files from then on too, so that no memory holds all samples."""
    shared = save_shared(dataset, folder)
    dataset.use_arrays_of(shared.open())
    return shared


def save_shared(dataset: Dataset, folder: Path | str) -> SharedDataset:
    """Writes the arrays as .npy files, then the record that makes them valid."""
    folder = Path(folder).resolve()
    record: dict[str, Any] = {"fingerprint": dataset.fingerprint}
    try:
        (folder / _RECORD).unlink(missing_ok=True)
    except OSError as error:
        raise WorkFailed(f"{folder} cannot hold a shared dataset: {error.strerror or error}.") from error
    for name, array in dataset.arrays.items():
        with atomic_file(folder / f"{name}.npy") as file:
            np.save(file, array, allow_pickle=False)
        record[name] = [array.dtype.str, *array.shape]
    with atomic_file(folder / _RECORD) as file:
        file.write(json.dumps(record).encode())
    return SharedDataset(
        folder=folder,
        fingerprint=dataset.fingerprint,
        name=dataset.name,
        num_classes=dataset.num_classes,
        fields=dataset.fields,
        owner_order=dataset.owner_order,
    )
