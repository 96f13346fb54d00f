"""Holds training and test samples as frozen arrays."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airprune.checks import whole_number
from airprune.data.input_fields import InputField
from airprune.errors import InvalidValue

ARRAYS = ("train_x", "train_y", "test_x", "test_y")
# The target of a position that has none, for the loss `tokens`.
IGNORED = -100
OWNERS = ("train_owner", "test_owner")
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """The training and test samples of a federation.

    The arrays are read-only. Those given as writable are copied, so that they cannot change later.

    Attributes:
      name: for display.
      train_x: float32, or int64 for tokens; images are [num_train, channels, height, width] in [0, 1].
        [num_train, *feature_shape]
      train_y: int64 in [0, num_classes), one of a sample or one of each of its positions, as of tokens, where IGNORED
        stands for none; without classes float32 or int64.  [num_train, *target_shape]
      test_x: [num_test, *feature_shape]
      test_y: [num_test, *target_shape]
      num_classes: 0 if targets are not classes.
      train_owner, test_owner: number of the person, role or place that each sample comes from; None if unknown. The
        partition "natural" keeps the samples of an owner together.  [num_train], [num_test] int64
      fields: the named inputs that x holds side by side, for models that take a dictionary; none for one array.
      class_names: names of the classes 0, 1, …; empty if they have none.
      owner_names: names of the owners 0, 1, …; empty if they are numbers.
      owner_order: how "natural" gives owners to devices. "random": by the seed; "sorted": in ascending order where
        there are as many as devices, else by the seed; "device": owner n to device n, of which there are as many.
    """

    name: str
    train_x: NDArray[np.float32] | NDArray[np.int64]
    train_y: NDArray[np.int64] | NDArray[np.float32]
    test_x: NDArray[np.float32] | NDArray[np.int64]
    test_y: NDArray[np.int64] | NDArray[np.float32]
    num_classes: int
    train_owner: NDArray[np.int64] | None = None
    test_owner: NDArray[np.int64] | None = None
    fields: tuple[InputField, ...] = ()
    class_names: tuple[str, ...] = ()
    owner_names: tuple[str, ...] = ()
    owner_order: Literal["random", "sorted", "device"] = "random"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidValue("Dataset.name", "must be a non-empty name", repr(self.name))
        num_classes = self.num_classes
        if num_classes != 0:
            num_classes = whole_number("Dataset.num_classes", num_classes, at_least=2)
        object.__setattr__(self, "num_classes", num_classes)
        for part in ("train", "test"):
            x = _numbers(f"Dataset.{part}_x", getattr(self, f"{part}_x"))
            if x.ndim < 2 or x.size == 0:
                rule = "must be [samples, features…] with at least one of each"
                raise InvalidValue(f"Dataset.{part}_x", rule, f"shape {x.shape}")
            field = f"Dataset.{part}_y"
            y = getattr(self, f"{part}_y")
            y = _numbers(field, y) if num_classes == 0 else _labels(field, y, num_classes)
            if y.ndim == 0 or len(x) != len(y):
                got = len(y) if y.ndim else "a single number"
                raise InvalidValue(field, f"must have one label for each of {len(x)} samples", got)
            object.__setattr__(self, f"{part}_x", _frozen(x.astype(np.float32) if x.dtype == bool else x))
            object.__setattr__(self, f"{part}_y", _frozen(y))
        for name in ("x", "y"):
            train, test = getattr(self, f"train_{name}"), getattr(self, f"test_{name}")
            if (test.shape[1:], test.dtype) != (train.shape[1:], train.dtype):
                kind = "" if test.dtype == train.dtype else f" and type {train.dtype}"
                rule = f"must have samples of shape {train.shape[1:]}{kind} as in train_{name}"
                got = test.shape[1:] if test.dtype == train.dtype else f"{test.shape[1:]} and {test.dtype}"
                raise InvalidValue(f"Dataset.test_{name}", rule, got)
        if self.train_owner is None and self.test_owner is not None:
            raise InvalidValue("Dataset.train_owner", "must be given with the test part's owners", None)
        for part in ("train", "test"):
            if (owner := getattr(self, f"{part}_owner")) is not None:
                owner = _owners(f"Dataset.{part}_owner", owner, len(getattr(self, f"{part}_y")))
                object.__setattr__(self, f"{part}_owner", _frozen(owner))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Returns all arrays that it has, by name."""
        found = {name: getattr(self, name) for name in (*ARRAYS, *OWNERS)}
        return {name: array for name, array in found.items() if array is not None}

    @classmethod
    def trusted(cls, *, fingerprint: str, **fields: Any) -> Dataset:
        """Wraps arrays that have passed the checks before; reads none of them, so a memory map stays on disk."""
        dataset = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(dataset, name, value)
        dataset.__dict__["fingerprint"] = fingerprint
        return dataset

    def use_arrays_of(self, equal: Dataset) -> None:
        """Replaces its arrays by those of an equal data set, such as memory maps, so that memory holds none twice."""
        if equal.fingerprint != self.fingerprint:
            raise InvalidValue("Dataset.use_arrays_of", "must be given an equal data set", equal.name)
        for name, array in equal.arrays.items():
            object.__setattr__(self, name, array)

    @property
    def feature_shape(self) -> tuple[int, ...]:
        return self.train_x.shape[1:]

    @property
    def num_outputs(self) -> int:
        """Number of outputs of a model: a score per class, or the numbers of a sample's target."""
        return self.num_classes or math.prod(self.train_y.shape[1:])

    @property
    def num_train(self) -> int:
        return len(self.train_y)

    @property
    def num_test(self) -> int:
        return len(self.test_y)

    def some(self, train: NDArray[np.int64] | slice, test: NDArray[np.int64] | slice) -> Dataset:
        """Returns the data set of these training and test samples alone."""
        parts = {"train": train, "test": test}
        chosen: dict[str, Any] = {name: array[parts[name.partition("_")[0]]] for name, array in self.arrays.items()}
        return dataclasses.replace(self, **chosen)

    @cached_property
    def fingerprint(self) -> str:
        """Returns the SHA-256 of the arrays, their shapes and the number of classes, without the name."""
        digest = hashlib.sha256(f"airprune dataset, {self.num_classes} classes".encode())
        for name, array in self.arrays.items():
            digest.update(f"; {name} {array.dtype.str} {array.shape} ".encode())
            digest.update(array.data)
        if self.fields or self.owner_order != "random":
            digest.update(f"; fields {self.fields}, owners {self.owner_order}".encode())
        return digest.hexdigest()


