"""Training and test samples as frozen arrays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airprune.checks import whole_number
from airprune.errors import InvalidValue

ARRAYS = ("train_x", "train_y", "test_x", "test_y")
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """What a federation learns from, and what it is judged by.

    The arrays are read-only. Those given as writable are copied, so that nobody can change them later.

    Attributes:
      name: for people.
      train_x: float32; images are [num_train, channels, height, width] in [0, 1].  [num_train, *feature_shape]
      train_y: int64 in [0, num_classes).  [num_train]
      test_x: [num_test, *feature_shape]
      test_y: [num_test]
    """

    name: str
    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    num_classes: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidValue("Dataset.name", "must be a non-empty name", repr(self.name))
        num_classes = whole_number("Dataset.num_classes", self.num_classes, at_least=2)
        object.__setattr__(self, "num_classes", num_classes)
        for part in ("train", "test"):
            x = _features(f"Dataset.{part}_x", getattr(self, f"{part}_x"))
            y = _labels(f"Dataset.{part}_y", getattr(self, f"{part}_y"), num_classes)
            if len(x) != len(y):
                raise InvalidValue(f"Dataset.{part}_y", f"must have one label for each of {len(x)} samples", len(y))
            object.__setattr__(self, f"{part}_x", _frozen(x, np.float32))
            object.__setattr__(self, f"{part}_y", _frozen(y, np.int64))
        if self.test_x.shape[1:] != self.feature_shape:
            rule = f"must have samples of shape {self.feature_shape} as in train_x"
            raise InvalidValue("Dataset.test_x", rule, self.test_x.shape[1:])

    @classmethod
    def trusted(cls, *, fingerprint: str, **fields: Any) -> Dataset:
        """Around arrays that have passed the checks before; reads none of them, so a memory map stays on disk."""
        dataset = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(dataset, name, value)
        dataset.__dict__["fingerprint"] = fingerprint
        return dataset

    @property
    def feature_shape(self) -> tuple[int, ...]:
        return self.train_x.shape[1:]

    @property
    def num_train(self) -> int:
        return len(self.train_y)

    @property
    def num_test(self) -> int:
        return len(self.test_y)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the arrays, their shapes and the number of classes; the name does not enter."""
        digest = hashlib.sha256(f"airprune dataset, {self.num_classes} classes".encode())
        for name in ARRAYS:
            array = getattr(self, name)
            digest.update(f"; {name} {array.dtype.str} {array.shape} ".encode())
            digest.update(array.data)
        return digest.hexdigest()


def _features(field: str, value: Any) -> np.ndarray:
    x = np.asarray(value)
    if x.dtype.kind not in "fiub":
        raise InvalidValue(field, "must hold numbers", f"dtype {x.dtype}")
    if x.ndim < 2 or x.size == 0:
        raise InvalidValue(field, "must be [samples, features…] with at least one of each", f"shape {x.shape}")
    for start in range(0, len(x), _ROWS_AT_ONCE):  # in pieces: no second array as large as the data
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is refused below
            good = np.isfinite(x[start : start + _ROWS_AT_ONCE].astype(np.float32, copy=False))
        if not good.all():
            row = start + int(np.argmin(good.reshape(len(good), -1).all(axis=1)))
            raise InvalidValue(field, "must be finite in float32", f"another value in sample {row}")
    return x


def _labels(field: str, value: Any, num_classes: int) -> np.ndarray:
    y = np.asarray(value)
    if y.dtype.kind not in "iub" or y.ndim != 1:
        got = f"dtype {y.dtype}, shape {y.shape}"
        raise InvalidValue(field, "must be a vector of whole numbers", got, "One class index per sample, not one-hot.")
    bad = (y < 0) | (y >= num_classes)
    if bad.any():
        first = int(np.argmax(bad))
        raise InvalidValue(field, f"must be in [0, {num_classes - 1}]", f"{y[first]} for sample {first}")
    return y


def _frozen(array: np.ndarray, dtype: type) -> np.ndarray:
    frozen: np.ndarray = np.ascontiguousarray(array, dtype=dtype)
    if frozen.flags.writeable:
        if np.shares_memory(frozen, array):
            frozen = frozen.copy()
        frozen.flags.writeable = False
    return frozen
