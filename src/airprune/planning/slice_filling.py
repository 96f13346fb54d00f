"""Finds the shares that minimise Σ c ρ where a device's power lies on its slice: R(b) = b B log2(1 + γ/b), concave.

A share carries W(b) = (D R − e) / (a R + q̂) weights, concave in R and so in b. At the optimum all devices of an edge
that are within their bounds save the same pruning per bandwidth, the price

    λ = c W'(b) / W_fully = c (D q̂ + a e) R'(b) / (W_fully (a R(b) + q̂)²).

With v = ln(1 + γ/b) the logarithm of the right side rises steadily in ln v, with a slope of at least 1. So every device
answers a price by a safeguarded Newton step in ln v, and every edge finds the price that spends its bandwidth by
another one in ln λ, with a bisection where it would leave its bracket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.planning.edges import EdgeGroups
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import ROUNDING_MARGIN
from airprune.wireless.slice_noise import growth, nats, snr_of_rate

Array = np.ndarray

_MAX_PRICES, _MAX_STEPS = 200, 100
# Of the bandwidth and of v: steps this small leave errors of their square.
_SPENT, _SETTLED = 1e-8, 1e-6


def fill_slices(problem: PlanProblem, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Returns (shares within their bounds, price λ of each edge); NaN on edges that have no plan.

    [num_devices] in problem order, [num_edges]
    """
    groups = problem.groups
    demand = _Demand.of(problem, lower, upper)
    lowest_sum, highest_sum = groups.sum_arranged(demand.lower), groups.sum_arranged(demand.upper)
    has_plan = lowest_sum <= 1.0
    budget = np.maximum(1.0 - ROUNDING_MARGIN, lowest_sum)
    slack = highest_sum <= budget
    with np.errstate(all="ignore"):  # edges without a plan compute along
        share, log_price = _spend(groups, demand, budget, has_plan & ~slack)
        price = np.where(slack, 0.0, np.exp(log_price))
    share = np.where(groups.repeat(slack), demand.upper, share)
    share = np.where(groups.repeat(has_plan), share, np.nan)
    return groups.restore(share), np.where(has_plan, price, np.nan)


