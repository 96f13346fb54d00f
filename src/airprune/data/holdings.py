"""Holds the training samples of every device, without one object per device: made only when they are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


class Holdings(Sequence[IntArray]):
    """The indices of the samples of each device: `holdings[n]` are device n's, ascending, the same at every call.

    Attributes:
      sizes: number of samples of each device.  [num_devices]
    """

    sizes: IntArray

    @abstractmethod
    def of(self, device: int) -> IntArray:
        """Returns the samples of one device."""

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, device: int) -> IntArray: ...
    @overload
    def __getitem__(self, device: slice) -> Partitioned: ...
    def __getitem__(self, device: int | slice) -> IntArray | Partitioned:
        if isinstance(device, slice):
            return Partitioned.of_parts([self.of(n) for n in range(len(self))[device]])
        return self.of(range(len(self))[device])

    def __iter__(self) -> Iterator[IntArray]:
        return map(self.of, range(len(self)))


@dataclass(frozen=True, eq=False)
class Claimed(Holdings):
    """The holdings of which only the sizes are known, since the samples are on other machines."""

    sizes: IntArray

    def of(self, device: int) -> IntArray:
        return np.broadcast_to(np.int64(0), int(self.sizes[device]))


@dataclass(frozen=True, eq=False)
class Partitioned(Holdings):
    """The holdings of a partition, in one array device after device.

    Attributes:
      samples: those of device 0, of device 1, …  [num_partitioned]
    """

    samples: IntArray
    sizes: IntArray
    _ends: IntArray

    @classmethod
    def of_sizes(cls, samples: IntArray, sizes: IntArray) -> Partitioned:
        return cls(samples, sizes, np.cumsum(sizes))

    @classmethod
    def of_parts(cls, parts: Sequence[IntArray]) -> Partitioned:
        samples = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        return cls.of_sizes(samples, np.array([len(part) for part in parts], dtype=np.int64))

    def of(self, device: int) -> IntArray:
        end = int(self._ends[device])
        return self.samples[end - int(self.sizes[device]) : end]
