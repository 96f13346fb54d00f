"""One edge round before any training: the plan, the events, and the simulated clock.

Who gets which share and ratio, who is left out and why, how long each device computes and uploads, what that costs, and
how long each edge waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from airprune.channel import uplink_rate_bps
from airprune.experiment import Experiment
from airprune.latency import compute_energy_j, seconds_per_weight, transmit_energy_j
from airprune.planning import Plan, PlanProblem
from airprune.pruning.structured import structured_count, unit_keep_for
from airprune.randomness import rng_for
from airprune.schemes import plan as plan_by

Array = np.ndarray


class Fate(StrEnum):
    """What became of a device in one edge round."""

    OK = "ok"
    """It uploaded in time and counts in the average."""
    BLOCKED = "blocked"
    """It made its edge infeasible and was left out by the planner."""
    DROPPED = "dropped"
    """It disappeared after planning."""
    LATE = "late"
    """It straggled and missed the deadline."""
    FAILED = "failed"
    """Its training failed for good, and `engine.on_device_failure` is to go on without it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundPlan:
    """One edge round of the edges that take part in it. Per-device arrays follow `device`.  [num_devices]

    Attributes:
      device: the devices of the active edges, ascending.
      edge: the edge of each.
      share, ratio: b_n and ρ_n as planned; NaN for blocked devices.
      keep: whole prunable weights kept, ⌊(1 − ρ) W_fully⌋ or what Eq. (3) makes of it.
      uploaded_bits: what each device sends.
      compute_s, uplink_s: its simulated times, stragglers included; NaN for blocked devices.
      energy_j: for compute and transmission.
      fate: a `Fate` word.
      edges: the active edges.  [num_active]
      edge_latency_s: how long each active edge waits, Eq. (16).  [num_active]
      status, shadow_price: of the plan, per active edge.  [num_active]
    """

    device: Array
    edge: Array
    share: Array
    ratio: Array
    keep: Array
    uploaded_bits: Array
    compute_s: Array
    uplink_s: Array
    energy_j: Array
    fate: Array
    edges: Array
    edge_latency_s: Array
    status: Array
    shadow_price: Array

    @property
    def takes_part(self) -> Array:
        return self.fate == Fate.OK


def plan_round(experiment: Experiment, *, global_round: int, edge_round: int, edges: Array) -> RoundPlan:
    """Plans and simulates one edge round of `edges`; rounds count from 0."""
    scenario = experiment.scenario
    round_index = global_round * max(scenario.edge_rounds_of) + edge_round
    device = np.flatnonzero(np.isin(experiment.network.edge, edges))
    problem = _problem(experiment, device, round_index)
    plan, planned = _plan_without_blockers(problem, scenario.plan.scheme, drop=scenario.plan.infeasible == "drop")

    share, keep = np.full(len(device), np.nan), np.zeros(len(device), dtype=np.int64)
    share[planned], keep[planned] = plan.bandwidth_share, _keep(experiment, plan)
    weights = experiment.model.conv_weights + keep
    bits = scenario.plan.bits_per_weight * weights
    if scenario.pruning.count_mask_bits:
        bits = bits + np.where(keep < experiment.model.fc_weights, experiment.model.fc_weights, 0)
    cpu_hz = experiment.network.cpu_hz[device]
    compute_s = _compute_s(experiment, weights, cpu_hz)
    uplink_s = bits / uplink_rate_bps(np.where(planned, share, 1.0), problem.full_band_rate_bps)
    planned_s = compute_s + uplink_s

    dropped, slowdown = _events(experiment, device, global_round, edge_round)
    compute_s = compute_s * slowdown
    limit_s = np.maximum(scenario.plan.deadline_s, planned_s) * (1.0 + 1e-9)
    late = compute_s + uplink_s > limit_s
    fate = np.select([~planned, dropped, late], [Fate.BLOCKED, Fate.DROPPED, Fate.LATE], Fate.OK)
    # An edge that misses somebody waits until the deadline, or until a baseline that ignores it would have arrived.
    waits_s = np.where(fate == Fate.OK, compute_s + uplink_s, np.where(planned, limit_s, 0.0))
    return RoundPlan(
        device=device,
        edge=experiment.network.edge[device],
        share=share,
        ratio=np.where(planned, 1.0 - keep / experiment.model.fc_weights, np.nan),
        keep=keep,
        uploaded_bits=np.where(fate == Fate.OK, bits, 0.0),
        compute_s=np.where(planned, compute_s, np.nan),
        uplink_s=np.where(planned, uplink_s, np.nan),
        energy_j=_energy_j(experiment, weights, cpu_hz, compute_s, uplink_s, planned),
        fate=fate.astype(str),
        edges=problem.edge_ids,
        edge_latency_s=problem.groups.max(waits_s),
        status=plan.status,
        shadow_price=plan.shadow_price,
    )


