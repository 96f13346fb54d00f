"""Rounds in which devices hand their updates to each other before one of them uploads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from airprune.errors import InvalidValue
from airprune.methods.masking.base import Charges
from airprune.methods.selection.base import Candidates
from airprune.methods.topology import Topology
from airprune.methods.topology.relay import Relay, RelayView
from airprune.planning import PlanProblem
from airprune.planning.plan import Status
from airprune.rounds.planning_context import PlannedRound, PlanningContext

Array = np.ndarray

# Where devices of these numbers stand.
Positions = Callable[[Array], Array]


def relay_of(
    context: PlanningContext, chosen: Candidates, problem: PlanProblem, charges: Charges, positions_m: Positions | None
) -> Relay | None:
    """Returns the devices' exchange among themselves; None if there is none."""
    topology = context.method.topology
    if not topology.overrides(Topology.relay):
        return None

    def positions() -> Array:
        if positions_m is None:
            rule = f"topology {topology.name!r} needs to know where devices stand"
            raise InvalidValue("Network", rule, "a table with snr_db", "Give distance_m or places")
        return positions_m(chosen.device)

    view = RelayView(
        edge=chosen.edge,
        full_band_rate_bps=chosen.full_band_rate_bps,
        compute_s=whole_s(problem),
        model_bits=whole_bits(context, problem, charges),
        radio=context.radio,
        positions_m=positions,
    )
    relay = topology.relay(view)
    return None if relay is None or relay.is_idle else relay


def whole_s(problem: PlanProblem) -> Array:
    """Training time of each device if it keeps every weight."""
    whole: Array = problem.seconds_per_weight * (problem.fixed_weights + problem.prunable_weights)
    return whole + problem.extra_seconds


def whole_bits(context: PlanningContext, problem: PlanProblem, charges: Charges) -> Array:
    return context.upload_bits(np.full(problem.num_devices, context.shape.prunable_weights), charges)


def for_groups(
    context: PlanningContext, chosen: Candidates, heads: PlannedRound, cpu_hz: Array, charges: Charges, relay: Relay
) -> PlannedRound:
    """The round of all devices from that of those who upload.

    A head sends the union of its group's weights, each with the number of devices that kept it. So that the union
    fits whatever they choose, the devices of a pruned group keep an equal part of what the head may send.
    """
    place = np.searchsorted(np.flatnonzero(relay.uploads), relay.head)
    size, prunable = relay.group_size, context.shape.prunable_weights
    keep = heads.keep[place]
    is_pruned_group = (size > 1) & (keep < prunable)
    count_bits, value_bits = _count_bits(size), context.wire.value_bits
    part = np.floor(keep * value_bits / (value_bits + count_bits) / size).astype(np.int64)
    part = context.method.masking.num_kept(part, context.shape)
    keep = np.where(is_pruned_group, part, keep)
    union = np.where(is_pruned_group, size * part, keep)  # at the most

    def spread(values: Array, others: Array | float) -> Array:
        return np.where(relay.uploads, values[place], others)

    planned = replace(
        heads,
        device=chosen.device,
        edge=chosen.edge,
        full_band_rate_bps=spread(heads.full_band_rate_bps, chosen.full_band_rate_bps),
        cpu_hz=spread(heads.cpu_hz, cpu_hz),
        in_plan=heads.in_plan[place],
        share=spread(heads.share, np.nan),
        keep=keep,
        bits=context.upload_bits(keep, charges),
        power_w=None if heads.power_w is None else spread(heads.power_w, np.nan),
        relay=relay,
    )
    return with_unions(context, planned, union)


def with_unions(context: PlanningContext, planned: PlannedRound, union: Array) -> PlannedRound:
    """The round in which the group of each device sends so many prunable weights, with counts unless it sends all."""
    assert planned.relay is not None  # else there are no groups
    size = planned.relay.group_size
    counted = (size > 1) & (union < context.shape.prunable_weights)
    return replace(
        planned,
        carried_weights=context.shape.fixed_weights + union,
        carried_bits=context.upload_bits(union, planned.charges) + np.where(counted, _count_bits(size) * union, 0.0),
    )


def _count_bits(size: Array) -> Array:
    """Bits of a number from 0 to the size of a group."""
    return np.ceil(np.log2(size + 1))


def without_uplink(
    context: PlanningContext, chosen: Candidates, problem: PlanProblem, cpu_hz: Array, charges: Charges, relay: Relay
) -> PlannedRound:
    """Devices that end up with the average themselves: no band to share, so nothing to plan and nothing to prune."""
    nothing = np.zeros(len(chosen.device))
    return PlannedRound(
        device=chosen.device,
        edge=chosen.edge,
        full_band_rate_bps=chosen.full_band_rate_bps,
        cpu_hz=cpu_hz,
        in_plan=np.ones(len(chosen.device), dtype=bool),
        share=nothing + np.nan,
        keep=np.full(len(chosen.device), context.shape.prunable_weights),
        bits=whole_bits(context, problem, charges),
        deadline_s=float(np.max(problem.deadline_s)),
        tunes_itself=False,
        charges=charges,
        edges=problem.edge_ids,
        status=np.full(len(problem.edge_ids), str(Status.OK)),
        shadow_price=np.full(len(problem.edge_ids), np.nan),
        relay=relay,
        carried_weights=nothing.astype(np.int64),
        carried_bits=nothing,
    )
