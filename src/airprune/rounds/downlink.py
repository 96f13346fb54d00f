"""The downlink of an edge round: the model's way to the devices before they train, where `radio.downlink` charges it.

    broadcast   one model per edge, at the rate of the slowest device that it goes to: the whole one, or what devices of
                nested sub-models, or of half an adapter, lack
    unicast     each device's own sub-model in turn, over the whole bandwidth

Deadlines are of compute plus uplink, Eqs. (14)–(16): the downlink comes before, and makes a round longer but no device
late. It goes to all planned devices of a station, also to those that drop out later; where devices form groups
(`topology.d2d`), to every one of them and not through their masters. Devices that end up with the average themselves
(`topology.lan`) get nothing from a station in an edge round.

A sub-model is sent alone if the station knows it. A device that chooses by its own samples, or computes with all
weights, gets the whole model. Beside the weights travels what the objective sends up with an update, such as control
variates; masks are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from airprune.methods.selection.base import Candidates
from airprune.rounds.planning_context import PlannedRound, PlanningContext
from airprune.rounds.timing import TimedRound
from airprune.wireless.channel import downlink_rate_bps
from airprune.wireless.latency import broadcast_time_s, receive_energy_j, unicast_time_s

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Downlink:
    """The downlink of the edges of one edge round.

    Attributes:
      time_s, bits: of each edge.  [num_edges]
      receive_s: how long each device's receiver works; 0 if it gets nothing.  [num_devices]
    """

    time_s: Array
    bits: Array
    receive_s: Array


def downlink_of(
    context: PlanningContext, planned: PlannedRound, candidates: Candidates, *, fetches: Array | None = None
) -> Downlink:
    """Returns the downlink of a planned round.

    Args:
      candidates: among which the planned devices are; they know the rates.
      fetches: devices that get a model in this round; None: all.  [num_devices] bool
    """
    place, num_edges = np.searchsorted(planned.edges, planned.edge), len(planned.edges)
    gets = planned.in_plan if fetches is None else planned.in_plan & fetches
    if planned.relay is not None and not planned.relay.uploads.any():
        gets = np.zeros_like(gets)
    power_w = None if candidates.power_w is None else candidates.power_w(planned.device)
    rate_bps = downlink_rate_bps(candidates.link_rates_bps(planned.device), context.radio, power_w)[gets]
    each_bits = model_bits(context, planned)[gets]
    receive_s = np.zeros(len(gets))
    if context.radio.downlink == "broadcast":
        largest = np.full(num_edges, -1)
        np.maximum.at(largest, place[gets], planned.keep[gets])
        bits = np.where(largest >= 0, context.broadcast_bits(largest), 0.0)
        time_s = broadcast_time_s(bits[place[gets]], rate_bps, place[gets], num_edges=num_edges)
        receive_s[gets] = time_s[place[gets]]
    else:
        time_s = unicast_time_s(each_bits, rate_bps, place[gets], num_edges=num_edges)
        receive_s[gets] = each_bits / rate_bps
        bits = np.bincount(place[gets], each_bits, minlength=num_edges)
    return Downlink(time_s=time_s, bits=bits, receive_s=receive_s)


def model_bits(context: PlanningContext, planned: PlannedRound) -> Array:
    """Returns the bits that unicast sends each device: its sub-model, or the whole one.  [num_devices]"""
    masking, shape = context.method.masking, context.shape
    chooses_itself = planned.charges.probe or (masking.by_data and planned.mask is None)
    if chooses_itself or masking.dense_compute > 0.0:
        return np.full(len(planned.device), context.whole_model_bits)
    return (shape.fixed_weights + planned.keep) * context.wire.value_bits + context.objective_bits


def with_downlink(context: PlanningContext, timed: TimedRound, candidates: Candidates) -> TimedRound:
    """Returns the round with its downlink and the energy of receiving it; unchanged where that is free."""
    if not context.radio.charges_downlink:
        return timed
    down = downlink_of(context, timed.planned, candidates)
    receive_j = receive_energy_j(down.receive_s, receive_power_w=context.radio.receive_power_w)
    return replace(timed, downlink_s=down.time_s, downlink_bits=down.bits, energy_j=timed.energy_j + receive_j)