def _numbers(field: str, value: Any) -> np.ndarray:
    x = np.asarray(value)
    if x.dtype.kind not in "fiub":
        raise InvalidValue(field, "must hold numbers", f"dtype {x.dtype}")
    if x.dtype == np.uint64 and x.size and x.max() > np.iinfo(np.int64).max:
        raise InvalidValue(field, "must fit 64 bits with a sign", x.max())
    for start in range(0, len(x) if x.dtype.kind == "f" else 0, _ROWS_AT_ONCE):  # in pieces: no second array as large
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is refused below
            good = np.isfinite(x[start : start + _ROWS_AT_ONCE].astype(np.float32, copy=False))
        if not good.all():
            row = start + int(np.argmin(good.reshape(len(good), -1).all(axis=1)))
            raise InvalidValue(field, "must be finite in float32", f"another value in sample {row}")
    return x


def _labels(field: str, value: Any, num_classes: int) -> np.ndarray:
    y = np.asarray(value)
    if y.dtype.kind not in "iub" or y.ndim not in (1, 2):
        got = f"dtype {y.dtype}, shape {y.shape}"
        way_out = 'One class index per sample, not one-hot; numbers need a loss of numbers, e.g. loss="mse".'
        raise InvalidValue(field, "must be a vector of whole numbers, or have one per position", got, way_out)
    bad = (y < 0) | (y >= num_classes)
    if y.ndim == 2 and y.dtype.kind == "i":
        bad &= y != IGNORED
    if bad.any():
        first = int(np.argmax(bad))
        raise InvalidValue(
            field, f"must be in [0, {num_classes - 1}]", f"{y.flat[first]} for sample {first // (y.size // len(y))}"
        )
    return y


def _owners(field: str, value: Any, num_samples: int) -> np.ndarray:
    owner = np.asarray(value)
    if owner.dtype.kind not in "iu" or owner.shape != (num_samples,) or owner.min() < 0:
        got = f"dtype {owner.dtype}, shape {owner.shape}"
        raise InvalidValue(field, f"must be a whole number ≥ 0 for each of {num_samples} samples", got)
    return owner


def _frozen(array: np.ndarray) -> np.ndarray:
    """Returns a read-only array of its own: real numbers as float32, whole ones as int64."""
    frozen: np.ndarray = np.ascontiguousarray(array, dtype=np.float32 if array.dtype.kind == "f" else np.int64)
    if frozen.flags.writeable:
        if np.shares_memory(frozen, array):
            frozen = frozen.copy()
        frozen.flags.writeable = False
    return frozen
