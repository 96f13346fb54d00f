"""The simulated clock of one edge round: compute and upload times, energies, and each device's outcome."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.methods.topology.relay import Relay
from airprune.planning.plan import Status
from airprune.randomness import rng_for
from airprune.rounds.planning_context import PlannedRound, PlanningContext
from airprune.rounds.relayed import with_unions as united
from airprune.wireless.channel import uplink_rate_bps
from airprune.wireless.latency import (
    compute_energy_j,
    edge_round_latency_s,
    idle_energy_j,
    transmit_energy_j,
    uplink_time_s,
)

if TYPE_CHECKING:
    from airprune.scenario import EventsSection

Array = np.ndarray

# A time above the deadline by less than this factor is rounding.
_ROUNDING = 1.0 + 1e-9
# A device whose true link is nearly nothing gives up after so many times what it had.
GIVEN_UP = 1000.0


class DeviceOutcome(StrEnum):
    """The outcome of a device in one edge round."""

    OK = "ok"
    """It uploaded in time and counts in the average."""
    BLOCKED = "blocked"
    """It made its edge infeasible and was excluded by the planner."""
    TRUNCATED = "truncated"
    """Its channel was too bad to send over the air with the others, and the edge excluded it."""
    DROPPED = "dropped"
    """It disappeared after planning."""
    LATE = "late"
    """It straggled and missed the deadline, or the end of a round that waits for enough others."""
    FAILED = "failed"
    """Its training failed for good, and `engine.on_device_failure` is to go on without it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Events:
    """Dropouts and stragglers of one edge round.  Arrays follow the selected devices

    Attributes:
      dropped: True for devices that disappear.
      slowdown: factor by which compute slows down.
    """

    dropped: Array
    slowdown: Array


def sample_events(
    section: EventsSection, device: Array, num_devices: int, *, seed: int, global_round: int, edge_round: int
) -> Events:
    """Samples the events of these devices: the same for every scheme, since for all devices of the network."""
    if section.dropout_probability == section.straggler_probability == 0.0:
        return Events(dropped=np.zeros(len(device), dtype=bool), slowdown=np.ones(len(device)))
    draws = rng_for(seed, "events", global_round, edge_round).random((num_devices, 2))[device]
    return Events(
        dropped=draws[:, 0] < section.dropout_probability,
        slowdown=np.where(draws[:, 1] < section.straggler_probability, section.straggler_slowdown, 1.0),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedRound:
    """An edge round as the clock sees it. Per-device arrays follow `device`.  [num_devices]

    Attributes:
      ratio: ρ_n after rounding to whole weights; NaN for blocked devices.
      uploaded_bits: what each device sends; 0 if it does not arrive.
      compute_s, uplink_s: its simulated times, stragglers included; NaN for blocked devices. If another device
        uploads for it, that upload's.
      energy_j: for compute and transmission, for reception where the downlink is charged, and for being on where
        `clock.idle_power_w` says so.
      outcome: a `DeviceOutcome` word.
      edge_latency_s: how long each edge waits, Eq. (16).  [num_edges]
      downlink_s, downlink_bits: of the models that each edge sends before; None where that is free.  [num_edges]
      exchange_s: of the messages of secure sums beside the updates; None without.  [num_edges]
      exchange_bits: what each device sends of them, a part of `uploaded_bits`.
      relay_s: how long it waits between training and uplink, for exchanges between devices; None without any.
      d2d_bits, d2d_energy_j: what it sends to other devices, and the part of `energy_j` that this takes.
    """

    planned: PlannedRound
    ratio: Array
    uploaded_bits: Array
    compute_s: Array
    uplink_s: Array
    energy_j: Array
    outcome: Array
    edge_latency_s: Array
    relay_s: Array | None = None
    d2d_bits: Array | None = None
    d2d_energy_j: Array | None = None
    downlink_s: Array | None = None
    downlink_bits: Array | None = None
    exchange_s: Array | None = None
    exchange_bits: Array | None = None

    @property
    def takes_part(self) -> Array:
        return self.outcome == DeviceOutcome.OK

    @property
    def total_s(self) -> Array:
        """Time until its update has reached the edge."""
        waits_s = 0.0 if self.relay_s is None else self.relay_s
        return self.compute_s + waits_s + self.uplink_s

    @property
    def edge_round_s(self) -> Array:
        """Duration of each edge's round: its downlink, if charged, its wait, and other messages.  [num_edges]"""
        took_s = self.edge_latency_s if self.downlink_s is None else self.downlink_s + self.edge_latency_s
        return took_s if self.exchange_s is None else took_s + self.exchange_s

    @property
    def edge_status(self) -> Array:
        """`ok` or `late` by whether the edge's wait met the deadline, whatever was planned; without a plan, why.

        Stragglers do not make an edge late: it goes on without them at the deadline.  [num_edges]
        """
        status = self.planned.status
        is_late = self.edge_latency_s > self.planned.deadline_s * _ROUNDING
        return np.where(np.isin(status, [Status.OK, Status.LATE]), np.where(is_late, Status.LATE, Status.OK), status)

    def only(self, kept: Array) -> TimedRound:
        """The same round with some of its devices; the edges stay."""
        return replace(
            self,
            planned=replace(
                self.planned, **_indexed(self.planned, kept, but=("edges", "status", "shadow_price", "mask"))
            ),
            **_indexed(self, kept, but=("edge_latency_s", "downlink_s", "downlink_bits", "exchange_s")),
        )


def _indexed(value: Any, kept: Array, *, but: tuple[str, ...]) -> dict[str, Any]:
    """Its arrays per device, with some of the devices."""
    arrays = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in but}
    return {name: array[kept] for name, array in arrays.items() if isinstance(array, np.ndarray)}


