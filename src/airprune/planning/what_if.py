"""Compares a plan with those of changed resources: more bandwidth, more time, faster CPUs, fewer bits.

Every line is planned anew, so it holds for any scheme and for changes of any size. Where an edge has no plan, the
fewest devices that block it are left out, as a run with `plan.infeasible = "drop"` does, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airprune.planning.plan import DEADLINE_TOLERANCE, Plan, Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Scheme
from airprune.planning.schemes.work import Work
from airprune.units import mhz_to_hz

Array = np.ndarray

_GHZ = 1e9
# Up to so many devices, plans of work are exact.
_FEW_DEVICES = 500


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The outcome of a plan in a few numbers; NaN where there is none.

    Attributes:
      served: devices that meet the deadline, if those that block their edge are left out.
      full_edges: edges all of whose devices do.
      mean_pruning, max_pruning: of the served devices.
      round_s: latency of the slowest of them.
      smallest_deadline_s: the smallest deadline that serves all devices; ∞ if none does.
      progress: Σ v, for schemes that maximise it; NaN for others.
      whole_models, mean_steps: served devices that train every layer, and local steps of a device, for schemes that
        plan work.
    """

    num_devices: int
    num_edges: int
    served: int
    full_edges: int
    mean_pruning: float
    max_pruning: float
    round_s: float
    smallest_deadline_s: float
    progress: float = np.nan
    whole_models: int = 0
    mean_steps: float = np.nan

    @property
    def progress_per_s(self) -> float:
        """Progress of a round over its duration."""
        return self.progress / self.round_s if self.round_s > 0.0 else np.nan

    def as_json(self) -> dict[str, Any]:
        """Returns it in the units of tables: milliseconds, and nothing where there is no number."""
        found: dict[str, Any] = {
            "devices": self.num_devices,
            "devices_served": self.served,
            "edges": self.num_edges,
            "edges_served": self.full_edges,
            "mean_pruning_ratio": self.mean_pruning,
            "max_pruning_ratio": self.max_pruning,
            "round_ms": 1e3 * self.round_s,
            "smallest_deadline_ms": 1e3 * self.smallest_deadline_s,
        }
        if np.isfinite(self.progress):
            found |= {"progress": self.progress, "progress_per_s": self.progress_per_s}
        if np.isfinite(self.mean_steps):
            found |= {"whole_models": self.whole_models, "mean_local_steps": self.mean_steps}
        return {key: value if np.isfinite(value) else None for key, value in found.items()}


def outlook(problem: PlanProblem, scheme: Scheme) -> Outlook:
    """Plans a problem, again without devices that block an edge, and returns the outcome in numbers.

    Plans of work for many devices are within one step of the optimum (`Work.draft`), which is sooner found.
    """
    plan_by = scheme.draft if isinstance(scheme, Work) and problem.num_devices > _FEW_DEVICES else scheme.plan
    plan = plan_by(problem)
    kept, served = plan, np.ones(problem.num_devices, dtype=bool)
    if plan.failed.any():
        served = ~(problem.groups.spread(plan.failed) & _out(plan))
        kept = plan_by(problem.subset(served)) if served.any() else plan
    now = np.zeros(problem.num_devices, dtype=bool)
    ratio, latency_s = kept.pruning_ratio, kept.latency_s
    in_time = ~kept.problem.groups.spread(kept.failed)
    with np.errstate(invalid="ignore"):
        in_time &= latency_s <= kept.problem.deadline_s * (1.0 + DEADLINE_TOLERANCE)
    if served.any():
        now[served] = in_time
    found = in_time if served.any() else np.zeros(0, dtype=bool)
    some = bool(found.any())
    work: dict[str, Any] = {}
    if some and kept.value is not None:
        work["progress"] = float(np.sum(kept.value[~kept.failed]))
    if some and kept.local_steps is not None:
        work["whole_models"] = int(np.count_nonzero(trains_all(kept)[found]))
        work["mean_steps"] = float(np.mean(kept.local_steps[found]))
    return Outlook(
        num_devices=problem.num_devices,
        num_edges=problem.groups.num_edges,
        served=int(np.count_nonzero(now)),
        full_edges=int(np.count_nonzero(~problem.groups.any(~now))),
        mean_pruning=float(np.mean(ratio[found])) if some else np.nan,
        max_pruning=float(np.max(ratio[found])) if some else np.nan,
        round_s=float(np.max(latency_s[found])) if some else np.nan,
        smallest_deadline_s=float(np.max(plan.min_deadline_s)),
        **work,
    )


