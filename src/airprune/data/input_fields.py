"""Packs samples of several named inputs, such as tokens and their mask, into one array, and says how to unpack it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from airprune.errors import InvalidValue

# The largest whole number up to which float32 has all of them.
MOST_EXACT = 2**24


@dataclass(frozen=True, kw_only=True)
class InputField:
    """One named input of a model.

    Attributes:
      shape: of one sample.
      is_whole: True for tokens and other whole numbers, which a model gets as int64.
    """

    name: str
    shape: tuple[int, ...]
    is_whole: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def fields_of(field: str, x: Mapping[str, np.ndarray]) -> tuple[InputField, ...]:
    """Returns the fields of a dictionary of arrays, in its order; refuses arrays of different lengths."""
    found = []
    lengths = {name: len(array) if array.ndim else None for name, array in x.items()}
    if not x or None in lengths.values() or len(set(lengths.values())) != 1:
        got = ", ".join(f"{name}: {length}" for name, length in lengths.items()) or "an empty dictionary"
        raise InvalidValue(field, "must have one entry of each input for every sample", got)
    for name, array in x.items():
        if array.dtype.kind not in "fiub":
            raise InvalidValue(field, f"must hold numbers in the input {name!r}", f"dtype {array.dtype}")
        found.append(InputField(name=str(name), shape=array.shape[1:], is_whole=array.dtype.kind in "iu"))
    return tuple(found)


def packed(field: str, x: Mapping[str, np.ndarray], fields: Sequence[InputField]) -> np.ndarray:
    """Returns the inputs side by side: int64 if all are whole, else float32.  [num_samples, Σ sizes]"""
    all_whole = all(one.is_whole for one in fields)
    columns = []
    for one in fields:
        array = x[one.name]
        if one.is_whole and not all_whole and array.size and max(abs(int(array.min())), int(array.max())) > MOST_EXACT:
            rule = f"must hold whole numbers up to {MOST_EXACT:,} in the input {one.name!r} beside real ones"
            raise InvalidValue(field, rule, f"{int(array.max()):,}")
        columns.append(array.reshape(len(array), one.size).astype(np.int64 if all_whole else np.float32))
    return np.concatenate(columns, axis=1)
