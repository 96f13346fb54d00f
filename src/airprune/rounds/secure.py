"""Secure sums in a round: which devices hide their updates together, what their exchange costs, what it excludes.

The masked update is an upload like any other, at q̂ bits per weight, and keeps the deadline. Beside it an edge and its
devices exchange keys and shares before training, and shares after the updates have arrived. In each of these steps the
edge waits for the slowest device, at its share of the bandwidth: with n planned and s surviving devices a round takes

    max_n 8 (keys + shares) / r_n  +  the round  +  max_s 8 revealed / r_s

Where `radio.downlink` is charged, all keys, each device's shares and the list of survivors are, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from airprune.errors import InvalidValue
from airprune.methods.aggregation import Aggregation
from airprune.methods.aggregation.cohort import CohortView
from airprune.methods.aggregation.over_the_air import OverTheAir
from airprune.methods.secure.cohort import SecureCohort
from airprune.methods.secure.exchange import Sizes
from airprune.methods.selection.base import Candidates
from airprune.rounds.method import Method
from airprune.rounds.planning_context import PlanningContext
from airprune.rounds.timing import GIVEN_UP, TimedRound
from airprune.wireless.channel import downlink_rate_bps, uplink_rate_bps
from airprune.wireless.latency import (
    broadcast_time_s,
    edge_round_latency_s,
    receive_energy_j,
    transmit_energy_j,
    unicast_time_s,
    uplink_time_s,
)

if TYPE_CHECKING:
    from airprune.scenario import Scenario
    from airprune.scenario.sections import PrivacySection

Array = np.ndarray
BYTE_BITS = 8.0
# Standard deviations of noise that fixed point must hold, and steps that one must have.
UNCUT, FINE = 8.0, 1000.0


def hides(method: Method) -> bool:
    """Returns whether devices hide their updates from their edge."""
    return method.edge.overrides(Aggregation.cohort) and not isinstance(method.edge, OverTheAir)


def check_noise(privacy: PrivacySection, cohort: SecureCohort) -> None:
    """Checks that fixed point neither cuts a device's noise nor is coarse beside it."""
    if not privacy.noise_multiplier:
        return
    assert privacy.clip_norm is not None
    std = privacy.noise_multiplier * privacy.clip_norm
    if privacy.noise_of == "sum":
        std /= cohort.threshold**0.5
    fixed, least = cohort.fixed, privacy.clip_norm + UNCUT * std
    if fixed.limit < least:
        rule = f"must be ≥ {least:.3g}, the clipping norm and {UNCUT:g} standard deviations of a device's noise"
        raise InvalidValue("Scenario.aggregation.secure-sum.limit", rule, f"{fixed.limit:g}", f"Example: {least:.2g}")
    if fixed.step > std / FINE:
        rule = f"must leave a device's noise at least {FINE:g} steps of its fixed point"
        got = f"{fixed.word_bits}: {std / fixed.step:.0f} steps"
        raise InvalidValue("Scenario.plan.bits_per_weight", rule, got, "Example: bits_per_weight = 32")


def with_exchange(context: PlanningContext, timed: TimedRound, candidates: Candidates) -> TimedRound:
    """Returns the round with the messages of secure sums: their time, bits and energy; unchanged without."""
    if not hides(context.method):
        return timed
    planned, in_plan, arrives = timed.planned, timed.planned.in_plan, timed.takes_part
    place, num_edges = np.searchsorted(planned.edges, planned.edge), len(planned.edges)
    sizes = [Sizes(int(n)) for n in np.bincount(place[in_plan], minlength=num_edges)]
    opens = _opens(context, sizes, np.bincount(place[arrives], minlength=num_edges))
    before = BYTE_BITS * np.array([size.keys + size.shares for size in sizes], dtype=np.float64)[place]
    after = BYTE_BITS * (opens * np.array([size.revealed for size in sizes], dtype=np.float64))[place]
    rate_bps = uplink_rate_bps(
        np.where(in_plan, planned.share, 1.0),
        planned.full_band_rate_bps if planned.true_rate_bps is None else planned.true_rate_bps,
        context.radio.slice_bandwidth_hz,
    )
    bits = np.where(in_plan, before, 0.0), np.where(arrives, after, 0.0)
    before_s, after_s = (uplink_time_s(sent, rate_bps, bits_per_weight=1.0) for sent in bits)
    if planned.true_rate_bps is not None:
        before_s = np.minimum(before_s, GIVEN_UP * planned.deadline_s)
    waits_s = [edge_round_latency_s(step_s, place, num_edges=num_edges) for step_s in (before_s, after_s)]
    power_w = context.radio.transmit_power_w if planned.power_w is None else np.where(in_plan, planned.power_w, 1.0)
    transmit_j = transmit_energy_j(
        before_s + after_s, transmit_power_w=power_w, amplifier_efficiency=context.radio.amplifier_efficiency
    )
    timed = replace(
        timed,
        exchange_s=waits_s[0] + waits_s[1],
        exchange_bits=bits[0] + bits[1],
        uploaded_bits=timed.uploaded_bits + bits[0] + bits[1],
        energy_j=timed.energy_j + transmit_j,
    )
    return _with_downlink(context, timed, candidates, sizes, opens) if context.radio.charges_downlink else timed


