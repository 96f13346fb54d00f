"""Holds the output of a planner: shares, ratios, latencies, and per edge a status, a price and a smallest deadline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from airprune.errors import Infeasible
from airprune.planning.feasibility import blocking_devices
from airprune.planning.limits import energy_j, limits_of, slowdown
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import latency_s
from airprune.wireless.channel import uplink_rate_bps
from airprune.wireless.latency import kept_weights, uplink_time_s

if TYPE_CHECKING:
    from airprune.planning.schemes.base import Scheme

Array = np.ndarray

# A latency above the deadline by less than this share of it is rounding.
DEADLINE_TOLERANCE = 1e-12


class Status(StrEnum):
    """The outcome of planning on one edge."""

    OK = "ok"
    """Every device meets the deadline within its bounds, on at most the edge's bandwidth."""
    LATE = "late"
    """A baseline that does not adapt to the deadline, and misses it."""
    INFEASIBLE_COMPUTE = "infeasible-compute"
    """A device is too slow to train even its smallest model in time, at any bandwidth."""
    INFEASIBLE_BANDWIDTH = "infeasible-bandwidth"
    """The smallest models of all devices together need more than the edge's bandwidth."""
    INFEASIBLE_ENERGY = "infeasible-energy"
    """A device's smallest model needs more than its energy budget, within the deadline."""
    OUTSIDE_BOX = "outside-box"
    """A formula gave a share or a ratio outside its bounds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The answer to a `PlanProblem`.

    Attributes:
      bandwidth_share: b_n; NaN on edges that have no plan.  [num_devices]
      pruning_ratio: ρ_n; NaN likewise.  [num_devices]
      status: a `Status` word per edge, in the order of `problem.edge_ids`.  [num_edges]
      shadow_price: λ, drop of the scheme's objective per unit of bandwidth; NaN if it has none.  [num_edges]
      min_deadline_s: the smallest deadline for which the scheme has a plan.  [num_edges]
      cpu_hz, power_w, bits_per_weight: chosen by the scheme; None if they are as given.  [num_devices]
      code: compression levels of the problem, if the scheme has chosen them.  [num_devices]
      block: block of the bandwidth, if the scheme assigns them; `problem` then has their rates.  [num_devices]
      blocking: devices that the scheme could not serve; None where bandwidth alone decides.  [num_devices]
      local_steps, first_trained: minibatch steps, and the lowest layer that is trained, if the scheme has chosen them.
        [num_devices]
      last_trained: the highest layer that is trained, if the scheme has chosen it; None: the top.  [num_devices]
      compute_s, sent_weights: compute time and upload of the chosen work; None: of the weights kept.  [num_devices]
      value, value_bound: objective of a scheme that maximises one, and what no plan exceeds: equal where the plan is
        proven to be the optimum.  [num_edges]
      options: the scheme with its options, for planning another problem in the same way.
    """

    problem: PlanProblem
    scheme: str
    bandwidth_share: Array
    pruning_ratio: Array
    status: Array
    shadow_price: Array
    min_deadline_s: Array
    cpu_hz: Array | None = None
    power_w: Array | None = None
    bits_per_weight: Array | None = None
    code: Array | None = None
    block: Array | None = None
    blocking: Array | None = None
    local_steps: Array | None = None
    first_trained: Array | None = None
    last_trained: Array | None = None
    compute_s: Array | None = None
    sent_weights: Array | None = None
    value: Array | None = None
    value_bound: Array | None = None
    options: Scheme | None = None

    @cached_property
    def latency_s(self) -> Array:
        """Returns compute plus uplink time, Eqs. (14)–(15).  [num_devices]"""
        if self.compute_s is not None and self.sent_weights is not None:
            problem = self.problem
            bits = problem.bits_per_weight if self.bits_per_weight is None else self.bits_per_weight
            rate_bps = uplink_rate_bps(self.bandwidth_share, problem.full_band_rate_bps)
            uplink_s = uplink_time_s(bits * self.sent_weights + problem.fixed_bits, rate_bps, bits_per_weight=1.0)
            return np.asarray(self.compute_s + uplink_s)
        chosen = {"cpu_hz": self.cpu_hz, "power_w": self.power_w, "bits_per_weight": self.bits_per_weight}
        return latency_s(self.problem, self.bandwidth_share, self.pruning_ratio, **chosen)

    @cached_property
    def energy_j(self) -> Array:
        """Returns the energy of compute and uplink, at full clock and power unless chosen; needs `limits`."""
        limits = limits_of(self.problem)
        cpu_hz = limits.cpu_hz_max if self.cpu_hz is None else self.cpu_hz
        weights = kept_weights(
            self.pruning_ratio, conv_weights=self.problem.conv_weights, fc_weights=self.problem.fc_weights
        )
        compute_s = self.problem.seconds_per_weight * weights + self.problem.extra_seconds
        if self.compute_s is not None:
            compute_s = self.compute_s
        compute_s = compute_s * slowdown(self.problem, cpu_hz)
        return energy_j(
            self.problem,
            compute_s=compute_s,
            uplink_s=self.latency_s - compute_s,
            cpu_hz=cpu_hz,
            power_w=limits.power_w_max if self.power_w is None else self.power_w,
        )

    @cached_property
    def edge_latency_s(self) -> Array:
        """Returns the latency of the slowest device of each edge, Eq. (16).  [num_edges]"""
        return self.problem.groups.max(self.latency_s)

    @cached_property
    def kept_fc_weights(self) -> Array:
        """Returns ⌊(1 − ρ) W_fully⌋ whole weights, so that the deadline holds after rounding; −1 without a plan.

        A billionth of a weight is tolerated: 1 − ρ = 0.3 of ten weights must keep three, not two.
        """
        kept = np.floor((1.0 - self.pruning_ratio) * self.problem.fc_weights + 1e-9)
        return np.where(np.abs(kept) <= 2.0**53, kept, -1).astype(np.int64)

    @property
    def mean_pruning_ratio(self) -> float:
        return float(np.mean(self.pruning_ratio))

    @cached_property
    def failed(self) -> Array:
        """True on edges without a usable plan; a baseline that misses the deadline has one.  [num_edges]"""
        return ~np.isin(self.status, [Status.OK, Status.LATE])

    @cached_property
    def blocking_devices(self) -> Array:
        """True for devices to drop (or to give more time) so that an infeasible edge has a plan.  [num_devices]"""
        return blocking_devices(self.problem) if self.blocking is None else self.blocking

    def raise_if_failed(
        self, *, device_names: Sequence[object] | Array | None = None, edge_names: Sequence[str] = ()
    ) -> Plan:
        """Returns this plan, or raises `Infeasible` with the first failed edge, its devices and the way out.

        Args:
          device_names: in problem order; positions unless given.
          edge_names: by edge id; the ids unless given.
        """
        if not self.failed.any():
            return self
        k = int(np.argmax(self.failed))
        edge_name = edge_names[self.problem.edge_ids[k]] if edge_names else ""
        raise Infeasible(self.failure(k, edge_name=edge_name, device_names=device_names))

    def failure(self, k: int, *, edge_name: str = "", device_names: Sequence[object] | Array | None = None) -> str:
        """Returns one sentence on why edge number `k` (a position in `problem.edge_ids`) has no plan."""
        edge = edge_name or str(self.problem.edge_ids[k])
        if self.status[k] == Status.OUTSIDE_BOX:
            return (
                f"Edge {edge}: scheme {self.scheme!r} leaves its bounds (a share outside [0, 1] or a ratio outside its "
                "limits); use scheme 'optimal', which stays within them."
            )
        blockers = np.flatnonzero(self.blocking_devices & (self.problem.edge == self.problem.edge_ids[k]))
        names = [str(n if device_names is None else device_names[int(n)]) for n in blockers]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        deadline_ms = 1e3 * float(self.problem.groups.max(self.problem.deadline_s)[k])
        why, never = _REASONS[Status(self.status[k])]
        blocked_by = f"; blocked by {shown}" if names else ""
        way_out = (
            f"the smallest deadline that works is {round_up_ms(self.min_deadline_s[k])} ms"
            if np.isfinite(self.min_deadline_s[k])
            else f"no deadline works, {never}"
        )
        return f"Edge {edge} has no plan for {deadline_ms:g} ms: {why}{blocked_by}; {way_out}."


# Why an edge has no plan, and why perhaps no deadline helps.
_NO_RATE = "a device has no uplink rate"
_REASONS = {
    Status.INFEASIBLE_COMPUTE: ("too slow to train even the smallest model in time", _NO_RATE),
    Status.INFEASIBLE_BANDWIDTH: ("the smallest models need more than the whole bandwidth", _NO_RATE),
    Status.INFEASIBLE_ENERGY: (
        "the smallest model needs more than the energy budget",
        "the budget does not suffice even at the lowest CPU frequency and power",
    ),
}


def round_up_ms(seconds: float) -> str:
    """Returns milliseconds to six digits, never below the value, so that the printed deadline is feasible."""
    text = f"{1e3 * seconds:.6g}"
    if float(text) / 1e3 < seconds:
        text = f"{float(text) * (1 + 5e-6):.6g}"
    return text
