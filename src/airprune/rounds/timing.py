"""The simulated clock of one edge round: how long devices compute and upload, what it costs, who is late or lost."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.methods.topology.relay import Relay
from airprune.planning.plan import Status
from airprune.rounds.planning_context import PlannedRound, PlanningContext
from airprune.rounds.relayed import with_unions as united
from airprune.wireless.channel import uplink_rate_bps
from airprune.wireless.latency import compute_energy_j, edge_round_latency_s, transmit_energy_j, uplink_time_s

if TYPE_CHECKING:
    pass

Array = np.ndarray

# A time above the deadline by less than this factor is rounding.
_ROUNDING = 1.0 + 1e-9


class Fate(StrEnum):
    """What became of a device in one edge round."""

    OK = "ok"
    """It uploaded in time and counts in the average."""
    BLOCKED = "blocked"
    """It made its edge infeasible and was left out by the planner."""
    DROPPED = "dropped"
    """It disappeared after planning."""
    LATE = "late"
    """It straggled and missed the deadline, or the end of a round that waits for enough others."""
    FAILED = "failed"
    """Its training failed for good, and `engine.on_device_failure` is to go on without it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Events:
    """What goes wrong in one edge round.  Arrays follow the devices asked

    Attributes:
      dropped: who disappears.
      slowdown: by what factor compute slows down.
    """

    dropped: Array
    slowdown: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedRound:
    """An edge round as the clock sees it. Per-device arrays follow `device`.  [num_devices]

    Attributes:
      ratio: ρ_n after rounding to whole weights; NaN for blocked devices.
      uploaded_bits: what each device sends; 0 if it does not arrive.
      compute_s, uplink_s: its simulated times, stragglers included; NaN for blocked devices. If somebody uploads for
        it, that upload's.
      energy_j: for compute and transmission.
      fate: a `Fate` word.
      edge_latency_s: how long each edge waits, Eq. (16).  [num_edges]
      relay_s: how long it waits between training and uplink, for devices to tell each other; None if they do not.
      d2d_bits, d2d_energy_j: what it sends to other devices, and the part of `energy_j` that this takes.
    """

    opened: PlannedRound
    ratio: Array
    uploaded_bits: Array
    compute_s: Array
    uplink_s: Array
    energy_j: Array
    fate: Array
    edge_latency_s: Array
    relay_s: Array | None = None
    d2d_bits: Array | None = None
    d2d_energy_j: Array | None = None

    @property
    def takes_part(self) -> Array:
        return self.fate == Fate.OK

    @property
    def total_s(self) -> Array:
        """Until its update has reached the edge."""
        waits_s = 0.0 if self.relay_s is None else self.relay_s
        return self.compute_s + waits_s + self.uplink_s

    @property
    def edge_status(self) -> Array:
        """`ok` or `late` by whether the edge's round met the deadline, whatever was planned; without a plan, why.

        Stragglers do not make an edge late: it goes on without them at the deadline.  [num_edges]
        """
        status = self.opened.status
        is_late = self.edge_latency_s > self.opened.deadline_s * _ROUNDING
        return np.where(np.isin(status, [Status.OK, Status.LATE]), np.where(is_late, Status.LATE, Status.OK), status)

    def only(self, kept: Array) -> TimedRound:
        """The same round with some of its devices; the edges stay."""
        return replace(
            self,
            opened=replace(self.opened, **_indexed(self.opened, kept, but=("edges", "status", "shadow_price", "mask"))),
            **_indexed(self, kept, but=("edge_latency_s",)),
        )


def _indexed(value: Any, kept: Array, *, but: tuple[str, ...]) -> dict[str, Any]:
    """Its arrays per device, with some of the devices."""
    arrays = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in but}
    return {name: array[kept] for name, array in arrays.items() if isinstance(array, np.ndarray)}


