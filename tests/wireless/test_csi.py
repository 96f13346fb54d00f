"""Plans that know a channel inexactly, and keep a promise about the deadline all the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from airprune.errors import InvalidValue
from airprune.rounds.experiment import Experiment
from airprune.rounds.plan_round import plan_round
from airprune.studies.conformance import points
from airprune.wireless.channel import Radio
from airprune.wireless.channels.base import FadingView
from airprune.wireless.channels.block_fading import BlockFading
from airprune.wireless.csi import chi_square, chi_square_quantile
from support.tiny import tiny_scenario

CHANNELS = {
    "Rayleigh, distribution alone": {"radio__csi_correlation": 0.0},
    "four antennas, outdated": {"radio__csi_correlation": 0.9, "radio__num_antennas": 4},
    "Rician, correlated in time": {
        "radio__channel": "gauss-markov",
        "radio__fading": "rician",
        "radio__csi_correlation": 0.7,
    },
}


def gains(on_time, num_devices=100_000, **radio):
    """(the fading that plans count on, the true one)."""
    radio = Radio(**{"fading": "rayleigh", **radio})
    view = FadingView(num_devices=num_devices, radio=radio, seed=3, round_index=1, on_time=on_time)
    channel = BlockFading()
    return channel.known(view, {}), channel.small_scale(view, {})[0]


@pytest.mark.parametrize("num_antennas", [1, 2, 8])
@pytest.mark.parametrize("probability", [0.001, 0.05, 0.5])
def test_quantiles_are_those_of_scipy(num_antennas, probability):
    noncentrality = 10.0 ** np.linspace(-3, 4, 300)
    ours = chi_square_quantile(noncentrality, num_antennas=num_antennas, probability=probability)
    theirs = stats.ncx2.ppf(probability, 2 * num_antennas, noncentrality)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)  # linear between roots that are 0.02 apart


def test_distribution_and_density_are_those_of_scipy():
    x, noncentrality = np.array([0.5, 3.0, 20.0, 90.0]), np.array([0.0, 1.0, 15.0, 100.0])
    below, density = chi_square(x, noncentrality, 3)
    theirs = stats.ncx2(6, np.maximum(noncentrality, 1e-12))
    np.testing.assert_allclose(below, theirs.cdf(x), rtol=1e-9)
    np.testing.assert_allclose(density, theirs.pdf(x), rtol=1e-9)


def test_without_an_estimate_rayleigh_plans_count_on_the_quantile_of_gamma():
    planned, _ = gains(0.95, csi_correlation=0.0, num_devices=3)
    np.testing.assert_allclose(planned, -np.log(0.95), rtol=2e-4)  # exponential; as the quantiles above
    planned, _ = gains(0.95, csi_correlation=0.0, num_antennas=4, num_devices=3)
    np.testing.assert_allclose(planned, stats.gamma(4).ppf(0.05), rtol=2e-4)


def test_without_a_promise_plans_count_on_the_mean():
    planned, true = gains(None, csi_correlation=0.8)
    assert np.mean(planned) == pytest.approx(np.mean(true), rel=0.02)  # 4 / √100,000
    fitted = np.polyfit(planned, true, 1)
    np.testing.assert_allclose(fitted, [1.0, 0.0], atol=0.03)  # a mean given the estimate is unbiased everywhere


def test_exact_knowledge_needs_no_promise():
    planned, _ = gains(0.95, csi_correlation=1.0)
    assert planned is None


def test_better_knowledge_lets_plans_count_on_more():
    means = [np.mean(gains(0.95, csi_correlation=c)[0]) for c in (0.0, 0.5, 0.9, 0.99)]
    assert means == sorted(means)


@pytest.mark.parametrize("k", [0.0, 4.0])
@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95, 0.999])
def test_the_true_gain_exceeds_the_planned_one_as_often_as_promised(correlation, k):
    planned, true = gains(0.9, csi_correlation=correlation, fading="rician", rician_k=k, num_antennas=2)
    low, high = stats.binom(len(true), 0.9).ppf([0.0005, 0.9995])
    assert low <= np.count_nonzero(true >= planned) <= high


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("rate", ["shannon", "slices"])
def test_the_share_of_uploads_on_time_is_as_promised(channel, rate):
    """10⁴ uploads whose plans end at the deadline, through planner and clock."""
    scenario = tiny_scenario(
        **{
            "network__num_edges": 2,
            "network__devices_per_edge": 25,
            "radio__fading": "rayleigh",
            "radio__slice_noise": rate == "slices",
            "plan__deadline_s": 0.002,
            "plan__on_time": 0.95,
            **CHANNELS[channel],
        }
    )
    experiment = Experiment.of(scenario, dataset=points())
    state, met, count = experiment.initial_state(), 0, 0
    for round_index in range(1000):
        if count >= 10_000:
            break
        served, state.values = experiment.stations.served(state.values, round_index, starts=True)
        edges = np.arange(experiment.network.num_edges)
        candidates = experiment.stations.candidates(served, edges, round_index, {}, state.values)
        cpu_hz = experiment.network.cpu_hz[candidates.device]
        at = experiment.place(state)
        timed = plan_round(experiment, at, state, served, candidates, cpu_hz)[0].timed
        binds = (timed.ratio > 0.01) & (timed.ratio < 0.94) & timed.planned.in_plan
        met += int(np.count_nonzero((timed.outcome == "ok") & binds))
        count += int(np.count_nonzero(binds))
    assert count >= 10_000
    low, high = stats.binom(count, 0.95).ppf([0.0005, 0.9995])
    assert low <= met <= high


STRAGGLERS = {
    "rare, fading by chance": ({"radio__csi_correlation": 0.5, "events__straggler_probability": 0.02}, 1.0),
    "frequent, fading by chance": ({"radio__csi_correlation": 0.5, "events__straggler_probability": 0.3}, 3.0),
    "rare, fading known": ({"events__straggler_probability": 0.04}, 1.0),
    "frequent, fading known": ({"events__straggler_probability": 0.3}, 3.0),
}


@pytest.mark.parametrize("case", STRAGGLERS)
def test_the_promise_covers_stragglers(case):
    """10⁴ uploads: at least the promised share, and what is left of it as chance says where it is exact."""
    settings, slowdown = STRAGGLERS[case]
    scenario = tiny_scenario(
        **{
            "network__num_edges": 2,
            "network__devices_per_edge": 25,
            "radio__fading": "rayleigh",
            "plan__cycles_per_weight": 400,
            "events__straggler_slowdown": 3.0,
            "plan__deadline_s": 0.004,
            "plan__on_time": 0.95,
            **settings,
        }
    )
    experiment = Experiment.of(scenario, dataset=points())
    assert experiment.context.reserve.slowdown == slowdown
    state, outcomes = experiment.initial_state(), []
    for round_index in range(400):
        state.global_round = round_index
        at = experiment.place(state)
        served = experiment.served(at, state)
        candidates, cpu_hz = experiment.candidates(at, state, served)
        timed = plan_round(experiment, at, state, served, candidates, cpu_hz)[0].timed
        binds = (timed.ratio > 0.01) & (timed.ratio < 0.94) & timed.planned.in_plan
        outcomes += timed.outcome[binds].tolist()
        if len(outcomes) >= 10_000:
            break
    assert len(outcomes) >= 10_000
    met = outcomes.count("ok")
    low, high = stats.binom(len(outcomes), 0.95).ppf([0.0005, 0.9995])
    assert met >= low
    if case == "rare, fading known":  # stragglers miss, all others are in time
        low, high = stats.binom(len(outcomes), 0.96).ppf([0.0005, 0.9995])
        assert low <= met <= high
    if case == "frequent, fading known":
        assert met == len(outcomes)
    if "by chance" in case:
        assert met < len(outcomes)


def test_a_device_that_misses_the_deadline_is_late_and_sends_no_longer_than_it():
    scenario = tiny_scenario(
        radio__fading="rayleigh", radio__csi_correlation=0.0, plan__deadline_s=0.0003, network__devices_per_edge=8
    )
    experiment = Experiment.of(scenario, dataset=points())
    state = experiment.initial_state()
    at, edges = experiment.place(state), np.arange(experiment.network.num_edges)
    served = experiment.served(at, state)
    candidates = experiment.stations.candidates(served, edges, 0, {}, state.values)
    timed = plan_round(experiment, at, state, served, candidates, experiment.network.cpu_hz[candidates.device])[0].timed
    late = timed.outcome == "late"
    assert late.any() and np.all(timed.total_s[late] > 0.0003) and np.all(timed.uploaded_bits[late] == 0)
    assert np.all(timed.energy_j[late] <= 1e-30 + timed.energy_j.max()) and np.all(np.isfinite(timed.energy_j))
    np.testing.assert_allclose(timed.edge_latency_s.max(), 0.0003, rtol=1e-8)


@pytest.mark.parametrize(("scheme", "why"), [("energy", "chooses powers"), ("ren2021", "fading of every block")])
def test_schemes_that_need_the_true_gains_refuse(scheme, why):
    scenario = tiny_scenario(radio__fading="rayleigh", radio__csi_correlation=0.5, plan__scheme=scheme)
    experiment = Experiment.of(scenario, dataset=points())
    state = experiment.initial_state()
    at = experiment.place(state)
    served = experiment.served(at, state)
    candidates, cpu_hz = experiment.candidates(at, state, served)
    with pytest.raises(InvalidValue, match=rf"csi_correlation must be 1 with scheme '{scheme}', which .*{why}"):
        plan_round(experiment, at, state, served, candidates, cpu_hz)