def trains_all(plan: Plan) -> Array:
    """Returns the devices that train every layer; all where the scheme does not choose.  [num_devices]"""
    whole = np.ones(plan.problem.num_devices, dtype=bool)
    if plan.first_trained is not None:
        whole &= plan.first_trained == 0
    work = plan.problem.work
    if plan.last_trained is not None and work is not None and work.last_trained is not None:
        whole &= plan.last_trained == work.last_trained[0]
    return whole


def _out(plan: Plan) -> Array:
    """Returns the devices to leave out: those that block, and all of an edge where a formula left its bounds."""
    outside = plan.problem.groups.spread(plan.status == Status.OUTSIDE_BOX)
    return plan.blocking_devices | outside


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of the resources of a problem.

    Attributes:
      words: the change as a heading.
      more_hz: bandwidth that every edge gets on top.
      times_bandwidth, times_deadline, times_cpu, times_bits: factors.
      more_s: seconds that every round gets on top.
      more_cpu_hz: CPU frequency that every device gets on top.
      deadline_s: the deadline in place of the problem's.
    """

    words: str
    more_hz: float = 0.0
    times_bandwidth: float = 1.0
    more_s: float = 0.0
    times_deadline: float = 1.0
    more_cpu_hz: float = 0.0
    times_cpu: float = 1.0
    times_bits: float = 1.0
    deadline_s: float | None = None

    def of(self, problem: PlanProblem, *, bandwidth_hz: float, cpu_hz: Array | float) -> PlanProblem:
        """Returns the changed problem; rates grow with the bandwidth, as in Eq. (10) with the noise power fixed.

        Args:
          bandwidth_hz: behind the rates of the problem.
          cpu_hz: behind its compute times.  [num_devices] or one for all
        """
        band = self.times_bandwidth * (1.0 + self.more_hz / bandwidth_hz)
        cpu = self.times_cpu * (1.0 + self.more_cpu_hz / np.asarray(cpu_hz, dtype=np.float64))
        deadline_s = self.times_deadline * problem.deadline_s + self.more_s
        changes: dict[str, Any] = {
            "full_band_rate_bps": problem.full_band_rate_bps * band,
            "seconds_per_weight": problem.seconds_per_weight / cpu,
            "extra_seconds": problem.extra_seconds / cpu,
            "bits_per_weight": problem.bits_per_weight * self.times_bits,
            "deadline_s": deadline_s if self.deadline_s is None else self.deadline_s,
        }
        if problem.interference is not None:
            changes["interference"] = problem.interference.wider(band)
        if problem.slice_bandwidth_hz is not None:
            changes["slice_bandwidth_hz"] = problem.slice_bandwidth_hz * band
        if problem.block_rate_bps is not None:
            changes["block_rate_bps"] = problem.block_rate_bps * band
        if problem.limits is not None:
            changes["limits"] = replace(problem.limits, bandwidth_hz=problem.limits.bandwidth_hz * band)
        if problem.work is not None:
            changes["work"] = problem.work.faster(cpu)
        return replace(problem, **changes)


AS_GIVEN = Change(words="as given")


def usual_changes(problem: PlanProblem, *, smallest_deadline_s: float | None = None) -> list[Change]:
    """Returns the changes that users ask about, in units of the problem's size.

    Args:
      smallest_deadline_s: a deadline to try as well.
    """
    is_long = problem.work is not None or float(np.max(problem.deadline_s)) >= 0.5
    step_s, step = (1.0, "1 s") if is_long else (1e-3, "1 ms")
    changes = [
        AS_GIVEN,
        Change(words="1 MHz more for each edge", more_hz=mhz_to_hz(1.0)),
        Change(words=f"{step} more for each round", more_s=step_s),
        Change(words="1 GHz more for each device", more_cpu_hz=_GHZ),
        Change(words="twice the bandwidth", times_bandwidth=2.0),
        Change(words="twice the time", times_deadline=2.0),
        Change(words="CPUs twice as fast", times_cpu=2.0),
    ]
    if problem.ladder is None and problem.codes is None:
        changes.append(Change(words="half the bits per weight", times_bits=0.5))
    if problem.limits is not None:  # their clocks are the scheme's to choose
        changes = [change for change in changes if change.more_cpu_hz == 0.0 and change.times_cpu == 1.0]
    if smallest_deadline_s is not None and np.isfinite(smallest_deadline_s):
        words = "the smallest deadline for all"
        changes.append(Change(words=words, deadline_s=float(smallest_deadline_s)))
    return changes


def what_if(
    problem: PlanProblem,
    scheme: Scheme,
    changes: Sequence[Change],
    *,
    bandwidth_hz: float,
    cpu_hz: Array | float,
) -> list[tuple[Change, Outlook]]:
    """Plans the problem under each change; returns the changes with their outcomes."""
    return [
        (change, outlook(change.of(problem, bandwidth_hz=bandwidth_hz, cpu_hz=cpu_hz), scheme)) for change in changes
    ]
