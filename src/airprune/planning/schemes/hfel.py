"""Sends whole models at the least weighted sum of energy and delay: clocks and shares chosen together, full power.

After Luo et al. (HFEL), exactly: the problem of an edge is convex, and one search over its end t solves it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from airprune.planning.edges import EdgeGroups
from airprune.planning.limits import limits_of
from airprune.planning.problem import PlanProblem
from airprune.planning.roots import bracketed_roots
from airprune.planning.schemes.base import Allocation, Scheme, status_of_latency
from airprune.planning.schemes.min_max_time import soonest
from airprune.planning.tradeoff import latency_s, uplink_bits
from airprune.settings.section import NonNegative, Positive

Array = np.ndarray

# The end of a round is looked for from one part in 10¹³ after the soonest on.
_FIRST_LATER = 1e-13
# Sums of shares are no better than this.
_ROUNDING = 1e-14
# Bandwidth that is left just after the soonest end, at the least.
_LEAST_BAND = 1e-16


class Hfel(Scheme):
    """Minimises the weighted sum of energy and delay of each edge."""

    name = "hfel"
    summary = "whole models; CPU frequencies and shares with the least weighted sum of energy and delay"
    source = "after Luo et al. (HFEL)"
    adapts = False
    needs_limits = True

    energy_weight: NonNegative = Field(default=1.0, description="weight lambda_e of a joule")
    time_weight: Positive = Field(default=1.0, description="weight lambda_t of a second of delay")

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Minimises λ_e Σ (κ f³ · D/f + p u/b) + λ_t t over t, f, b with D/f + u/b ≤ t, Σ b ≤ 1, f inside its range.

        D = (a W + x) f_max are the cycles of a device and u = (q̂ W + e) / r its upload over the whole bandwidth;
        W = W(ρ_min).
        """
        limits, groups = limits_of(problem), problem.groups
        weights = problem.largest_model_weights
        soonest_s, share = soonest(problem, weights)
        ratio, cpu_hz = np.array(problem.min_pruning_ratio), np.array(limits.cpu_hz_max)
        possible = np.isfinite(soonest_s)
        if self.energy_weight > 0.0 and possible.any():
            here = groups.spread(possible)
            part = problem.subset(here)
            edges = _Edges.of(part, weights[here])
            end_s = edges.best_end_s(soonest_s[possible], self.time_weight / self.energy_weight)
            share[here], cpu_hz[here] = edges.shares_and_clocks(end_s)
        taken_s = latency_s(problem, share, ratio, cpu_hz=cpu_hz)
        return Allocation(
            share=share,
            ratio=ratio,
            status=status_of_latency(problem, share, ratio, cpu_hz=cpu_hz),
            shadow_price=np.nan,
            min_deadline_s=groups.max(taken_s),
            cpu_hz=cpu_hz,
        )