def _opens(context: PlanningContext, sizes: list[Sizes], num_arrived: Array) -> Array:
    """Returns whether each edge has updates enough to open its sum; else it does not ask for shares.  [num_edges]"""
    bits, edge = context.wire.value_bits, context.method.edge
    cohorts = [edge.cohort(_anonymous(size.num_devices, bits)) for size in sizes]
    least = [np.inf if cohort is None else cohort.threshold for cohort in cohorts]
    return np.asarray(num_arrived >= np.array(least))


def _with_downlink(
    context: PlanningContext, timed: TimedRound, candidates: Candidates, sizes: list[Sizes], opens: Array
) -> TimedRound:
    """Adds the edge's messages: keys and survivors for all, shares for each device in turn."""
    planned, gets = timed.planned, timed.planned.in_plan
    place, num_edges = np.searchsorted(planned.edges, planned.edge), len(planned.edges)
    rate_bps = downlink_rate_bps(candidates.link_rates_bps(planned.device), context.radio)[gets]
    common = BYTE_BITS * np.array(
        [size.all_keys + (size.survivors if there else 0) for size, there in zip(sizes, opens, strict=True)]
    )
    own = BYTE_BITS * np.array([size.shares for size in sizes], dtype=np.float64)[place[gets]]
    common_s = broadcast_time_s(common[place[gets]], rate_bps, place[gets], num_edges=num_edges)
    time_s = common_s + unicast_time_s(own, rate_bps, place[gets], num_edges=num_edges)
    receive_s = np.zeros(len(gets))
    receive_s[gets] = common_s[place[gets]] + own / rate_bps
    receive_j = receive_energy_j(receive_s, receive_power_w=context.radio.receive_power_w)
    assert timed.downlink_s is not None and timed.downlink_bits is not None
    return replace(
        timed,
        downlink_s=timed.downlink_s + time_s,
        downlink_bits=timed.downlink_bits + common + np.bincount(place[gets], own, minlength=num_edges),
        energy_j=timed.energy_j + receive_j,
    )


def _anonymous(num_devices: int, word_bits: float) -> CohortView:
    """Returns a view for what a cohort has whoever is in it: its threshold and its fixed point."""
    return CohortView(devices=tuple(range(num_devices)), word_bits=word_bits)


def check_secure(scenario: Scenario, method: Method) -> None:
    """Raises one sentence where updates cannot be hidden, or something else would show them."""
    if not hides(method):
        if scenario.privacy.noise_of == "sum":
            rule = "must be update unless aggregation.edge is secure-sum: else edges see every update"
            raise InvalidValue("Scenario.privacy.noise_of", rule, "sum", 'Example: aggregation.edge = "secure-sum"')
        return
    method.edge.cohort(_anonymous(2, scenario.plan.bits_per_weight))
    _check_words(scenario)


def _check_words(scenario: Scenario) -> None:
    """Checks that, where uploads are charged as they travel, a word takes the place of a number of the model."""
    if scenario.plan.framing:
        check_words(scenario, "plan.framing")


def check_words(scenario: Scenario, where: str) -> None:
    """Checks that words have the bits of the model's numbers."""
    bits, own = scenario.plan.bits_per_weight, 64 if scenario.model.float64 else 32
    if bits != own:
        rule = f"must be {own} with {where} and aggregation 'secure-sum', whose words replace the model's numbers"
        raise InvalidValue("Scenario.plan.bits_per_weight", rule, f"{bits:g}", f"Example: bits_per_weight = {own}")
