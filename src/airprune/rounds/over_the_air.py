"""Sums over the air in a round: who is too weak to send, what the sum takes, the power that devices have really used.

All devices of an edge send at once over its whole bandwidth, when the slowest of them has trained. With W weights to
send, k of them in a symbol, and r_n the rates of the devices that send, an edge round takes

    max_n T_n  +  W / (k B)  +  Σ_n 32 / r_n

The last part is digital: each sends the length of its update, from which the station finds the common amplitude. Where
`radio.downlink` is charged, so is its broadcast. Biases are sent and not counted, as in every upload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from airprune.components.component import ModelShape
from airprune.errors import InvalidValue
from airprune.methods.aggregation.over_the_air import NAME, OverTheAir
from airprune.methods.selection.base import Candidates
from airprune.rounds.method import Method
from airprune.rounds.planning_context import PlannedRound, PlanningContext
from airprune.rounds.timing import TimedRound
from airprune.wireless.channel import downlink_rate_bps
from airprune.wireless.latency import broadcast_time_s, receive_energy_j, transmit_energy_j
from airprune.wireless.over_the_air import air_rate_bps

if TYPE_CHECKING:
    from airprune.rounds.sums import EdgeResult
    from airprune.scenario import Scenario

Array = np.ndarray
# Of the length of an update, and of the amplitude that the station answers with.
NUMBER_BITS = 32.0


def rate_over_the_air_bps(context: PlanningContext) -> float | None:
    """Returns the rate at which each device's weights arrive in a sum over the air; None: devices share the uplink."""
    edge = context.method.edge
    if not isinstance(edge, OverTheAir):
        return None
    return air_rate_bps(
        context.wire.value_bits, values_per_symbol=edge.values_per_symbol, bandwidth_hz=context.radio.bandwidth_hz
    )


def with_truncation(context: PlanningContext, planned: PlannedRound, candidates: Candidates) -> PlannedRound:
    """Returns the round without the planned devices whose channel is too bad, or too bad for a digital message."""
    edge = context.method.edge
    if not isinstance(edge, OverTheAir):
        return planned
    assert candidates.snr is not None
    snr = candidates.snr(planned.device)
    truncated = planned.in_plan & (edge.is_truncated(snr) | (candidates.link_rates_bps(planned.device) <= 0.0))
    return replace(
        planned,
        snr=snr,
        truncated=truncated,
        in_plan=planned.in_plan & ~truncated,
        share=np.where(truncated, np.nan, planned.share),
        keep=np.where(truncated, 0, planned.keep),
    )


def with_lengths(context: PlanningContext, timed: TimedRound, candidates: Candidates) -> TimedRound:
    """Returns the round with the lengths of updates that go up, one by one, and the amplitude that comes back."""
    if not isinstance(context.method.edge, OverTheAir):
        return timed
    planned, sends, radio = timed.planned, timed.takes_part, context.radio
    place, num_edges = np.searchsorted(planned.edges, planned.edge), len(planned.edges)
    rate_bps = candidates.link_rates_bps(planned.device)
    bits = np.where(sends, NUMBER_BITS, 0.0)
    time_s = np.divide(bits, rate_bps, out=np.zeros(len(bits)), where=sends)
    transmit_j = transmit_energy_j(
        time_s, transmit_power_w=radio.transmit_power_w, amplifier_efficiency=radio.amplifier_efficiency
    )
    timed = replace(
        timed,
        exchange_s=np.bincount(place, time_s, minlength=num_edges),
        exchange_bits=bits,
        uploaded_bits=timed.uploaded_bits + bits,
        energy_j=timed.energy_j + transmit_j,
    )
    if not radio.charges_downlink:
        return timed
    assert timed.downlink_s is not None and timed.downlink_bits is not None
    down_bps = downlink_rate_bps(rate_bps, radio)[sends]
    down_s = broadcast_time_s(NUMBER_BITS, down_bps, place[sends], num_edges=num_edges)
    receive_s = np.where(sends, down_s[place], 0.0)
    return replace(
        timed,
        downlink_s=timed.downlink_s + down_s,
        downlink_bits=timed.downlink_bits + NUMBER_BITS * (np.bincount(place[sends], minlength=num_edges) > 0),
        energy_j=timed.energy_j + receive_energy_j(receive_s, receive_power_w=radio.receive_power_w),
    )