def time_round(context: PlanningContext, planned: PlannedRound, events: Events, *, strict: bool = False) -> TimedRound:
    """Returns times, energies and outcomes of a planned round.

    Args:
      strict: whether the deadline also holds for a plan that exceeds it, as of work whose length no plan could know.
    """
    in_plan, shape = planned.in_plan, context.shape
    compute_s, training_s = _compute_s(context, planned)
    powered_s = compute_s if context.compute.probe_takes_energy else training_s
    uplink_s = _uplink_s(context, planned, planned.full_band_rate_bps)
    relay, relay_s = planned.relay, None
    if relay is not None:
        relay_s = np.maximum(relay.over_s(compute_s, planned.bits, planned.edge) - compute_s, 0.0)
    after_s = uplink_s if relay_s is None else relay_s + uplink_s
    planned_s = compute_s + after_s

    compute_s = compute_s * events.slowdown
    limit_s = np.maximum(planned.deadline_s, 0.0 if strict else planned_s) * _ROUNDING
    if planned.true_rate_bps is not None:
        uplink_s = np.minimum(_uplink_s(context, planned, planned.true_rate_bps), GIVEN_UP * limit_s)
        after_s = uplink_s if relay_s is None else relay_s + uplink_s
    total_s = compute_s + after_s
    arrives_s = np.where(in_plan & ~events.dropped & (total_s <= limit_s), total_s, np.inf)
    ends_s = context.method.selection.barrier(arrives_s, shape.num_devices)  # infinite if it waits for all
    late = total_s > np.minimum(limit_s, ends_s)
    outcome = np.select(
        [~in_plan, events.dropped, late],
        [DeviceOutcome.BLOCKED, DeviceOutcome.DROPPED, DeviceOutcome.LATE],
        DeviceOutcome.OK,
    )
    if planned.truncated is not None:
        outcome = np.where(planned.truncated, DeviceOutcome.TRUNCATED, outcome)
    if relay is not None:  # what was handed to a device that does not arrive is lost with it
        outcome = np.where(outcome[relay.head] == DeviceOutcome.OK, outcome, outcome[relay.head])
    # An edge that misses a device waits until the deadline, or until a baseline that ignores it would have arrived.
    waits_s = np.minimum(np.where(outcome == DeviceOutcome.OK, total_s, np.where(in_plan, limit_s, 0.0)), ends_s)
    place = np.searchsorted(planned.edges, planned.edge)
    sends_s = uplink_s
    if planned.true_rate_bps is not None:  # an upload that misses the deadline ends there
        sends_s = np.minimum(uplink_s, np.maximum(limit_s - (total_s - uplink_s), 0.0))
    arrives, energy_j = outcome == DeviceOutcome.OK, _energy_j(context, planned, powered_s, sends_s)
    timed = TimedRound(
        planned=planned,
        ratio=np.where(in_plan, 1.0 - planned.keep / shape.prunable_weights, np.nan),
        uploaded_bits=np.where(arrives, planned.uplink_bits, 0.0),
        compute_s=np.where(in_plan, compute_s, np.nan),
        uplink_s=np.where(in_plan, uplink_s, np.nan),
        energy_j=energy_j,
        outcome=outcome.astype(str),
        edge_latency_s=edge_round_latency_s(waits_s, place, num_edges=len(planned.edges)),
        relay_s=None if relay_s is None else np.where(in_plan, relay_s, np.nan),
    )
    return timed if relay is None else _with_relay(timed, relay)


def _uplink_s(context: PlanningContext, planned: PlannedRound, full_band_rate_bps: Array) -> Array:
    """Returns upload times at these rates of the whole bandwidth; of the device that uploads for it, where one does."""
    share = np.where(planned.in_plan, planned.share, 1.0)
    rate_bps = uplink_rate_bps(share, full_band_rate_bps, context.radio.slice_bandwidth_hz)
    uplink_s = uplink_time_s(planned.uplink_bits, rate_bps, bits_per_weight=1.0)
    if context.radio.pilots:
        uplink_s = uplink_s + context.sounding_s(planned.edge)
    return uplink_s if planned.relay is None else uplink_s[planned.relay.head]


