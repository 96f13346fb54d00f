"""A sum that an edge gets of its devices together: it cannot tell one update from another, nor count weights."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from airprune.components.component import Array
from airprune.errors import InvalidValue
from airprune.methods.aggregation.masked_sum import MaskedSum


@dataclass(eq=False)
class JointSum(MaskedSum):
    """Masked sums of devices that all send the same weights.

    Attributes:
      aggregation: its name, for errors.
      members: the devices in the sum, in the order in which they were added.
      mask: the prunable weights that all of them sent; None: all.  [num_prunable] bool
    """

    aggregation: ClassVar[str]
    members: list[int] = field(default_factory=list)
    mask: Array | None = None

    def copy(self) -> MaskedSum:
        copied = super().copy()
        assert isinstance(copied, JointSum)
        return replace(copied, members=list(self.members))

    def admit(self, device: int, mask: Array | None) -> None:
        """Takes a device into the members; raises if it sent other weights than they did."""
        self._check_mask(mask)
        self.members.append(device)

    def leave_out(self, frozen: Array, weight: float) -> None:
        raise self._other_weights("some devices leave layers as they received them")

    def merge(self, other: MaskedSum) -> None:
        assert isinstance(other, JointSum)
        if other.members:
            self._check_mask(other.mask)
            self.members += other.members
        super().merge(other)

    def _check_mask(self, mask: Array | None) -> None:
        if self.members and not _same(self.mask, mask):
            raise self._other_weights("masks differ from device to device")
        if not self.members:
            self.mask = None if mask is None else np.array(mask, dtype=bool)

    def _other_weights(self, seen: str) -> InvalidValue:
        rule = f"must not be {self.aggregation!r} unless all devices of an edge send the same weights"
        return InvalidValue("Scenario.aggregation.edge", rule, seen, 'Example: plan.scheme = "no-pruning"')


def _same(one: Array | None, other: Array | None) -> bool:
    return one is other if one is None or other is None else bool(np.array_equal(one, other))
