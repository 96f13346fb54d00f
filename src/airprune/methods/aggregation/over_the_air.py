"""The mean of updates that devices send at once, uncoded, so that the channel adds them up: FedAvg over the air.

    next = previous + Σ c_n Δ_n / Σ c_n + z,   z ~ N(0, max_n (c_n² ‖Δ_n‖² / SNR_n) / (2 S (Σ c_n)²))

`airprune.wireless.over_the_air` has the derivation. Devices invert their channels, so those with a bad one are excluded
(truncation). All that send must send the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from airprune.methods.aggregation.base import Aggregation, Array
from airprune.methods.aggregation.cohort import Cohort, CohortView, rng_at
from airprune.methods.aggregation.joint_sum import JointSum
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.settings.section import Decibel
from airprune.units import db_to_ratio
from airprune.wireless.over_the_air import mean_error_sq, noise_variance, power_shares

NAME = "over-the-air"


@dataclass(frozen=True, kw_only=True)
class AirCohort(Cohort):
    """The devices of an edge that may send at once in a round.

    Attributes:
      snr: g_n p / σ² of each.
      address: of the receiver noise.
      values_per_symbol: real values that a symbol carries.
    """

    snr: tuple[float, ...]
    address: tuple[int, ...]
    values_per_symbol: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Sent:
    """Records how the devices of an edge have sent.

    Attributes:
      power_share: power of each over its limit, in the order of the sum.  [num_members]
      mean_error_sq: expected squared error of the mean, over all weights.
    """

    power_share: Array
    mean_error_sq: float


@dataclass(eq=False)
class AirSum(JointSum):
    """The sum of updates as the channel adds them, still without noise, and the energy of each.

    Attributes:
      energy: c_n² ‖Δ_n‖² of each member.
    """

    aggregation: ClassVar[str] = NAME
    cohort: AirCohort | None = None
    energy: list[float] = field(default_factory=list)

    def begin(self, cohort: Cohort) -> None:
        assert isinstance(cohort, AirCohort)
        self.cohort = cohort

    def copy(self) -> AirSum:
        copied = super().copy()
        assert isinstance(copied, AirSum)
        return replace(copied, energy=list(self.energy))

    def add_member(
        self, state: Array, mask: Array | None, weight: float, *, is_master: bool, master: int, work: float = 1.0
    ) -> None:
        """Adds an update."""
        self.admit(master, mask)
        self.energy.append(weight**2 * float(np.square(state).sum()))
        self.add(state, mask, weight)

    def merge(self, other: MaskedSum) -> None:
        assert isinstance(other, AirSum)
        self.energy += other.energy
        super().merge(other)

    def sent(self) -> Sent:
        """Returns powers and error, from the energies and channels of the members."""
        energy, snr = self._links()
        return Sent(power_share=power_shares(energy, snr), mean_error_sq=mean_error_sq(energy, snr, **self._message()))

    def noise(self) -> Array:
        """Returns the noise of the mean, 0 where nothing was sent.  [num_state]"""
        assert self.cohort is not None
        std = noise_variance(*self._links(), **self._message()) ** 0.5
        noise = std * rng_at(self.cohort.address, "air").standard_normal(len(self.total))
        if self.mask is not None:
            noise[self.prunable] *= self.mask
        return noise

    def _links(self) -> tuple[Array, Array]:
        assert self.cohort is not None
        snr = dict(zip(self.cohort.devices, self.cohort.snr, strict=True))
        return np.array(self.energy), np.array([snr[device] for device in self.members])

    def _message(self) -> dict[str, Any]:
        assert self.cohort is not None
        pruned = 0 if self.mask is None else int(np.count_nonzero(~self.mask))
        return {
            "total_weight": self.all_weight,
            "num_values": len(self.total) - pruned,
            "values_per_symbol": self.cohort.values_per_symbol,
        }


class OverTheAir(Aggregation):
    """The mean of updates with receiver noise."""

    name = NAME
    summary = "mean of updates that devices send at once over the whole bandwidth (analogue, with receiver noise)"
    source = "after Zhu, Wang and Huang 2020, with both quadratures as Amiri and Gündüz 2020"
    Sum: ClassVar[type[MaskedSum]] = AirSum

    min_snr_db: Decibel | None = Field(
        default=0.0,
        description="truncation: devices whose SNR over the whole bandwidth is lower in a round are excluded from it; "
        "none: all that are in reach send",
    )
    both_quadratures: bool = Field(
        default=True,
        description="a symbol carries a weight on each of its two quadratures; false: one weight, at half the noise in "
        "twice the time",
    )

    @property
    def values_per_symbol(self) -> int:
        return 2 if self.both_quadratures else 1

    def weights(self, num_samples: Array) -> Array:
        """c_n = D_n, as FedAvg."""
        return np.asarray(num_samples, dtype=np.float64)

    def is_truncated(self, snr: Array) -> Array:
        """Returns which devices have too bad a channel to send.  [len(snr)] bool"""
        least = 0.0 if self.min_snr_db is None else db_to_ratio(self.min_snr_db)
        return np.asarray((snr < least) | (snr <= 0.0))

    def cohort(self, view: CohortView) -> AirCohort:
        assert view.snr is not None
        return AirCohort(
            devices=view.devices,
            snr=tuple(view.snr.tolist()),
            address=view.address,
            values_per_symbol=self.values_per_symbol,
        )

    def read(self, state: Array, previous: Array) -> Array:
        """Returns the update."""
        with np.errstate(over="ignore", invalid="ignore"):
            return state.astype(np.float64) - previous

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        assert isinstance(total, AirSum)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = previous + total.total / total.all_weight + total.noise()
        return mean.astype(previous.dtype)
