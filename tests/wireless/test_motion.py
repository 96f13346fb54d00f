"""Devices that move: places and gains over time, fading at their speed, handover by measurement."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

import airprune as ap
from airprune.errors import InvalidValue
from airprune.methods.association.a3 import A3
from airprune.rounds.experiment import Experiment
from airprune.scenario import Scenario
from airprune.studies.conformance import points
from airprune.wireless.channel import Radio, gains_to_stations, link_gain
from airprune.wireless.channels.base import FadingView
from airprune.wireless.channels.clarke import Clarke
from airprune.wireless.motion import Waypoints
from airprune.wireless.network import place_hierarchical
from support.tiny import blobs, last_state, timed_rounds, tiny_scenario

RADIO = Radio(shadowing_std_db=6.0)


def walk(**changes):
    network = place_hierarchical(num_edges=3, devices_per_edge=20, seed=1)
    return Waypoints(
        **{"network": network, "radio": RADIO, "seed": 1, "speed_m_per_s": 2.0, "radius_m": 800.0} | changes
    )


def test_devices_start_where_they_are_placed_with_the_gains_of_devices_that_stay():
    motion = walk()
    np.testing.assert_array_equal(motion.positions_m(0.0), motion.network.device_position_m)
    np.testing.assert_array_equal(
        motion.gains(0.0, link_gain), gains_to_stations(motion.network, RADIO, seed=1, gain_of=link_gain)
    )


def test_no_device_is_faster_than_the_speed_and_all_stay_in_the_disc():
    motion, times = walk(), np.arange(0.0, 2000.0, 7.0)
    places = np.array([motion.positions_m(t) for t in times])
    moved = np.hypot(*(np.diff(places, axis=0)).T)
    assert moved.max() <= 14.0 * (1 + 1e-9)
    assert np.median(moved) == pytest.approx(14.0)  # straight ahead most of the time
    assert np.hypot(*places.T).max() <= 840.0


def test_movement_is_a_function_of_time_alone():
    first = [walk().positions_m(t) for t in (100.0, 3.0)]
    again = [walk(start_s=97.0).positions_m(3.0), walk().positions_m(3.0)]
    np.testing.assert_array_equal(first, again)


def clarke_draws(num_devices, times, *, speed_m_per_s=10.0, **changes):
    radio = Radio(**{"fading": "rayleigh", "speed_m_per_s": speed_m_per_s} | changes)
    views = [FadingView(num_devices=num_devices, radio=radio, seed=3, round_index=0, time_s=t) for t in times]
    return radio, np.array([Clarke().diffuse(view, {}) for view in views])


def test_the_autocorrelation_of_1e5_draws_is_that_of_clarke():
    # J0(2 π f_D τ) with f_D = 10 m/s · 3.5 GHz / c = 116.7 Hz.
    lags = np.array([0.0, 0.0005, 0.001, 0.002, 0.00328, 0.005, 0.01])
    radio, x = clarke_draws(100_000, 7.0 + lags)
    assert radio.doppler_hz == pytest.approx(116.7, rel=1e-3)
    found = np.mean(x[0] * x, axis=(1, 2, 3))
    np.testing.assert_allclose(found, special.j0(2 * np.pi * radio.doppler_hz * lags), atol=0.01)  # 3 / sqrt(2e5)


def test_clarkes_fading_is_rayleigh_at_every_time_and_stands_still_without_speed():
    _, x = clarke_draws(20_000, [0.0, 5.0])
    for draws in x:
        assert stats.kstest(np.sum(draws[:, 0] ** 2, axis=1) / 2, stats.expon.cdf).pvalue > 1e-3
    _, still = clarke_draws(100, [0.0, 5.0], speed_m_per_s=0.0)
    np.testing.assert_array_equal(still[0], still[1])


def test_a_devices_fading_does_not_depend_on_how_many_follow():
    _, few = clarke_draws(3, [1.0])
    _, many = clarke_draws(30, [1.0])
    np.testing.assert_array_equal(few[0], many[0][:3])


class View:
    """An association's view of two stations with given gains in dB."""

    def __init__(self, *gains_db):
        self.network = place_hierarchical(num_edges=2, devices_per_edge=1, seed=0)
        self._gains = 10.0 ** (np.array(gains_db) / 10)

    def gains(self):
        return self._gains


