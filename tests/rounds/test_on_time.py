"""On-time probabilities of planned devices, and what more of it costs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from airprune.errors import InvalidValue
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.rounds.on_time import on_time_probability, promises
from airprune.scenario import Scenario
from airprune.wireless.channel import uplink_rate_bps
from airprune.wireless.channels.base import link_rates_bps
from support.processes import airprune

FEW = ((np.zeros((25, 1, 28, 28), np.float32), np.arange(25) % 10),) * 2  # plans do not depend on samples
FADING = {"radio.fading": "rayleigh", "radio.num_antennas": 4, "radio.csi_correlation": 0.9, "plan.deadline_s": 0.04}


def planned(**changes):
    values = FADING | {key.replace("__", "."): value for key, value in changes.items()}
    return first_round(Experiment.of(Scenario.preset("demo").with_values(values), dataset=FEW))


def test_plans_that_know_the_fading_have_no_probability():
    assert on_time_probability(planned(radio__csi_correlation=1.0)) is None


def test_stragglers_are_part_of_the_probability():
    """Stragglers alone, by arithmetic; and with channels by chance, the two cases of the sum."""
    rare = {"events__straggler_probability": 0.04, "events__straggler_slowdown": 50.0}
    known = on_time_probability(planned(radio__csi_correlation=1.0, **rare))
    pressed = planned(radio__csi_correlation=1.0, **rare)
    at_deadline = pressed.plan.latency_s > 0.999 * pressed.problem.deadline_s
    assert at_deadline.any() and known[at_deadline] == pytest.approx(0.96, rel=1e-12)
    assert set(known.tolist()) <= {0.96, 1.0}
    promised = planned(plan__on_time=0.95, **rare)
    probability = on_time_probability(promised)
    assert (probability >= 0.95 - 1e-5).all()
    usual = on_time_probability(planned(plan__on_time=0.95 / 0.96))
    bound = promised.plan.latency_s > promised.problem.deadline_s * (1 - 1e-9)
    assert probability[bound] == pytest.approx(0.96 * usual[bound], rel=1e-9)  # stragglers are never in time
    frequent = planned(plan__on_time=0.95, events__straggler_probability=0.3, events__straggler_slowdown=2.0)
    assert (on_time_probability(frequent) >= 0.95 - 1e-5).all()
    assert frequent.problem.seconds_per_weight == pytest.approx(2.0 * promised.problem.seconds_per_weight, rel=1e-12)


def test_prices_count_stragglers():
    one = {"events__straggler_probability": 0.03, "events__straggler_slowdown": 4.0}
    given, price = planned(**one), {found.on_time: found for found in promises(planned(**one))}
    again = planned(plan__on_time=0.99, **one)
    assert price[0.99].mean_ratio == pytest.approx(float(np.mean(again.plan.pruning_ratio)), rel=1e-9)
    assert price[0.9].mean_ratio < price[0.99].mean_ratio and not given.plan.failed.any()


def test_a_scheme_that_chooses_local_steps_makes_no_promise_with_stragglers():
    values = {"plan.on_time": 0.95, "events.straggler_probability": 0.1, "method": "adaptive-work"}
    with pytest.raises(InvalidValue, match="must not be given with stragglers and scheme 'work'"):
        Experiment.of(Scenario.preset("demo").with_values(values), dataset=FEW)


@pytest.mark.parametrize("rate", ["shannon", "nr-mcs"])
def test_devices_at_the_deadline_meet_it_as_often_as_promised(rate):
    found = planned(plan__on_time=0.95, radio__rate=rate, radio__noise="thermal", plan__deadline_s=0.12)
    probability = on_time_probability(found)
    assert (probability >= 0.95 - 1e-5).all()  # quantiles are interpolated
    if rate == "shannon":
        pressed = found.plan.latency_s > found.problem.deadline_s * (1 - 1e-9)
        assert pressed.any() and probability[pressed] == pytest.approx(0.95, abs=1e-5)


def test_probabilities_are_shares_of_sampled_channels():
    """Gains sampled given the estimate: noncentral chi-square, by numpy's own generator."""
    found = planned()
    probability = on_time_probability(found)
    radio, run = found.experiment.radio, found.experiment
    state = run.initial_state()
    at = run.place(state)
    served = run.served(at, state)
    mean = run.stations.known_fading(0, state.values, None)[found.device]
    spread = 0.5 * (1 - 0.9**2)
    rng = np.random.default_rng(0)
    gain = spread * rng.noncentral_chisquare(8, mean / spread - 8, size=(20_000, 25))
    full_bps = link_rates_bps(run.method.channel, served.gain[found.device], gain, radio)
    bits = found.uplink_s * uplink_rate_bps(found.plan.bandwidth_share, found.problem.full_band_rate_bps)
    took_s = found.compute_s + bits / (found.plan.bandwidth_share * full_bps)
    share = np.mean(took_s <= found.problem.deadline_s * (1 + 1e-12), axis=0)
    assert share == pytest.approx(probability, abs=4 * 0.5 / np.sqrt(20_000))  # four standard errors


def test_one_more_nine_costs_pruning_and_time():
    found = planned()
    lines = promises(found, (0.9, 0.99))
    assert [line.on_time for line in lines] == [None, 0.9, 0.99]
    assert lines[0].mean_ratio < lines[1].mean_ratio < lines[2].mean_ratio
    assert lines[0].same_pruning_s == pytest.approx(float(np.max(found.problem.deadline_s)), rel=1e-6)
    assert lines[0].same_pruning_s < lines[1].same_pruning_s < lines[2].same_pruning_s
    again = replace(found, plan=found.plan)
    assert promises(again, ()) == lines[:1]


def test_plan_prints_probabilities_and_prices():
    words = [f"{key}={value}" for key, value in FADING.items()]
    shown = airprune("plan", "demo", *words)
    assert "On-time probability" in shown.stdout and "What one more nine costs" in shown.stdout
    document = json.loads(airprune("plan", "demo", *words, "--json").stdout)
    assert all(0.0 <= device["on_time"] <= 1.0 for device in document["devices"])
    assert [line["on_time"] for line in document["promises"]] == [None, 0.9, 0.95, 0.99, 0.999]
