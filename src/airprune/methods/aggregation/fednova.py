"""FedNova: every update counts as one step of its device, so that who makes more steps does not pull harder.

    next = previous + τ_eff Σ p_n (w_n − previous) / ‖a_n‖₁,   τ_eff = Σ p_n ‖a_n‖₁,   p_n = D_n / Σ D

‖a_n‖₁ is the sum of the factors with which the gradients of a device enter its update: its number of local steps, more
with momentum. Where it is the same for all devices, this is the data-weighted mean. A child that is no device, such as
an edge at the cloud, has ‖a‖₁ = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.methods.aggregation.data_weighted import DataWeighted
from airprune.methods.aggregation.masked_sum import Array, MaskedSum


@dataclass(eq=False)
class NormalisedSum(MaskedSum):
    """The masked sum of updates per step.

    Attributes:
      work: Σ c_n ‖a_n‖₁.
    """

    work: float = 0.0

    def add(self, state: Array, mask: Array | None, weight: float = 1.0) -> None:
        """Adds a child that is no device."""
        self.add_member(state, mask, weight, is_master=True, master=-1)

    def add_member(
        self, state: Array, mask: Array | None, weight: float, *, is_master: bool, master: int, work: float = 1.0
    ) -> None:
        super().add(state / work, mask, weight)
        self.work += weight * work

    def merge(self, other: MaskedSum) -> None:
        super().merge(other)
        assert isinstance(other, NormalisedSum)
        self.work += other.work


class FedNova(DataWeighted):
    """Normalised averaging."""

    name = "fednova"
    summary = "data-weighted mean of the updates per local step, times the mean number of local steps"
    source = "FedNova (Wang et al. 2020) for SGD with momentum, as in the authors' code"
    Sum = NormalisedSum
    by_work = True

    def read(self, state: Array, previous: Array) -> Array:
        """Returns the update."""
        return state.astype(np.float64) - previous

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        assert isinstance(total, NormalisedSum)
        if total.all_weight <= 0.0:
            return previous
        per_step = total.mean(np.zeros(len(previous)))
        return (previous + total.work / total.all_weight * per_step).astype(previous.dtype)