def _problem(experiment: Experiment, device: Array, round_index: int) -> PlanProblem:
    settings, model = experiment.scenario.plan, experiment.model
    per_weight_s = seconds_per_weight(
        local_iterations=settings.local_iterations,
        cycles_per_weight=settings.cycles_per_weight,
        cpu_hz=experiment.network.cpu_hz[device],
    )
    deadline_s = np.full(len(device), settings.deadline_s)
    if experiment.scenario.pruning.count_probe:
        deadline_s = np.maximum(deadline_s - _probe_s(experiment, experiment.network.cpu_hz[device]), 1e-12)
    # Mask bits travel with every model; as extra weights they make the plan a trifle cautious, never late.
    mask_weights = model.fc_weights / settings.bits_per_weight if experiment.scenario.pruning.count_mask_bits else 0.0
    return PlanProblem(
        full_band_rate_bps=experiment.full_band_rates(round_index)[device],
        seconds_per_weight=per_weight_s,
        edge=experiment.network.edge[device],
        bits_per_weight=settings.bits_per_weight,
        conv_weights=model.conv_weights + mask_weights,
        fc_weights=model.fc_weights,
        deadline_s=deadline_s,
        max_pruning_ratio=experiment.max_pruning_ratio,
        min_pruning_ratio=settings.min_pruning_ratio,
    )


def _plan_without_blockers(problem: PlanProblem, scheme: str, *, drop: bool) -> tuple[Plan, Array]:
    """(plan, which devices are in it). Infeasible edges are planned again without the devices that block them."""
    plan = plan_by(problem, scheme)
    planned = np.ones(problem.num_devices, dtype=bool)
    if not plan.failed.any():
        return plan, planned
    planned &= ~plan.blocking_devices
    if not drop or not problem.groups.any(planned).all():
        plan.raise_if_failed()
    return plan_by(problem.subset(planned), scheme).raise_if_failed(), planned


def _keep(experiment: Experiment, plan: Plan) -> Array:
    keep = plan.kept_fc_weights
    if experiment.scenario.pruning.structure != "neurons":
        return keep
    layers = experiment.model.layers
    whole = {k: structured_count(layers, unit_keep_for(layers, k)) for k in np.unique(keep).tolist() if k > 0}
    return np.array([whole.get(k, 0) for k in keep.tolist()])


def _compute_s(experiment: Experiment, weights: Array, cpu_hz: Array) -> Array:
    settings = experiment.scenario.plan
    time_s = (
        seconds_per_weight(
            local_iterations=settings.local_iterations, cycles_per_weight=settings.cycles_per_weight, cpu_hz=cpu_hz
        )
        * weights
    )
    return time_s + (_probe_s(experiment, cpu_hz) if experiment.scenario.pruning.count_probe else 0.0)


def _probe_s(experiment: Experiment, cpu_hz: Array) -> Array:
    """One more iteration on the whole model, which the paper leaves out."""
    whole = experiment.model.conv_weights + experiment.model.fc_weights
    return experiment.scenario.plan.cycles_per_weight * whole / cpu_hz


def _events(experiment: Experiment, device: Array, global_round: int, edge_round: int) -> tuple[Array, Array]:
    """(who disappears, by what factor compute slows down), the same for every scheme."""
    events = experiment.scenario.events
    rng = rng_for(experiment.scenario.seed, "events", global_round, edge_round)
    draws = rng.random((experiment.network.num_devices, 2))[device]
    slowdown = np.where(draws[:, 1] < events.straggler_probability, events.straggler_slowdown, 1.0)
    return draws[:, 0] < events.dropout_probability, slowdown


def _energy_j(
    experiment: Experiment, weights: Array, cpu_hz: Array, compute_s: Array, uplink_s: Array, planned: Array
) -> Array:
    settings = experiment.scenario.plan
    compute_j = compute_energy_j(
        weights,
        local_iterations=settings.local_iterations,
        cycles_per_weight=settings.cycles_per_weight,
        cpu_hz=cpu_hz,
    )
    transmit_j = transmit_energy_j(uplink_s, transmit_power_w=experiment.radio.transmit_power_w)
    return np.where(planned, compute_j + transmit_j, 0.0)
