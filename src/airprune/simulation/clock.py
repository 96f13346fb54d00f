"""The simulated clock of one edge round: how long devices compute and upload, what it costs, who is late or lost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from airprune.channel import uplink_rate_bps
from airprune.federation.edge import OpenRound, Terms
from airprune.latency import compute_energy_j, edge_round_latency_s, transmit_energy_j, uplink_time_s
from airprune.randomness import rng_for

if TYPE_CHECKING:
    from airprune.scenario import EventsSection

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
class Events:
    """What goes wrong in one edge round.  Arrays follow the devices asked

    Attributes:
      dropped: who disappears.
      slowdown: by what factor compute slows down.
    """

    dropped: Array
    slowdown: Array

    @classmethod
    def drawn(
        cls, section: EventsSection, device: Array, num_devices: int, *, seed: int, global_round: int, edge_round: int
    ) -> Events:
        """The same for every scheme: drawn for all devices of the network, asked or not."""
        draws = rng_for(seed, "events", global_round, edge_round).random((num_devices, 2))[device]
        return cls(
            dropped=draws[:, 0] < section.dropout_probability,
            slowdown=np.where(draws[:, 1] < section.straggler_probability, section.straggler_slowdown, 1.0),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedRound:
    """An edge round as the clock sees it. Per-device arrays follow `device`.  [num_devices]

    Attributes:
      ratio: ρ_n after rounding to whole weights; NaN for blocked devices.
      uploaded_bits: what each device sends; 0 if it does not arrive.
      compute_s, uplink_s: its simulated times, stragglers included; NaN for blocked devices.
      energy_j: for compute and transmission.
      fate: a `Fate` word.
      edge_latency_s: how long each edge waits, Eq. (16).  [num_edges]
    """

    opened: OpenRound
    ratio: Array
    uploaded_bits: Array
    compute_s: Array
    uplink_s: Array
    energy_j: Array
    fate: Array
    edge_latency_s: Array

    @property
    def takes_part(self) -> Array:
        return self.fate == Fate.OK


def time_round(terms: Terms, opened: OpenRound, events: Events) -> TimedRound:
    """Times, energies and fates of a planned round."""
    planned, shape = opened.planned, terms.shape
    weights = shape.fixed_weights + opened.keep
    training_s = terms.compute.training_s(
        weights, opened.device, opened.cpu_hz, dense_gradients=opened.charges.dense_gradients
    )
    compute_s = training_s + terms.compute.probe_s(opened.cpu_hz) if opened.charges.probe else training_s
    powered_s = compute_s if terms.compute.probe_takes_energy else training_s
    rate_bps = uplink_rate_bps(np.where(planned, opened.share, 1.0), opened.full_band_rate_bps)
    uplink_s = uplink_time_s(opened.bits, rate_bps, bits_per_weight=1.0)
    planned_s = compute_s + uplink_s

    compute_s = compute_s * events.slowdown
    limit_s = np.maximum(opened.deadline_s, planned_s) * (1.0 + 1e-9)
    late = compute_s + uplink_s > limit_s
    fate = np.select([~planned, events.dropped, late], [Fate.BLOCKED, Fate.DROPPED, Fate.LATE], Fate.OK)
    # An edge that misses somebody waits until the deadline, or until a baseline that ignores it would have arrived.
    waits_s = np.where(fate == Fate.OK, compute_s + uplink_s, np.where(planned, limit_s, 0.0))
    place = np.searchsorted(opened.edges, opened.edge)
    return TimedRound(
        opened=opened,
        ratio=np.where(planned, 1.0 - opened.keep / shape.prunable_weights, np.nan),
        uploaded_bits=np.where(fate == Fate.OK, opened.bits, 0.0),
        compute_s=np.where(planned, compute_s, np.nan),
        uplink_s=np.where(planned, uplink_s, np.nan),
        energy_j=_energy_j(terms, opened, powered_s, uplink_s),
        fate=fate.astype(str),
        edge_latency_s=edge_round_latency_s(waits_s, place, num_edges=len(opened.edges)),
    )


def _energy_j(terms: Terms, opened: OpenRound, compute_s: Array, uplink_s: Array) -> Array:
    compute_j = compute_energy_j(compute_s, cpu_hz=opened.cpu_hz)
    power_w = terms.radio.transmit_power_w if opened.power_w is None else np.where(opened.planned, opened.power_w, 1.0)
    transmit_j = transmit_energy_j(uplink_s, transmit_power_w=power_w)
    return np.where(opened.planned, compute_j + transmit_j, 0.0)
