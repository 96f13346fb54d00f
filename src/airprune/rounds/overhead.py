"""Counts what a first edge round takes beside computing and updates: pilots, channel reports, and the way down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airprune.errors import Infeasible
from airprune.rounds.downlink import with_downlink
from airprune.rounds.edge import select_and_plan
from airprune.rounds.first_round import FirstRound, before_first_round, first_round
from airprune.rounds.timing import Events, time_round
from airprune.wireless.channel import uplink_rate_bps
from airprune.wireless.latency import transmit_energy_j

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Overhead:
    """Times, bits and energies of a round as it would run, without the devices that block their edge.

    Attributes:
      deadline_s: of the round.
      pilot_s: in which all devices of each device's edge send their pilots.  [num_devices]
      pilot_j: of each device's own pilots.  [num_devices]
      report_bits: of one channel report.
      report_s, report_j: of each device's report.  [num_devices]
      downlink_s, downlink_bits: of the models that each edge sends; 0 where they are free.  [num_edges]
      energy_j: of each device in the whole round.  [num_devices]
      mean_ratio, free_mean_ratio: mean pruning ratio of devices with a plan, and what it would be if the same knowledge
        of the channels took neither pilots nor reports.
    """

    deadline_s: float
    pilot_s: Array
    pilot_j: Array
    report_bits: float
    report_s: Array
    report_j: Array
    downlink_s: Array
    downlink_bits: Array
    energy_j: Array
    mean_ratio: float
    free_mean_ratio: float

    def as_json(self) -> dict[str, Any]:
        """Returns its means over devices and its largest times; None for what no device has."""
        values = {
            "pilot_ms": 1e3 * _largest(self.pilot_s),
            "pilot_time_share": _largest(self.pilot_s) / self.deadline_s,
            "pilot_j": _mean(self.pilot_j),
            "report_bits": self.report_bits,
            "report_ms": 1e3 * _mean(self.report_s),
            "report_time_share": _mean(self.report_s) / self.deadline_s,
            "report_j": _mean(self.report_j),
            "energy_j": _mean(self.energy_j),
            "energy_share": (_mean(self.pilot_j) + _mean(self.report_j)) / _mean(self.energy_j),
            "downlink_ms": 1e3 * _largest(self.downlink_s),
            "downlink_bits": float(np.sum(self.downlink_bits)),
            "mean_pruning_ratio": self.mean_ratio,
            "free_mean_pruning_ratio": self.free_mean_ratio,
        }
        return {name: value if np.isfinite(value) else None for name, value in values.items()}


def overhead_of(found: FirstRound) -> Overhead | None:
    """Returns the overhead of a planned round; None where its radio has none, or no edge has a plan."""
    radio = found.experiment.radio
    if not (radio.pilots or radio.report_bits or radio.charges_downlink):
        return None
    if found.plan.failed.all():
        return None
    state, context, candidates, cpu_hz = before_first_round(found.experiment)
    context = replace(context, plan=context.plan.model_copy(update={"infeasible": "drop"}))
    try:
        planned = select_and_plan(context, candidates, cpu_hz, 0, found.experiment.kappa(state))
    except Infeasible:  # others block an edge once the blocking ones have left, as with interference
        return None
    used = planned.in_plan
    power_w = planned.power_w
    if candidates.power_w is not None:
        planned = replace(planned, power_w=candidates.power_w(planned.device))
        power_w = planned.power_w
    calm = Events(dropped=np.zeros(len(used), dtype=bool), slowdown=np.ones(len(used)))
    timed = with_downlink(context, time_round(context, planned, calm), candidates)

    sent_w = np.broadcast_to(radio.transmit_power_w if power_w is None else power_w, used.shape)[used]
    share = planned.share[used]
    report_s = radio.report_bits / uplink_rate_bps(share, planned.full_band_rate_bps[used], radio.slice_bandwidth_hz)
    sending_s = report_s * share if radio.num_streams > 1 else report_s  # a group's device radiates in its turn alone
    energy = {"transmit_power_w": sent_w, "amplifier_efficiency": radio.amplifier_efficiency}
    nothing = np.zeros(len(planned.edges))
    return Overhead(
        deadline_s=planned.deadline_s,
        pilot_s=context.sounding_s(planned.edge[used]),
        pilot_j=transmit_energy_j(np.full(len(share), radio.pilot_s), **energy),
        report_bits=radio.report_bits,
        report_s=report_s,
        report_j=transmit_energy_j(sending_s, **energy),
        downlink_s=nothing if timed.downlink_s is None else timed.downlink_s,
        downlink_bits=nothing if timed.downlink_bits is None else timed.downlink_bits,
        energy_j=timed.energy_j[used],
        mean_ratio=_mean_ratio(found),
        free_mean_ratio=_mean_ratio(_if_free(found)),
    )


def overhead_sentences(overhead: Overhead) -> list[str]:
    """Returns it in words: what pilots and reports take, what they cost in pruning, and what the downlink takes."""
    one, sentences = overhead.as_json(), []
    if overhead.pilot_s.any():
        sentences.append(
            f"Pilots take {one['pilot_ms']:.3g} ms of a round at an edge, {100 * one['pilot_time_share']:.2g} % of the "
            f"deadline, and {_joules(one['pilot_j'])} of each device."
        )
    if overhead.report_bits:
        sentences.append(
            f"A channel report of {overhead.report_bits:g} bits takes {one['report_ms']:.3g} ms on average, "
            f"{100 * one['report_time_share']:.2g} % of the deadline, and {_joules(one['report_j'])}."
        )
    if sentences:
        sentences.append(
            f"That is {100 * one['energy_share']:.2g} % of a device's {_joules(one['energy_j'])}; if plans knew as "
            f"much for free, mean pruning would be {100 * overhead.free_mean_ratio:.2f} % instead of "
            f"{100 * overhead.mean_ratio:.2f} %."
        )
    if overhead.downlink_bits.any():
        sentences.append(
            f"The models go down in {one['downlink_ms']:.4g} ms at the slowest edge, {one['downlink_bits'] / 1e6:.3g} "
            "Mbit in all, before the time that the deadline counts."
        )
    return sentences


def _if_free(found: FirstRound) -> FirstRound:
    """Returns the same round with what plans know of channels as it is, without its pilots and reports."""
    radio = replace(found.experiment.radio, pilots=0, report_bits=0.0)
    return first_round(replace(found.experiment, radio=radio))


def _mean_ratio(found: FirstRound) -> float:
    return _mean(found.plan.pruning_ratio[np.isfinite(found.plan.pruning_ratio)])


def _mean(values: Array) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _largest(values: Array) -> float:
    return float(np.max(values)) if len(values) else float("nan")


def _joules(value: float) -> str:
    """Returns an energy in J, mJ or µJ."""
    for unit, scale in (("J", 1.0), ("mJ", 1e3)):
        if value * scale >= 1.0:
            return f"{value * scale:.3g} {unit}"
    return f"{1e6 * value:.3g} µJ"