def _compute_s(context: PlanningContext, planned: PlannedRound) -> tuple[Array, Array]:
    """Returns compute times with and without a probe; planned work has its probe in both."""
    if planned.compute_s is not None:
        return planned.compute_s, planned.compute_s
    training_s = context.training_s(planned.keep, planned.device, planned.cpu_hz, planned.charges)
    if not planned.charges.probe:
        return training_s, training_s
    return training_s + context.compute.probe_s(planned.device, planned.cpu_hz), training_s


def with_unions(context: PlanningContext, timed: TimedRound, union: Array) -> TimedRound:
    """The round as it came out: for each group, so many prunable weights went up, never more than had been reserved.

    Uploads end earlier and take less energy; a device that missed the deadline still has, and an edge that misses a
    device still waits.
    """
    before, planned = timed.planned, united(context, timed.planned, union)
    assert planned.relay is not None
    saved = 1.0 - planned.uplink_bits / before.uplink_bits
    uplink_s = timed.uplink_s * (1.0 - saved)
    power_w = context.radio.transmit_power_w if planned.power_w is None else planned.power_w
    power_w = power_w / context.radio.amplifier_efficiency
    saved_j = np.where(planned.relay.uploads & planned.in_plan, power_w * timed.uplink_s * saved, 0.0)
    shorter = replace(timed, planned=planned, uplink_s=uplink_s, energy_j=timed.energy_j - saved_j)
    place, num_edges = np.searchsorted(planned.edges, planned.edge), len(planned.edges)
    arrived_s = edge_round_latency_s(np.where(timed.takes_part, shorter.total_s, 0.0), place, num_edges=num_edges)
    misses = np.bincount(place, ~timed.takes_part & planned.in_plan, minlength=num_edges) > 0
    return replace(
        shorter,
        uploaded_bits=np.where(timed.uploaded_bits > 0.0, planned.uplink_bits, 0.0),
        edge_latency_s=np.where(misses, timed.edge_latency_s, arrived_s),
    )


def _with_relay(timed: TimedRound, relay: Relay) -> TimedRound:
    """Adds what devices spend on each other, and keeps uplink bits only of those that upload."""
    sending_s = np.where(timed.planned.in_plan, relay.sending_s(timed.planned.bits), 0.0)
    d2d_energy_j = transmit_energy_j(sending_s, transmit_power_w=relay.power_w)
    return replace(
        timed,
        uploaded_bits=np.where(relay.uploads, timed.uploaded_bits, 0.0),
        energy_j=timed.energy_j + d2d_energy_j,
        d2d_bits=np.where(timed.takes_part, relay.sends * timed.planned.bits, 0.0),
        d2d_energy_j=d2d_energy_j,
    )


def with_idle_energy(context: PlanningContext, timed: TimedRound, lag: Array) -> TimedRound:
    """Returns the round with what its planned devices take by being on; unchanged where that is nothing.

    A device that began `lag` rounds ago has been on for as many rounds more. Waiting for other edges is not counted.
    """
    if context.clock.idle_power_w == 0.0:
        return timed
    planned = timed.planned
    on_s = timed.edge_round_s[np.searchsorted(planned.edges, planned.edge)] * (1 + lag)
    idle_j = idle_energy_j(on_s, idle_power_w=context.clock.idle_power_w)
    return replace(timed, energy_j=timed.energy_j + np.where(planned.in_plan, idle_j, 0.0))


def _radiating_s(context: PlanningContext, planned: PlannedRound, uplink_s: Array) -> Array:
    """Returns the time in which devices send their own pilots, and their updates in their group's share of the time."""
    data_s = np.maximum(uplink_s - context.sounding_s(planned.edge), 0.0)
    if context.radio.num_streams > 1:
        data_s = data_s * np.where(planned.in_plan, planned.share, 0.0)
    return data_s + context.radio.pilot_s


def _energy_j(context: PlanningContext, planned: PlannedRound, compute_s: Array, uplink_s: Array) -> Array:
    clock = context.clock
    compute_j = compute_energy_j(
        compute_s,
        cpu_hz=planned.cpu_hz,
        effective_capacitance=clock.effective_capacitance,
        num_cores=clock.energy_cores,
    )
    power_w = (
        context.radio.transmit_power_w if planned.power_w is None else np.where(planned.in_plan, planned.power_w, 1.0)
    )
    if context.radio.num_streams > 1 or context.radio.pilots:
        uplink_s = _radiating_s(context, planned, uplink_s)
    if planned.relay is not None:
        uplink_s = np.where(planned.relay.uploads, uplink_s, 0.0)
        power_w = np.where(planned.relay.uploads, power_w, 1.0)
    transmit_j = transmit_energy_j(
        uplink_s, transmit_power_w=power_w, amplifier_efficiency=context.radio.amplifier_efficiency
    )
    return np.where(planned.in_plan, compute_j + transmit_j, 0.0)
