"""Plans the first edge round of a scenario without training: the problem of its devices, the plan and its times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airprune.methods.association.base import Served
from airprune.methods.selection.base import Candidates
from airprune.planning import Plan, PlanProblem
from airprune.planning.fleet import RATE, Fleet
from airprune.planning.limits import slowdown
from airprune.planning.schemes.base import Scheme
from airprune.planning.schemes.work import Work
from airprune.rounds.edge import selected_plan
from airprune.rounds.planning_context import PlanningContext
from airprune.rounds.planning_setup import PlanningSetup
from airprune.rounds.state import RunState
from airprune.wireless.channel import uplink_rate_bps
from airprune.wireless.latency import uplink_time_s

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class FirstRound:
    """The first edge round of a scenario as its scheme plans it.  Arrays follow `device`

    Attributes:
      device: the selected devices, by their numbers in the network.
      cpu_hz: their CPU frequencies.
      given: their problem before its plan settles the interference of edges that share a bandwidth.
      plan: of all of them; edges may have none.
    """

    experiment: PlanningSetup
    device: Array
    cpu_hz: Array
    given: PlanProblem
    plan: Plan

    @property
    def problem(self) -> PlanProblem:
        return self.plan.problem

    @property
    def scheme(self) -> Scheme:
        return self.experiment.method.scheme

    @property
    def deadline_s(self) -> float:
        """The deadline of the round; where it tunes itself, the one that was found."""
        return float(np.max(self.problem.deadline_s))

    @cached_property
    def fleet(self) -> Fleet:
        """The planned devices as a table, with the names that the network has."""
        network, ids = self.experiment.network, self.problem.edge_ids
        device_names, edge_names = network.device_names, network.edge_names
        names = [device_names[n] for n in self.device.tolist()] if device_names else self.device.tolist()
        return Fleet(
            device=np.array(names),
            edge_names=np.array([edge_names[k] for k in ids.tolist()] if edge_names else ids.tolist()),
            edge=np.searchsorted(ids, self.problem.edge),
            columns={RATE: self.problem.full_band_rate_bps, "cpu_hz": self.cpu_hz},
            ignored=(),
            given=(RATE, "cpu_hz"),
        )

    @cached_property
    def part(self) -> Array:
        """Index into the parts of the problem's work of what each device trains; 0: the whole model."""
        work, first = self.problem.work, self.plan.first_trained
        if work is None or first is None:
            return np.zeros(len(self.device), dtype=np.int64)
        last = self.plan.last_trained
        if last is None or work.last_trained is None:
            return np.searchsorted(work.first_trained, first)
        same = (work.first_trained[:, None] == first) & (work.last_trained[:, None] == last)
        return np.argmax(same, axis=0)

    @property
    def part_names(self) -> list[str]:
        """Name of each part: the layer from which on it trains, and the last where it ends below the top."""
        work = self.problem.work
        if work is None:
            return ["all layers"]
        lowest: dict[int, str] = {}
        for tensor in self.experiment.shape.tensors:
            if tensor.counted:
                lowest.setdefault(tensor.layer, tensor.name.removesuffix(".weight"))
        top = max(lowest)
        first, last = work.first_trained, work.last_trained
        ends = np.full(len(first), top) if last is None else np.minimum(last, top)
        return [_part_name(lowest, begin, end) for begin, end in zip(first.tolist(), ends.tolist(), strict=True)]

    @cached_property
    def uplink_s(self) -> Array:
        """Upload time of each device."""
        plan, problem = self.plan, self.problem
        if plan.sent_weights is None:
            return np.asarray(plan.latency_s - self.compute_s)
        bits = problem.bits_per_weight if plan.bits_per_weight is None else plan.bits_per_weight
        rate_bps = uplink_rate_bps(plan.bandwidth_share, problem.full_band_rate_bps)
        return uplink_time_s(bits * plan.sent_weights + problem.fixed_bits, rate_bps, bits_per_weight=1.0)

    @cached_property
    def compute_s(self) -> Array:
        """Compute time of each device, a probe included."""
        plan, problem = self.plan, self.problem
        if plan.compute_s is not None:
            return plan.compute_s
        weights = problem.conv_weights + (1.0 - plan.pruning_ratio) * problem.fc_weights
        compute_s = problem.seconds_per_weight * weights + problem.extra_seconds
        return np.asarray(compute_s if plan.cpu_hz is None else compute_s * slowdown(problem, plan.cpu_hz))

    @cached_property
    def forward_s(self) -> Array | None:
        """Time of the forward passes; None on a clock that does not count them, or without scheme `work`."""
        work, scheme = self.problem.work, self.scheme
        is_counted = self.experiment.scenario.clock.compute != "paper"
        if work is None or self.plan.local_steps is None or not (is_counted and isinstance(scheme, Work)):
            return None
        flops = self.experiment.work
        found = work.forward_s(self.plan.local_steps, self.part, flops.forward / flops.flops_per_sample)
        return np.where(np.isnan(self.compute_s), np.nan, found)


def _part_name(layers: dict[int, str], first: int, last: int) -> str:
    """Returns the layers from one to another in words."""
    bottom, top = min(layers), max(layers)
    begin = max(first, bottom)
    if begin == bottom and last == top:
        return "all layers"
    if begin == last:
        return f"{layers[last]} alone"
    return f"from {layers[begin]}" if last == top else f"{layers[begin]} to {layers[last]}"


def first_round(experiment: PlanningSetup) -> FirstRound:
    """Selects the devices of the first edge round and plans it with the rates of that round."""
    state, context, candidates, cpu_hz = before_first_round(experiment)
    charges = context.charges(0)
    selected, given, plan = selected_plan(context, candidates, cpu_hz, charges, experiment.kappa(state))
    return FirstRound(
        experiment=experiment,
        device=candidates.device[selected],
        cpu_hz=cpu_hz[selected],
        given=given,
        plan=plan,
    )


def before_first_round(experiment: PlanningSetup) -> tuple[RunState, PlanningContext, Candidates, Array]:
    """Returns (state, settings of the plan, candidates, their CPU clocks) of the first edge round."""
    state = experiment.initial_state()
    at = experiment.place(state)
    candidates, cpu_hz = experiment.candidates(at, state, experiment.served(at, state))
    return state, at.context.bounded(state.values), candidates, cpu_hz


def links_of(found: FirstRound, on_time: float | None = None) -> tuple[Served, Array]:
    """Returns the association of the first round, and the fading that a plan for a probability counts on.

    Args:
      on_time: None: plans count on the mean.
    """
    experiment = found.experiment
    state = experiment.initial_state()
    at = experiment.place(state)
    served = experiment.served(at, state)
    known = experiment.stations.known_fading(at.round_index, state.values, on_time, state.clock_s)
    return served, known[found.device]
