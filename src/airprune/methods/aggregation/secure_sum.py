"""The mean of updates whose sum alone is known to the edge: pairwise masks that cancel, after Bonawitz et al. 2017.

    next = previous + s / n Σ x_n,   x_n = round(Δ_n / s) as whole numbers modulo 2^k

Devices hide x_n behind masks that cancel in the sum; `airprune.methods.secure` has the exchange. All devices must send
the same weights. With fewer devices than the threshold the sum cannot be opened, and the edge keeps its model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.errors import InvalidValue
from airprune.methods.aggregation.base import Aggregation, Array
from airprune.methods.aggregation.cohort import Cohort, CohortView
from airprune.methods.aggregation.joint_sum import JointSum
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.methods.secure.cohort import SecureCohort
from airprune.methods.secure.fixed_point import LEAST_VALUE_BITS, FixedPoint, headroom_bits
from airprune.settings.section import Positive

# With one alone the sum is its update.
LEAST_DEVICES = 2
NAME = "secure-sum"


@dataclass(eq=False)
class HiddenSum(JointSum):
    """The sum of masked words modulo 2^k, and whose they are.

    Attributes:
      words: Σ of the words of the devices in it.  [num_state]
    """

    aggregation: ClassVar[str] = NAME
    cohort: SecureCohort | None = None
    words: Array = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    def begin(self, cohort: Cohort) -> None:
        assert isinstance(cohort, SecureCohort)
        self.cohort, self.words = cohort, np.zeros(len(self.total), dtype=cohort.fixed.dtype)

    def copy(self) -> HiddenSum:
        copied = super().copy()
        assert isinstance(copied, HiddenSum)
        return replace(copied, words=self.words.copy())

    def add_member(
        self, state: Array, mask: Array | None, weight: float, *, is_master: bool, master: int, work: float = 1.0
    ) -> None:
        """Adds the masked words of an update, or those that a real device has sent."""
        assert self.cohort is not None
        self.admit(master, mask)
        words = state if is_masked(state) else self.cohort.masked(master, self.cohort.fixed.whole(state))
        self.words = self.words + words
        self.count(weight, is_dense=mask is None)
        if mask is not None:
            self.masked_count += mask

    def merge(self, other: MaskedSum) -> None:
        assert isinstance(other, HiddenSum)
        if other.members:
            self.words = self.words + other.words
        super().merge(other)


def is_masked(state: Array) -> bool:
    """True for the masked words of a real device, False for a model."""
    return state.dtype.kind == "u"


class SecureSum(Aggregation):
    """The mean of updates that the edge cannot see."""

    name = NAME
    summary = "mean of the devices' updates of which the edge learns the sum alone (pairwise masks)"
    source = "after Bonawitz et al. 2017, for edges that follow the protocol"
    Sum: ClassVar[type[MaskedSum]] = HiddenSum

    limit: Positive = Field(
        default=1.0, description="R: entries of an update beyond -R and R are cut, those within rounded to fixed point"
    )
    threshold: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.5,
        description="of an edge's n planned devices, floor(threshold n) + 1 and at least 2 open the sum; with fewer "
        "uploads the edge keeps its model; as many colluding devices open the update of another",
    )
    masked: bool = Field(
        default=True,
        description="compute keys, shares and masks; false: the same sums in the clear, to save the simulation's time; "
        "results, bits and times are the same",
    )

    def cohort(self, view: CohortView) -> SecureCohort:
        devices, word_bits = view.devices, view.word_bits
        least = max(int(self.threshold * len(devices)) + 1, LEAST_DEVICES)
        fixed = FixedPoint(int(word_bits), len(devices), self.limit)
        if fixed.value_bits < LEAST_VALUE_BITS or word_bits != int(word_bits) or word_bits > 64:
            fewest = LEAST_VALUE_BITS + headroom_bits(len(devices))
            rule = f"must be a whole number from {fewest} to 64 for secure sums of {len(devices)} devices"
            raise InvalidValue("Scenario.plan.bits_per_weight", rule, f"{word_bits:g}", "Example: bits_per_weight = 32")
        secret = view.rng("secure").bytes(32)
        return SecureCohort(devices=devices, threshold=least, fixed=fixed, secret=secret, is_masked=self.masked)

    def read(self, state: Array, previous: Array) -> Array:
        """Returns the update; masked words as they are."""
        if is_masked(state):
            return state
        with np.errstate(over="ignore", invalid="ignore"):
            return state.astype(np.float64) - previous

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        assert isinstance(total, HiddenSum) and total.cohort is not None
        count, cohort = len(total.members), total.cohort
        if count < cohort.threshold:
            return previous
        whole = cohort.opened(total.words, sorted(total.members))
        return (previous + whole * (cohort.fixed.step / count)).astype(previous.dtype)
