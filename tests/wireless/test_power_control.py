"""Open-loop power control: P0 + alpha times the path loss, at most the device's power."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from airprune.errors import InvalidValue
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario
from airprune.studies.conformance import points
from airprune.units import dbm_to_watt
from airprune.wireless.channel import Radio, downlink_rate_bps, sent_gain, sent_power_w
from support.tiny import timed_rounds, tiny_scenario

CONTROLLED = {"radio__power_p0_dbm": -90.0, "radio__power_alpha": 0.8}


def test_powers_by_hand():
    # P0 −90 dBm, alpha 0.8: 100 dB of loss ask for −10 dBm; 140 dB for 22 dBm; 150 dB for 30 dBm, above the 28 dBm.
    radio = Radio(power_p0_w=dbm_to_watt(-90.0), power_alpha=0.8)
    power_w = sent_power_w(10.0 ** (-np.array([100.0, 140.0, 150.0]) / 10), radio)
    np.testing.assert_allclose(10 * np.log10(power_w * 1e3), [-10.0, 22.0, 28.0], atol=1e-9)


def test_full_compensation_makes_all_devices_equally_loud():
    radio = Radio(power_p0_w=dbm_to_watt(-85.0), power_alpha=1.0)
    received = sent_gain(10.0 ** (-np.array([80.0, 95.0, 110.0]) / 10), radio) * radio.transmit_power_w
    np.testing.assert_allclose(received, dbm_to_watt(-85.0), rtol=1e-12)


def test_rates_and_energies_of_a_run_are_those_of_its_powers():
    (full, experiment), (less, _) = timed_rounds(tiny_scenario()), timed_rounds(tiny_scenario(**CONTROLLED))
    ours, theirs = less[0], full[0]
    radio = experiment.radio
    gain = (
        (2 ** (theirs.planned.full_band_rate_bps / radio.bandwidth_hz) - 1)
        * radio.band_noise_w
        / radio.transmit_power_w
    )
    power_w = np.minimum(dbm_to_watt(-90.0) * gain**-0.8, radio.transmit_power_w)
    assert np.all(power_w < radio.transmit_power_w)
    rate = radio.bandwidth_hz * np.log2(1 + gain * power_w / radio.band_noise_w)
    np.testing.assert_allclose(ours.planned.full_band_rate_bps, rate, rtol=1e-9)
    np.testing.assert_allclose(ours.planned.power_w, power_w, rtol=1e-9)
    compute_j = theirs.energy_j - radio.transmit_power_w * theirs.uplink_s
    np.testing.assert_allclose((ours.energy_j - compute_j) / ours.uplink_s, power_w, rtol=1e-3)


def test_devices_with_less_power_disturb_other_cells_less():
    small = {"model.name": "mlp", "network.num_edges": 3, "network.devices_per_edge": 2, "radio.reuse": 1}
    full, less = (
        first_round(Experiment.of(Scenario().with_values(small | more), dataset=points())).plan.problem
        for more in ({}, {"radio.power_p0_dbm": -90.0, "radio.power_alpha": 0.8})
    )
    assert full.interference is None  # planned within it: the rates are what is left
    assert not np.allclose(full.full_band_rate_bps, less.full_band_rate_bps)


def test_the_downlink_has_the_stations_power_whatever_devices_send_with():
    radio = Radio(station_power_w=dbm_to_watt(46.0))
    gain = 1e-11
    at_full = radio.bandwidth_hz * np.log2(1 + gain * radio.transmit_power_w / radio.band_noise_w)
    at_less = radio.bandwidth_hz * np.log2(1 + gain * 1e-3 / radio.band_noise_w)
    expected = radio.bandwidth_hz * np.log2(1 + gain * radio.station_power_w / radio.band_noise_w)
    assert downlink_rate_bps(at_full, radio) == pytest.approx(expected, rel=1e-9)
    assert downlink_rate_bps(at_less, radio, np.array(1e-3)) == pytest.approx(expected, rel=1e-9)
    own = dataclasses.replace(radio, station_power_w=None)
    assert downlink_rate_bps(at_less, own, np.array(1e-3)) == pytest.approx(at_full, rel=1e-9)


def test_46_dbm_send_a_sub_model_in_the_time_of_its_bits_by_hand():
    # Unicast: each device's own sub-model over the whole bandwidth at 20 MHz · log2(1 + g · 39.8 W / σ²).
    changes = {"radio__downlink": "unicast", "radio__station_power_dbm": 46.0, "masking__name": "fedrolex"}
    rounds, experiment = timed_rounds(tiny_scenario(plan__deadline_s=0.0002, **changes))
    timed, radio = rounds[0], experiment.radio
    snr = (2 ** (timed.planned.full_band_rate_bps / radio.bandwidth_hz) - 1) * dbm_to_watt(46.0 - 28.0) * 1e3
    rate = radio.bandwidth_hz * np.log2(1 + snr)
    bits = (experiment.shape.fixed_weights + timed.planned.keep) * 64.0
    assert timed.planned.keep.min() < experiment.shape.prunable_weights
    expected = [np.sum((bits / rate)[timed.planned.edge == k]) for k in range(2)]
    np.testing.assert_allclose(timed.downlink_s, expected, rtol=1e-9)
    np.testing.assert_allclose(timed.downlink_bits, [np.sum(bits[timed.planned.edge == k]) for k in range(2)])


def test_schemes_that_choose_powers_refuse():
    with pytest.raises(InvalidValue, match=r"radio\.power_p0_dbm must be none with scheme 'energy'"):
        timed_rounds(tiny_scenario(plan__scheme="energy", **CONTROLLED))
