"""The training samples of every device, without one object per device: what is not asked for is never made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


class Holdings(Sequence[IntArray]):
    """`holdings[n]` are the indices of device n's samples, ascending, the same whenever they are asked for.

    Attributes:
      sizes: how many each device has.  [num_devices]
    """

    sizes: IntArray

    @abstractmethod
    def of(self, device: int) -> IntArray:
        """The samples of one device."""

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, device: int) -> IntArray: ...
    @overload
    def __getitem__(self, device: slice) -> Dealt: ...
    def __getitem__(self, device: int | slice) -> IntArray | Dealt:
        if isinstance(device, slice):
            return Dealt.of_parts([self.of(n) for n in range(len(self))[device]])
        return self.of(range(len(self))[device])

    def __iter__(self) -> Iterator[IntArray]:
        return map(self.of, range(len(self)))


@dataclass(frozen=True, eq=False)
class Claimed(Holdings):
    """Samples of which the numbers alone are known, since they lie elsewhere."""

    sizes: IntArray

    def of(self, device: int) -> IntArray:
        return np.broadcast_to(np.int64(0), int(self.sizes[device]))


@dataclass(frozen=True, eq=False)
class Dealt(Holdings):
    """Samples in one array, device after device.

    Attributes:
      samples: of device 0, of device 1, …  [num_dealt]
      sizes: how many are of each.  [num_devices]
    """

    samples: IntArray
    sizes: IntArray
    _ends: IntArray

    @classmethod
    def of_sizes(cls, samples: IntArray, sizes: IntArray) -> Dealt:
        return cls(samples, sizes, np.cumsum(sizes))

    @classmethod
    def of_parts(cls, parts: Sequence[IntArray]) -> Dealt:
        samples = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        return cls.of_sizes(samples, np.array([len(part) for part in parts], dtype=np.int64))

    def of(self, device: int) -> IntArray:
        end = int(self._ends[device])
        return self.samples[end - int(self.sizes[device]) : end]
