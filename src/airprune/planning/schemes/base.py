"""Defines a scheme, and the parts that schemes share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from airprune.components.component import Component
from airprune.errors import InvalidValue
from airprune.planning.interference import plan_with_interference
from airprune.planning.limits import limits_of
from airprune.planning.plan import DEADLINE_TOLERANCE, Plan, Status
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import latency_s, rate_of_share, share_for_weights
from airprune.wireless.latency import device_latency_s

Array = np.ndarray


class Scheme(Component):
    """The base of schemes, each a way to allocate bandwidth shares b and pruning ratios ρ.

    Attributes:
      adapts: whether its plans meet the deadline; a baseline that does not adapt may be `late`.
      needs_limits: whether it chooses clock and power, and so needs `PlanProblem.limits`.
      takes_slices: whether it plans where rates are not linear in the share, `PlanProblem.slice_bandwidth_hz`.
      takes_groups: whether it plans devices that send at once, `PlanProblem.mimo_group`.
      chooses_codes: whether it chooses compression levels from `PlanProblem.ladder`, if there is one.
      fits_codes: whether it takes the largest of `PlanProblem.codes` that fits, if there are any.
      chooses_sizes: whether it chooses sub-models from `PlanProblem.sizes`, if there are any.
      chooses_work: whether it chooses trained parts and local steps from `PlanProblem.work`, if there is one.
    """

    adapts: ClassVar[bool] = True
    needs_limits: ClassVar[bool] = False
    takes_slices: ClassVar[bool] = False
    takes_groups: ClassVar[bool] = False
    chooses_codes: ClassVar[bool] = False
    fits_codes: ClassVar[bool] = False
    chooses_sizes: ClassVar[bool] = False
    chooses_work: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.owner = f"Scenario.plan.{cls.name}"  # also for options of a script, without a scenario

    @abstractmethod
    def allocate(self, problem: PlanProblem) -> Allocation:
        """Returns the shares and ratios of every device."""

    def best_deadline_s(self, problem: PlanProblem, beside_s: Array | float = 0.0) -> float | None:
        """Returns the deadline of a round with `plan.deadline_s = "auto"`; None: as its compression levels say.

        Args:
          problem: devices without uplink are ignored.
          beside_s: what a round takes at each device's edge beside its latency.  [num_devices] or a number
        """
        return None

    def blocks(self, num_devices: int) -> int | None:
        """Returns the number of bandwidth blocks of an edge with so many devices; None: shared without blocks."""
        return None

    @classmethod
    def plans_fleets(cls) -> bool:
        """True if it needs only rates and compute times: neither limits nor compression levels, nor work to choose."""
        return not (cls.needs_limits or cls.chooses_codes or cls.fits_codes or cls.chooses_work)

    def plan(self, problem: PlanProblem) -> Plan:
        """Returns the scheme's plan; on edges that failed, shares and ratios are NaN."""
        if self.needs_limits:
            limits_of(problem)
        if problem.slice_bandwidth_hz is not None and not self.takes_slices:
            raise InvalidValue(
                "radio.slice_noise",
                f"must be false with scheme {self.name!r}, which needs rates that are linear in the share",
                True,
                'Use plan.scheme = "optimal", "min-max", "min-max-time", "equal-resolved" or "no-pruning"',
            )
        if problem.mimo_group is not None and not self.takes_groups:
            raise InvalidValue(
                "radio.num_streams",
                f"must be 1 with scheme {self.name!r}, which gives every device a share of its own",
                "devices that send at once",
                'Use plan.scheme = "optimal", "min-max", "min-max-time", "equal-resolved" or "no-pruning"',
            )
        if problem.interference is not None:
            if self.needs_limits or problem.block_rate_bps is not None:
                rule = f"must be none with scheme {self.name!r}, which chooses powers or blocks"
                raise InvalidValue("radio.reuse", rule, "interference", 'Use plan.scheme = "optimal" or another one')
            return plan_with_interference(problem, self.plan)
        return self.planned(problem, self.allocate(problem))

    def planned(self, problem: PlanProblem, allocation: Allocation) -> Plan:
        """Returns the plan that an allocation makes."""
        failed = ~np.isin(allocation.status, [Status.OK, Status.LATE, Status.OUTSIDE_BOX])
        no_plan = problem.groups.spread(failed)
        return Plan(
            problem=problem if allocation.block is None else problem.on_blocks(allocation.block),
            scheme=self.name,
            bandwidth_share=np.where(no_plan, np.nan, allocation.share),
            pruning_ratio=np.where(no_plan, np.nan, allocation.ratio),
            status=allocation.status,
            shadow_price=np.where(failed, np.nan, allocation.shadow_price),
            min_deadline_s=allocation.min_deadline_s,
            cpu_hz=_unless(no_plan, allocation.cpu_hz),
            power_w=_unless(no_plan, allocation.power_w),
            bits_per_weight=_unless(no_plan, allocation.bits_per_weight),
            code=allocation.code,
            block=allocation.block,
            blocking=allocation.blocking,
            local_steps=allocation.local_steps,
            first_trained=allocation.first_trained,
            last_trained=allocation.last_trained,
            compute_s=_unless(no_plan, allocation.compute_s),
            sent_weights=_unless(no_plan, allocation.sent_weights),
            value=allocation.value,
            value_bound=allocation.value_bound,
            options=self,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocation:
    """The result of `Scheme.allocate`: the fields of a `Plan` that differ between schemes, with the same meaning."""

    share: Array
    ratio: Array
    status: Array
    shadow_price: Array | float
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


def equal_shares(problem: PlanProblem) -> Array:
    """Returns b_n = 1 / N_k: every device of an edge gets the same share; every group, where devices send at once."""
    if problem.turns is not None:
        return problem.groups.spread(1.0 / problem.turns.of_edges.counts)
    return problem.groups.spread(1.0 / problem.groups.counts)


def status_of_box(problem: PlanProblem, lower_share: Array) -> Array:
    """Returns ok where Σ b_min ≤ 1, else whether compute or bandwidth is short.  [num_edges]"""
    return _status(problem, problem.spent(lower_share) <= 1.0, np.isinf(lower_share))


def status_of_latency(problem: PlanProblem, share: Array, ratio: Array, *, cpu_hz: Array | None = None) -> Array:
    """Returns ok where every device meets the deadline, else late.  [num_edges]"""
    late = latency_s(problem, share, ratio, cpu_hz=cpu_hz) > problem.deadline_s * (1.0 + DEADLINE_TOLERANCE)
    return _words(np.where(problem.groups.any(late), Status.LATE, Status.OK))


def status_of_fixed_shares(problem: PlanProblem, share: Array) -> Array:
    """Returns ok where ρ_max meets the deadline with the given shares, else what is short.  [num_edges]"""
    need = share_for_weights(problem, problem.smallest_model_weights)
    # Rounding is a share of the deadline, and a larger share of the time that extra seconds leave.
    with np.errstate(divide="ignore", invalid="ignore"):
        tolerance = DEADLINE_TOLERANCE * (problem.deadline_s / problem.time_for_weights_s)
    never = np.isinf(need)
    short = problem.groups.any((need > share * (1.0 + tolerance)) | never)
    return _status(problem, ~short, never)


def _status(problem: PlanProblem, fits: Array, never: Array) -> Array:
    """Returns ok on edges that fit; else compute is short where a device never meets the deadline, or bandwidth."""
    short = np.where(problem.groups.any(never), Status.INFEASIBLE_COMPUTE, Status.INFEASIBLE_BANDWIDTH)
    return _words(np.where(fits, Status.OK, short))


def equal_share_latency_s(problem: PlanProblem, weights: Array) -> Array:
    """Returns the latency of the slowest device of each edge if all send `weights` over equal shares.  [num_edges]"""
    latency = device_latency_s(
        weights,
        seconds_per_weight=problem.seconds_per_weight,
        rate_bps=rate_of_share(problem, equal_shares(problem)),
        bits_per_weight=problem.bits_per_weight,
        fixed_bits=problem.fixed_bits,
        extra_seconds=problem.extra_seconds,
    )
    return problem.groups.max(latency)


def _unless(no_plan: Array, chosen: Array | None) -> Array | None:
    return None if chosen is None else np.where(no_plan, np.nan, chosen)


def _words(status: Array) -> Array:
    return np.array([str(word) for word in status.tolist()])