def handovers(component, *rounds):
    values = {slot: np.zeros(2, dtype=np.int64) for slot in ("a3.serving", "a3.rounds")}
    found = []
    for gains_db in rounds:
        served, values = component.decide(View(gains_db, (-200.0, -100.0)), values)
        found.append(int(served.edge[0]))
    return found


def test_a_handover_needs_the_hysteresis():
    assert handovers(A3(), (-100, -98), (-100, -96.9), (-98, -96), (-93, -96.1)) == [0, 1, 1, 0]


def test_a_handover_needs_the_hysteresis_for_as_many_rounds_in_a_row():
    better, same = (-100.0, -90.0), (-90.0, -90.0)
    assert handovers(A3(rounds=3), better, better, same, better, better, better) == [0, 0, 0, 0, 0, 1]


def moving(**changes):
    return tiny_scenario(
        network__mobility="waypoint",
        network__speed_m_per_s=30.0,
        plan__deadline_s=5.0,
        plan__scheme="no-pruning",
        rounds__global_rounds=4,
        **changes,
    )


def test_moving_devices_change_their_rates_and_hand_over_in_a_run():
    slow = {"radio__bandwidth_hz": 20e3, "plan__bits_per_weight": 64.0}
    state, records, experiment = last_state(moving(association__name="a3", **slow))
    edges = [record for record in records if record["kind"] == "edge"]
    assert state.clock_s > 1.0
    assert edges[0]["uplink_s"] != edges[1]["uplink_s"]
    assert state.values["a3.serving"].max() > 0
    then, now = (experiment.stations.view(0, t).gains() for t in (0.0, state.clock_s))
    assert np.abs(10 * np.log10(now / then)).max() > 1.0


def test_a_round_of_a_moving_device_has_the_rate_of_its_place():
    rounds, experiment = timed_rounds(moving())
    motion = experiment.scenario.build_motion(experiment.network, experiment.radio)
    time_s = rounds[0].edge_latency_s.max()
    gain = motion.gains(float(time_s), link_gain)[np.arange(6), experiment.network.edge]
    snr = gain * experiment.radio.transmit_power_w / experiment.radio.band_noise_w
    np.testing.assert_allclose(rounds[1].planned.full_band_rate_bps, 20e6 * np.log2(1 + snr), rtol=1e-9)


def test_a_resumed_run_goes_on_with_the_movement_and_its_fading(tmp_path):
    scenario = moving(association__name="a3", radio__channel="clarke", radio__fading="rayleigh")
    list(ap.run(scenario, dataset=blobs(), out=tmp_path / "whole"))
    steps = ap.run(scenario, dataset=blobs(), out=tmp_path / "cut")
    for _ in range(4):
        next(steps)
    steps.close()
    list(ap.run(scenario, dataset=blobs(), out=tmp_path / "cut", resume=True))
    assert (tmp_path / "whole" / "records.jsonl").read_text() == (tmp_path / "cut" / "records.jsonl").read_text()


def test_measured_links_do_not_move(tmp_path):
    (tmp_path / "fleet.csv").write_text("device,edge,snr_db\na,0,30\nb,0,31\n")
    scenario = Scenario().with_values(
        {
            "model.name": "mlp",
            "network.table": str(tmp_path / "fleet.csv"),
            "network.mobility": "waypoint",
            "network.speed_m_per_s": 1.0,
        }
    )
    with pytest.raises(InvalidValue, match=r"network\.mobility must be none with a table of measured links"):
        _ = Experiment.of(scenario, dataset=points()).stations