def with_sent_power(context: PlanningContext, timed: TimedRound, results: Sequence[EdgeResult]) -> TimedRound:
    """Returns the round with the energy of the powers that devices have sent with: nothing of those that did not."""
    planned, radio = timed.planned, context.radio
    if planned.snr is None:
        return timed
    power_share = np.zeros(len(planned.device))
    for result in results:
        if result.sent is not None:
            place = np.searchsorted(planned.device, result.statistics.device)
            power_share[place] = result.sent.power_share
    at_limit_j = transmit_energy_j(
        planned.bits / planned.full_band_rate_bps,
        transmit_power_w=radio.transmit_power_w,
        amplifier_efficiency=radio.amplifier_efficiency,
    )
    saved_j = np.where(planned.in_plan, (1.0 - power_share) * at_limit_j, 0.0)
    return replace(timed, energy_j=timed.energy_j - saved_j)


def check_over_the_air(scenario: Scenario, method: Method, shape: ModelShape) -> None:
    """Raises one sentence where signals would not align, or noise would meet what cannot bear it."""
    if not isinstance(method.edge, OverTheAir):
        return
    radio, with_it = scenario.radio, f"with aggregation {NAME!r}"
    wrong: dict[str, tuple[bool, str, object, str]] = {
        "plan.scheme": (
            method.scheme.adapts or not method.scheme.takes_groups,
            f"must be 'no-pruning' {with_it}: all devices send at once, whatever their shares",
            repr(method.scheme.name),
            'Example: "no-pruning"',
        ),
        "plan.framing": (
            scenario.plan.framing,
            f"must be false {with_it}: no bytes travel",
            True,
            "Set plan.framing = false",
        ),
        "radio.num_antennas": (
            radio.num_antennas > 1,
            f"must be 1 {with_it}: signals are aligned at one antenna",
            radio.num_antennas,
            "Set radio.num_antennas = 1",
        ),
        "radio.csi_correlation": (
            not scenario.build_radio().knows_fading,
            f"must be 1 {with_it}, without pilots and age of estimates: devices invert channels that they know",
            f"{scenario.build_radio().csi_correlation:g} in all",
            "Set radio.csi_correlation = 1 and radio.pilots = 0",
        ),
        "radio.reuse": (
            radio.reuse is not None,
            f"must be none {with_it}, whose noise is the receiver's alone",
            radio.reuse,
            "Leave radio.reuse out",
        ),
        "radio.power_p0_dbm": (
            radio.power_p0_dbm is not None,
            f"must be none {with_it}, which sets powers itself",
            radio.power_p0_dbm,
            "Leave radio.power_p0_dbm out",
        ),
        "radio.report_bits": (
            radio.report_bits > 0.0,
            f"must be 0 {with_it}, which charges the reports that it needs",
            f"{radio.report_bits:g}",
            "Set radio.report_bits = 0",
        ),
        "model.personal": (
            bool(scenario.model.personal),
            f"must be empty {with_it}, whose noise would meet layers that no device sends",
            list(scenario.model.personal),
            "Leave model.personal out",
        ),
    }
    for field, (is_wrong, rule, got, way_out) in wrong.items():
        if is_wrong:
            raise InvalidValue(f"Scenario.{field}", rule, got, way_out)
    if shape.num_state > shape.num_parameters:
        rule = f"must not be {NAME!r} for a model with running variances, which noise could make negative"
        way_out = "Choose a model without batch normalisation"
        raise InvalidValue("Scenario.aggregation.edge", rule, repr(NAME), way_out)
