"""Stations that hear several devices at once: zero forcing against the exact receiver, and the groups."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import airprune as ap
from airprune.errors import InvalidValue
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario
from airprune.studies.conformance import points
from airprune.wireless.channel import Radio, diffuse_parts, small_scale_gain
from airprune.wireless.mimo import antenna_vectors, mimo_groups, zero_forcing_gain
from support.tiny import blobs, timed_rounds, tiny_scenario


def channels(rng, count, antennas):
    return (rng.standard_normal((count, antennas)) + 1j * rng.standard_normal((count, antennas))) / np.sqrt(2)


def test_sinr_is_that_of_the_exact_receiver_by_monte_carlo():
    rng = np.random.default_rng(1)
    gain, noise_w, num_symbols = np.array([3.0, 1.0, 0.2, 10.0]), 0.1, 200_000
    h = channels(rng, 4, 6)
    z = zero_forcing_gain(h, np.zeros(4, dtype=int))
    sent = channels(rng, 4, num_symbols)  # Gaussian symbols of power 1
    noise = np.sqrt(noise_w) * channels(rng, 6, num_symbols)
    mixed = h.T * np.sqrt(gain)
    found = np.linalg.pinv(mixed) @ (mixed @ sent + noise)
    sinr = 1.0 / np.mean(np.abs(found - sent) ** 2, axis=1)
    np.testing.assert_allclose(gain * z / noise_w, sinr, rtol=0.02)  # 1/sqrt(200,000) is 0.2 %


@pytest.mark.parametrize(("antennas", "streams"), [(8, 4), (8, 8), (4, 2)])
def test_devices_that_meet_at_random_have_m_minus_u_plus_1_degrees_of_freedom(antennas, streams):
    h = channels(np.random.default_rng(2), 40_000, antennas)
    z = zero_forcing_gain(h, np.arange(40_000) // streams)[::streams]  # one of each group: independent
    assert stats.kstest(z, stats.gamma(antennas - streams + 1).cdf).pvalue > 1e-3
    assert np.mean(z) == pytest.approx(antennas - streams + 1, rel=0.05)


def test_mean_rates_are_those_of_the_closed_form_within_two_per_cent():
    # E log2(1 + snr z) of Gamma(M − U + 1, 1) by quadrature.
    snr, antennas, streams = 10.0, 8, 4
    h = channels(np.random.default_rng(3), 40_000, antennas)
    rate = np.mean(np.log2(1 + snr * zero_forcing_gain(h, np.arange(40_000) // streams)))
    exact = stats.gamma(antennas - streams + 1).expect(lambda z: np.log2(1 + snr * z))
    assert rate == pytest.approx(exact, rel=0.02)


def test_a_device_alone_has_the_gain_of_maximum_ratio_combining():
    radio = Radio(fading="rician", num_antennas=4, num_streams=2)
    h = antenna_vectors(diffuse_parts(50, radio, np.random.default_rng(0)), radio, np.random.default_rng(1))
    np.testing.assert_allclose(zero_forcing_gain(h, np.arange(50)), np.sum(np.abs(h) ** 2, axis=1), rtol=1e-12)
    assert np.mean(np.abs(h) ** 2) == pytest.approx(1.0, rel=0.1)
    rayleigh = Radio(fading="rayleigh", num_antennas=4)
    ours = antenna_vectors(
        diffuse_parts(50, rayleigh, ap.randomness.rng_for(3, "fading", 7)), rayleigh, np.random.default_rng(1)
    )
    theirs = small_scale_gain(50, rayleigh, seed=3, round_index=7)
    np.testing.assert_allclose(np.sum(np.abs(ours) ** 2, axis=1), theirs, rtol=1e-12)


@pytest.mark.parametrize("per_edge", [1, 3, 20, 150])
def test_every_device_is_in_one_group_of_its_edge_with_room_for_it(per_edge):
    rng = np.random.default_rng(4)
    edge = rng.permutation(np.repeat(np.arange(5), per_edge))
    group = mimo_groups(channels(rng, len(edge), 4), rng.random(len(edge)), edge, 4)
    sizes = np.bincount(group)
    assert sizes.min() >= 1 and sizes.max() <= 4
    assert len(sizes) == 5 * -(-per_edge // 4)
    assert all(len(set(edge[group == one].tolist())) == 1 for one in range(len(sizes)))


def test_chosen_groups_lose_less_than_random_ones():
    rng = np.random.default_rng(5)
    h, edge = channels(rng, 320, 8), np.repeat(np.arange(10), 32)
    chosen = zero_forcing_gain(h, mimo_groups(h, np.ones(320), edge, 8))
    by_chance = zero_forcing_gain(h, np.arange(320) // 8)
    assert np.mean(np.log2(1 + 10 * chosen)) > 1.3 * np.mean(np.log2(1 + 10 * by_chance))


def test_orthogonal_devices_are_put_together():
    # Two devices along each of two antennas: every group takes one of either, and loses nothing.
    h = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=complex)
    group = mimo_groups(h, np.ones(4), np.zeros(4, dtype=int), 2)
    assert group[0] != group[1] and group[2] != group[3]
    np.testing.assert_allclose(zero_forcing_gain(h, group), 1.0)


def test_groups_do_not_depend_on_other_edges():
    rng = np.random.default_rng(6)
    h, gain, edge = channels(rng, 40, 4), rng.random(40), np.repeat([0, 1], 20)
    both, alone = mimo_groups(h, gain, edge, 4), mimo_groups(h[20:], gain[20:], edge[20:], 4)
    np.testing.assert_array_equal(both[20:] - both[20:].min(), alone)


def test_a_scenario_with_streams_plans_groups_and_prunes_less():
    small = {"model.name": "mlp", "network.devices_per_edge": 8, "radio.fading": "rayleigh", "radio.num_antennas": 8}

    def plan(streams):
        scenario = Scenario().with_values(small | {"radio.num_streams": streams, "plan.deadline_s": 0.001})
        return first_round(Experiment.of(scenario, dataset=points())).plan

    alone, at_once = plan(1), plan(4)
    assert alone.problem.mimo_group is None and len(np.unique(at_once.problem.mimo_group)) == 10
    assert np.all(at_once.problem.full_band_rate_bps <= alone.problem.full_band_rate_bps * (1 + 1e-9))
    assert at_once.pruning_ratio.mean() < 0.8 * alone.pruning_ratio.mean()
    assert np.all(at_once.min_deadline_s < alone.min_deadline_s)


@pytest.mark.parametrize(
    "changes", [{}, {"radio__reuse": 1}, {"radio__channel": "gauss-markov"}, {"radio__rate": "nr-mcs"}]
)
def test_a_run_with_streams_meets_the_deadline(changes):
    scenario = tiny_scenario(
        plan__deadline_s=0.0002, radio__fading="rayleigh", radio__num_antennas=4, radio__num_streams=2, **changes
    )
    for timed in timed_rounds(scenario)[0]:
        total_s = np.where(timed.planned.in_plan, timed.total_s, 0.0)
        assert total_s.max() <= 0.0002 * (1 + 1e-9) and timed.planned.in_plan.sum() > 3


def test_devices_radiate_for_the_time_of_their_group_alone():
    # b r on average over the upload is r in a share b of it: energy p · bits / r beside computing.
    scenario = tiny_scenario(radio__fading="rayleigh", radio__num_antennas=4, radio__num_streams=2)
    rounds, experiment = timed_rounds(scenario)
    timed = rounds[0]
    clock, planned = scenario.clock, timed.planned
    compute_j = clock.effective_capacitance * planned.cpu_hz**3 * timed.compute_s
    radiated_j = experiment.radio.transmit_power_w * planned.bits / planned.full_band_rate_bps
    np.testing.assert_allclose(timed.energy_j, compute_j + radiated_j, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_antennas": 2, "fading": "rayleigh"}, r"num_streams must be at most num_antennas, 2"),
        ({"num_antennas": 8}, r"num_streams must be 1 without fading"),
        ({"num_antennas": 8, "fading": "rayleigh", "slice_noise": True}, r"slice_noise must be false with several"),
        ({"num_antennas": 8, "fading": "rayleigh", "csi_correlation": 0.9}, r"csi_correlation must be 1 with several"),
    ],
)
def test_settings_that_do_not_go_with_streams_are_refused_in_one_sentence(changes, sentence):
    with pytest.raises(InvalidValue, match=rf"Radio\.{sentence}"):
        Radio(num_streams=4, **changes)
    with pytest.raises(InvalidValue, match=rf"Scenario\.radio\.{sentence}"):
        Scenario().with_values({"radio.num_streams": 4} | {f"radio.{key}": value for key, value in changes.items()})


def test_a_channel_without_antennas_is_refused_in_one_sentence():
    from airprune.wireless.channels.block_fading import BlockFading

    class Scalar(BlockFading):
        name = "scalar-test"
        summary = "for this test"

        def antennas(self, view, values):
            return None

    ap.register(Scalar)
    scenario = tiny_scenario(
        radio__channel="scalar-test", radio__fading="rayleigh", radio__num_antennas=4, radio__num_streams=2
    )
    with pytest.raises(InvalidValue, match=r"radio\.num_streams must be 1 with channel 'scalar-test'"):
        list(ap.run(scenario, dataset=blobs()))
