"""Rates of 5G NR's modulation and coding schemes, by hand and against published numbers."""

from __future__ import annotations

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario
from airprune.wireless.channel import Radio, downlink_rate_bps, full_band_rate_bps, rate_at_snr_bps
from airprune.wireless.mcs import EFFICIENCY, NEEDED_SNR, mcs_rate_bps, mcs_snr
from support.tiny import blobs, tiny_scenario

# Spectral efficiencies as TS 38.214 prints them, Table 5.1.3.1-2.
PRINTED = [
    0.2344,
    0.3770,
    0.6016,
    0.8770,
    1.1758,
    1.4766,
    1.6953,
    1.9141,
    2.1602,
    2.4063,
    2.5703,
    2.7305,
    3.0293,
    3.3223,
]
PRINTED += [
    3.6094,
    3.9023,
    4.2129,
    4.5234,
    4.8164,
    5.1152,
    5.3320,
    5.5547,
    5.8906,
    6.2266,
    6.5703,
    6.9141,
    7.1602,
    7.4063,
]
# SNR in dB at a BLER of 10 %, MCS 2 to 26: read off simulated curves of NR's LDPC code (Sionna 1.2, 2,000 bits).
CURVES_DB = [
    -1.6,
    0.1,
    1.7,
    3.7,
    4.9,
    6.1,
    6.5,
    8.0,
    8.1,
    9.6,
    10.6,
    11.2,
    12.7,
    13.2,
    14.4,
    15.5,
    16.0,
    17.4,
    18.5,
    19.0,
]
CURVES_DB += [19.8, 20.8, 22.1, 22.9, 23.9]


def test_efficiencies_are_those_of_the_standards_table():
    np.testing.assert_allclose(EFFICIENCY, PRINTED, atol=5.1e-5)  # four decimals


def test_rates_are_steps_of_the_table_by_hand():
    # MCS 4: QPSK, η = 2 · 602/1024 = 1.17578, Γ = 1 dB: an SNR of (2^1.17578 − 1) · 1.2589 has η / 1.1 per Hz.
    needed = (2**1.17578125 - 1) * 10**0.1
    below, at = mcs_rate_bps(np.array([needed * 0.9999, needed * 1.0001]), 20e6)
    assert at == pytest.approx(20e6 * 1.17578125 / 1.1, rel=1e-12)  # closed form
    assert below == pytest.approx(20e6 * (2 * 449 / 1024) / 1.1, rel=1e-12)  # MCS 3


def test_below_the_first_mcs_there_is_no_link_and_above_the_last_no_more_rate():
    low, high = mcs_rate_bps(np.array([0.99 * NEEDED_SNR[0], 1e6]), 1.0)
    assert low == 0.0 and high == pytest.approx(8 * 948 / 1024 / 1.1, rel=1e-12)


def test_rates_never_fall_with_the_snr_and_stay_below_shannon():
    snr = 10.0 ** np.linspace(-1, 4, 20_001)
    rate = mcs_rate_bps(snr, 1.0)
    assert np.all(np.diff(rate) >= 0.0) and np.all(rate < full_band_rate_bps(snr, 1.0))


def test_needed_snrs_are_those_of_simulated_curves():
    ours_db = 10 * np.log10(NEEDED_SNR[2:27])
    assert np.max(np.abs(ours_db - CURVES_DB)) <= 0.6 and abs(np.mean(ours_db - CURVES_DB)) <= 0.1


def test_throughput_is_within_5_percent_of_that_of_simulated_curves_on_average():
    snr_db = np.linspace(0.0, 26.0, 2601)
    theirs = np.array([0.9 * max(EFFICIENCY[2:27][np.array(CURVES_DB) <= db], default=0.0) for db in snr_db])
    ours = mcs_rate_bps(10 ** (snr_db / 10), 1.0)
    reached = theirs > 0
    assert np.mean(ours[reached] / theirs[reached]) == pytest.approx(1.0, abs=0.05)
    above = snr_db >= 12.0
    assert 0.74 <= np.mean(ours[above] / np.log2(1 + 10 ** (snr_db[above] / 10))) <= 0.82


def test_the_snr_of_a_rate_gives_the_rate_back():
    rate = mcs_rate_bps(10.0 ** np.linspace(-1, 4, 500), 20e6)
    np.testing.assert_array_equal(mcs_rate_bps(mcs_snr(rate, 20e6), 20e6), rate)


def test_a_stronger_station_is_never_slower_than_the_uplink():
    radio = Radio(rate="nr-mcs", station_power_w=10.0)
    up = rate_at_snr_bps(10.0 ** np.linspace(-1, 4, 50), radio)
    down = downlink_rate_bps(up, radio)
    assert np.all(down >= up) and np.all(down[up == 0] == 0.0) and np.any(down > up)


def test_slices_and_schemes_that_choose_powers_are_refused():
    with pytest.raises(InvalidValue, match=r"radio\.slice_noise must be false with rate = nr-mcs"):
        Scenario().with_values({"radio.rate": "nr-mcs", "radio.slice_noise": True})
    with pytest.raises(InvalidValue, match=r"radio\.rate must be shannon with scheme 'energy'"):
        list(ap.run(tiny_scenario(radio__rate="nr-mcs", plan__scheme="energy"), dataset=blobs()))


def test_a_run_plans_with_the_rates_of_its_mcs():
    scenario = tiny_scenario(radio__rate="nr-mcs", radio__noise="thermal", radio__fading="rayleigh")
    rate = first_round(Experiment.of(scenario, dataset=blobs())).plan.problem.full_band_rate_bps
    assert np.all(np.min(np.abs(rate[:, None] / (20e6 * EFFICIENCY / 1.1) - 1), axis=1) < 1e-12)  # closed form