@dataclass(frozen=True, eq=False)
class _Demand:
    """The shares that devices want at a price, sorted by edge.  [num_devices]

    Attributes:
      free: whether a device has a range of shares.
      log_scale: ln of c (D q̂ + a e) B / (W_fully ln 2).
      top: a B γ / ln 2: a R(b) is this times v / (e^v − 1).
      bits: q̂.
      v_low, v_high: v at the upper and at the lower share.
    """

    lower: Array
    upper: Array
    free: Array
    snr: Array
    log_scale: Array
    top: Array
    bits: Array
    v_low: Array
    v_high: Array

    @classmethod
    def of(cls, problem: PlanProblem, lower: Array, upper: Array) -> _Demand:
        p, arrange = problem, problem.groups.arrange
        band = np.asarray(p.slice_bandwidth_hz) / np.log(2.0)
        snr = snr_of_rate(p.full_band_rate_bps, p.slice_bandwidth_hz)
        with np.errstate(divide="ignore", invalid="ignore"):
            bend = p.time_for_weights_s * p.bits_per_weight + p.seconds_per_weight * p.fixed_bits
            log_scale = np.log(p.objective_weight * bend * band / p.fc_weights)
        free = (upper > lower) & np.isfinite(log_scale) & (snr > 0.0)
        return cls(
            lower=arrange(lower),
            upper=arrange(upper),
            free=arrange(free),
            snr=arrange(snr),
            log_scale=arrange(np.where(free, log_scale, 0.0)),
            top=arrange(p.seconds_per_weight * band * snr),
            bits=arrange(p.bits_per_weight),
            v_low=arrange(np.where(free, nats(upper, snr), 1.0)),
            v_high=arrange(np.where(free, nats(lower, snr), 1.0)),
        )

    def log_price(self, v: Array, some: Array | slice = slice(None)) -> tuple[Array, Array]:
        """Returns (ln λ at which some devices want the share of v, its slope by ln v)."""
        shrunk = -np.expm1(-v)  # 1 − e^−v
        slow = growth(v, shrunk)
        each = v / shrunk
        compute = self.top[some] * each * (1.0 - shrunk)  # a R
        total = compute + self.bits[some]
        slope = v * shrunk / slow + 2.0 * (compute / total) * (each - 1.0)
        return self.log_scale[some] + np.log(slow / total**2), slope

    def at(self, log_price: Array, v: Array, cheapest: Array, dearest: Array) -> tuple[Array, Array]:
        """Returns (v at a price per device, −db / d ln λ there: 0 at the bounds), searched from `v` on.

        Args:
          cheapest, dearest: prices at which a device takes its upper and its lower share.
        """
        some = np.flatnonzero(self.free & (cheapest < log_price) & (log_price < dearest))
        v = np.where(log_price <= cheapest, self.v_low, np.where(log_price >= dearest, self.v_high, v))
        fall = np.zeros_like(v)
        low, high, wanted = self.v_low[some], self.v_high[some], log_price[some]
        for _ in range(_MAX_STEPS):
            before = v[some]
            found, slope = self.log_price(before, some)
            short = wanted - found
            low, high = np.where(short > 0.0, before, low), np.where(short < 0.0, before, high)
            after = before * np.exp(short / slope)
            after = np.where((after >= low) & (after <= high), after, np.sqrt(low * high))
            v[some] = after
            fall[some] = (self.snr[some] / np.expm1(after)) * after / (-np.expm1(-after) * slope)
            far = np.abs(after - before) > _SETTLED * after  # most have arrived after a step or two
            if not far.any():
                break
            some, low, high, wanted = some[far], low[far], high[far], wanted[far]
        return v, fall

    def share(self, v: Array) -> Array:
        """Returns b = γ / (e^v − 1) within its bounds."""
        return np.where(self.free, np.clip(self.snr / np.expm1(v), self.lower, self.upper), self.lower)


def _spend(groups: EdgeGroups, demand: _Demand, budget: Array, open_edges: Array) -> tuple[Array, Array]:
    """Returns (shares sorted by edge, ln λ per edge) with Σ b equal to the budget."""
    cheapest, dearest = demand.log_price(demand.v_low)[0], demand.log_price(demand.v_high)[0]
    low = np.minimum.reduceat(np.where(demand.free, cheapest, np.inf), groups.starts)
    high = np.maximum.reduceat(np.where(demand.free, dearest, -np.inf), groups.starts)
    room = (budget - groups.sum_arranged(demand.lower)) / groups.sum_arranged(demand.upper - demand.lower)
    start = nats(demand.lower + groups.repeat(room) * (demand.upper - demand.lower), demand.snr)
    v = np.clip(start, demand.v_low, demand.v_high)
    count = np.maximum(groups.sum_arranged(demand.free.astype(np.float64)), 1.0)
    log_price = groups.sum_arranged(np.where(demand.free, demand.log_price(v)[0], 0.0)) / count
    log_price = np.where(open_edges, np.clip(log_price, low, high), 0.0)
    for _ in range(_MAX_PRICES):
        v, price_slope = demand.at(groups.repeat(log_price), v, cheapest, dearest)
        share = demand.share(v)
        spent, fall = groups.sum_arranged(share), groups.sum_arranged(price_slope)
        gap = np.where(open_edges, spent - budget, 0.0)
        far = np.abs(gap) > _SPENT * budget
        if not far.any():
            break
        low, high = np.where(gap > 0.0, log_price, low), np.where(gap < 0.0, log_price, high)
        nearer = log_price + np.log(spent / budget) * (spent / fall)
        nearer = np.where((nearer > low) & (nearer < high), nearer, 0.5 * (low + high))
        log_price = np.where(far, nearer, log_price)
    move = np.where(fall > 0.0, gap / fall, 0.0)
    share = np.clip(share - groups.repeat(move) * price_slope, demand.lower, demand.upper)
    return share, log_price + move