def time_round(terms: PlanningContext, opened: PlannedRound, events: Events) -> TimedRound:
    """Times, energies and fates of a planned round."""
    planned, shape = opened.planned, terms.shape
    training_s = terms.training_s(opened.keep, opened.device, opened.cpu_hz, opened.charges)
    compute_s = training_s + terms.compute.probe_s(opened.device, opened.cpu_hz) if opened.charges.probe else training_s
    powered_s = compute_s if terms.compute.probe_takes_energy else training_s
    rate_bps = uplink_rate_bps(np.where(planned, opened.share, 1.0), opened.full_band_rate_bps)
    uplink_s = uplink_time_s(opened.uplink_bits, rate_bps, bits_per_weight=1.0)
    relay, relay_s = opened.relay, None
    if relay is not None:
        uplink_s = uplink_s[relay.head]
        relay_s = np.maximum(relay.over_s(compute_s, opened.bits, opened.edge) - compute_s, 0.0)
    after_s = uplink_s if relay_s is None else relay_s + uplink_s
    planned_s = compute_s + after_s

    compute_s = compute_s * events.slowdown
    limit_s = np.maximum(opened.deadline_s, planned_s) * _ROUNDING
    total_s = compute_s + after_s
    ends_s = _end_of_round_s(terms, np.where(planned & ~events.dropped & (total_s <= limit_s), total_s, np.inf))
    late = total_s > np.minimum(limit_s, ends_s)
    fate = np.select([~planned, events.dropped, late], [Fate.BLOCKED, Fate.DROPPED, Fate.LATE], Fate.OK)
    if relay is not None:  # what was handed to a device that does not arrive is lost with it
        fate = np.where(fate[relay.head] == Fate.OK, fate, fate[relay.head])
    # An edge that misses somebody waits until the deadline, or until a baseline that ignores it would have arrived.
    waits_s = np.minimum(np.where(fate == Fate.OK, total_s, np.where(planned, limit_s, 0.0)), ends_s)
    place = np.searchsorted(opened.edges, opened.edge)
    arrives, energy_j = fate == Fate.OK, _energy_j(terms, opened, powered_s, uplink_s)
    timed = TimedRound(
        opened=opened,
        ratio=np.where(planned, 1.0 - opened.keep / shape.prunable_weights, np.nan),
        uploaded_bits=np.where(arrives, opened.uplink_bits, 0.0),
        compute_s=np.where(planned, compute_s, np.nan),
        uplink_s=np.where(planned, uplink_s, np.nan),
        energy_j=energy_j,
        fate=fate.astype(str),
        edge_latency_s=edge_round_latency_s(waits_s, place, num_edges=len(opened.edges)),
        relay_s=None if relay_s is None else np.where(planned, relay_s, np.nan),
    )
    return timed if relay is None else _with_relay(timed, relay)


def with_unions(terms: PlanningContext, timed: TimedRound, union: Array) -> TimedRound:
    """The round as it came out: for each group, so many prunable weights went up, never more than had been reserved.

    Uploads end earlier and take less energy; who was late stays late, and an edge that misses somebody still waits.
    """
    before, opened = timed.opened, united(terms, timed.opened, union)
    assert opened.relay is not None
    saved = 1.0 - opened.uplink_bits / before.uplink_bits
    uplink_s = timed.uplink_s * (1.0 - saved)
    power_w = terms.radio.transmit_power_w if opened.power_w is None else opened.power_w
    saved_j = np.where(opened.relay.uploads & opened.planned, power_w * timed.uplink_s * saved, 0.0)
    shorter = replace(timed, opened=opened, uplink_s=uplink_s, energy_j=timed.energy_j - saved_j)
    place, num_edges = np.searchsorted(opened.edges, opened.edge), len(opened.edges)
    arrived_s = edge_round_latency_s(np.where(timed.takes_part, shorter.total_s, 0.0), place, num_edges=num_edges)
    misses = np.bincount(place, ~timed.takes_part & opened.planned, minlength=num_edges) > 0
    return replace(
        shorter,
        uploaded_bits=np.where(timed.uploaded_bits > 0.0, opened.uplink_bits, 0.0),
        edge_latency_s=np.where(misses, timed.edge_latency_s, arrived_s),
    )


def _with_relay(timed: TimedRound, relay: Relay) -> TimedRound:
    """What devices spend on each other, and uplink bits only of those who upload."""
    sending_s = np.where(timed.opened.planned, relay.sending_s(timed.opened.bits), 0.0)
    d2d_energy_j = transmit_energy_j(sending_s, transmit_power_w=relay.power_w)
    return replace(
        timed,
        uploaded_bits=np.where(relay.uploads, timed.uploaded_bits, 0.0),
        energy_j=timed.energy_j + d2d_energy_j,
        d2d_bits=np.where(timed.takes_part, relay.sends * timed.opened.bits, 0.0),
        d2d_energy_j=d2d_energy_j,
    )


def _end_of_round_s(terms: PlanningContext, arrives_s: Array) -> float:
    """When the selection has seen enough uploads; infinite if it waits for all."""
    return terms.method.selection.barrier(arrives_s, terms.shape.num_devices)


def _energy_j(terms: PlanningContext, opened: PlannedRound, compute_s: Array, uplink_s: Array) -> Array:
    compute_j = compute_energy_j(compute_s, cpu_hz=opened.cpu_hz)
    power_w = terms.radio.transmit_power_w if opened.power_w is None else np.where(opened.planned, opened.power_w, 1.0)
    if opened.relay is not None:
        uplink_s = np.where(opened.relay.uploads, uplink_s, 0.0)
        power_w = np.where(opened.relay.uploads, power_w, 1.0)
    transmit_j = transmit_energy_j(uplink_s, transmit_power_w=power_w)
    return np.where(opened.planned, compute_j + transmit_j, 0.0)