@dataclass(frozen=True, eq=False)
class _Edges:
    """The devices of some edges.  Arrays [num_devices]

    With t given, a device chooses its sending time s = u/b, and the clock that leaves it: f = D / (t − s). Its energy
    grows with s and is convex, its share u/s falls. At the optimum every device gains the same from more bandwidth:

        s² (2 κ f³ + p) = u / ω²    with one ω for the edge, Σ u/s = 1.

    A later end then saves the power Σ (u / (ω s)² − p), which is 2 κ f³ where the clock is free. To send takes p, the
    amplifier's loss included.
    """

    groups: EdgeGroups
    uplink_s: Array
    cycles: Array
    power_w: Array
    capacitance: Array
    clock_min: Array
    clock_max: Array

    @classmethod
    def of(cls, problem: PlanProblem, weights: Array) -> _Edges:
        limits = limits_of(problem)
        compute_s = problem.seconds_per_weight * weights + problem.extra_seconds
        return cls(
            groups=problem.groups,
            uplink_s=uplink_bits(problem, weights) / problem.full_band_rate_bps,
            cycles=compute_s * limits.cpu_hz_max,
            power_w=limits.power_w_max / limits.amplifier_efficiency,
            capacitance=limits.effective_capacitance,
            clock_min=limits.cpu_hz_min,
            clock_max=limits.cpu_hz_max,
        )

    def best_end_s(self, soonest_s: Array, joules_per_second: float) -> Array:
        """Returns the end at which the energy that a later one saves is worth λ_t / λ_e a second.  [num_edges]"""

        def worth(log_later: Array) -> Array:
            saved = self._saved_w(soonest_s * (1.0 + np.exp(log_later)))
            return np.log(np.maximum(saved, np.finfo(np.float64).tiny) / joules_per_second)

        high = np.zeros(len(soonest_s))
        while np.any(rising := worth(high) > 0.0):
            high = np.where(rising, high + 1.0, high)
        low = np.full(len(soonest_s), np.log(_FIRST_LATER))
        return soonest_s * (1.0 + np.exp(bracketed_roots(worth, low, high, small=100.0 * _ROUNDING)))

    def shares_and_clocks(self, end_s: Array) -> tuple[Array, Array]:
        sending_s, _ = self._sending_s(end_s)
        share = self.uplink_s / sending_s
        share = share / self.groups.spread(self.groups.sum(share))
        left_s = self.groups.spread(end_s) - self.uplink_s / share
        with np.errstate(divide="ignore"):
            clock = np.where(self.cycles > 0.0, self.cycles / np.maximum(left_s, 0.0), 0.0)
        return share, np.clip(clock, self.clock_min, self.clock_max)

    def _saved_w(self, end_s: Array) -> Array:
        sending_s, want = self._sending_s(end_s)
        return self.groups.sum(np.maximum(want / sending_s**2 - self.power_w, 0.0))

    def _sending_s(self, end_s: Array) -> tuple[Array, Array]:
        """Returns (s of every device when the bandwidth is spent, u / ω²).

        A device takes at least ω √(u p), and at most ω √(u (2 κ f_max³ + p)) more than what its full clock needs:
        between these ω is looked for.
        """
        end = self.groups.spread(end_s)
        full_w = 2.0 * self.capacitance * self.clock_max**3 + self.power_w
        needed = self.groups.sum(self.uplink_s / (end - self.cycles / self.clock_max))
        top = -np.log(self.groups.sum(np.sqrt(self.uplink_s * self.power_w)))
        bottom = np.log(np.maximum(1.0 - needed, _LEAST_BAND) / self.groups.sum(np.sqrt(self.uplink_s * full_w)))

        def spent(log_level: Array) -> Array:
            return np.log(self.groups.sum(self.uplink_s / self._sending_at(end, self._want(log_level))))

        want = self._want(bracketed_roots(spent, bottom, top, small=_ROUNDING))
        return self._sending_at(end, want), want

    def _want(self, log_level: Array) -> Array:
        return self.uplink_s * np.exp(-2.0 * self.groups.spread(log_level))

    def _sending_at(self, end: Array, want: Array) -> Array:
        """Returns s with s² (2 κ f³ + p) = u/ω², between the times that the slowest and the full clock leave.

        The left side is convex in s, so that Newton falls to the root from above.
        """
        slack_s = np.sqrt(want / self.power_w)
        latest_s = end - self.cycles / self.clock_max
        s = np.minimum(slack_s, latest_s)
        for _ in range(60):
            left_s = np.maximum(end - s, np.finfo(np.float64).tiny)
            compute_w = 2.0 * self.capacitance * (self.cycles / left_s) ** 3
            slope = s * (2.0 * (compute_w + self.power_w) + 3.0 * s * compute_w / left_s)
            lower = s - np.maximum(s * s * (compute_w + self.power_w) - want, 0.0) / slope
            if np.all(lower >= s * (1.0 - 1e-14)):
                break
            s = lower
        with np.errstate(divide="ignore", invalid="ignore"):
            slowest_s = np.where(self.cycles > 0.0, end - self.cycles / self.clock_min, end)
        return np.where(slack_s <= slowest_s, np.minimum(slack_s, latest_s), np.maximum(s, slowest_s))
