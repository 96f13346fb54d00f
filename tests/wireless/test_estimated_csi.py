"""Channels that are estimated with pilots and get old: what plans know of them, and what knowing costs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from airprune.errors import InvalidValue
from airprune.scenario import Scenario
from airprune.wireless.csi import bessel_j0, known_correlation
from support.tiny import timed_rounds, tiny_scenario


def test_j0_is_scipys():
    x = np.concatenate([np.linspace(0.0, 30.0, 301), [100.0, 1234.5, 1e5]])
    np.testing.assert_allclose([bessel_j0(value) for value in x], special.j0(x), atol=1e-10)  # rounding of x sin θ
    assert bessel_j0(2e5) == pytest.approx(special.j0(2e5), rel=1e-3)


def test_the_estimate_of_noisy_pilots_has_the_promised_correlation_by_monte_carlo():
    # Four pilots of SNR 2: their mean has the noise 1/8 beside a channel of power 1.
    rng, count = np.random.default_rng(1), 200_000
    x = rng.standard_normal(count)
    noise = rng.standard_normal((4, count)) / np.sqrt(2.0)
    found = np.corrcoef(x, np.mean(x + noise, axis=0))[0, 1]
    assert known_correlation(doppler_hz=0.0, delay_s=1.0, pilots=4, pilot_snr=2.0) == pytest.approx(found, rel=0.01)


def test_age_and_pilots_multiply_with_the_given_correlation():
    # On foot at 3.5 GHz: f_D = 1.5 m/s · 3.5e9 / c = 17.51 Hz; 5 ms old; 10 pilots at 0 dB.
    changes = {"radio.csi_delay_s": 0.005, "radio.pilots": 10, "radio.pilot_snr_db": 0.0, "radio.fading": "rayleigh"}
    radio = Scenario().with_values(changes | {"network.speed_m_per_s": 1.5, "radio.csi_correlation": 0.9}).build_radio()
    expected = 0.9 * special.j0(2 * np.pi * 1.5 * 3.5e9 / 299_792_458 * 0.005) * np.sqrt(10 / 11)
    assert radio.csi_correlation == pytest.approx(expected, rel=1e-12)
    assert not radio.knows_fading


def test_without_speed_and_pilots_plans_know_the_fading_to_the_bit():
    radio = Scenario().with_("radio.csi_delay_s", 1.0).build_radio()
    assert radio.csi_correlation == 1.0 and radio.pilot_s == 0.0


def test_pilots_take_time_and_energy_and_reports_take_bits():
    # Three devices of an edge send 2,000 symbols each over 20 MHz in turn: 3 · 100 µs before every upload.
    base = {"radio__fading": "rayleigh", "plan__scheme": "no-pruning"}
    with_pilots = {"radio__pilots": 2000, "radio__pilot_snr_db": 300.0}
    plain, sounded = (timed_rounds(tiny_scenario(**base, **more)) for more in ({}, with_pilots))
    before, after = plain[0][0], sounded[0][0]
    np.testing.assert_allclose(after.uplink_s - before.uplink_s, 3e-4, rtol=1e-6)
    power_w = sounded[1].radio.transmit_power_w
    np.testing.assert_allclose(after.energy_j - before.energy_j, power_w * 1e-4, rtol=1e-6)  # its own pilots alone
    reported = timed_rounds(tiny_scenario(**base, radio__report_bits=1000))[0][0]
    np.testing.assert_allclose(reported.uploaded_bits - before.uploaded_bits, 1000)


def test_plans_leave_time_for_pilots():
    base = {"radio__fading": "rayleigh", "plan__deadline_s": 0.001, "radio__pilot_snr_db": 300.0}
    few, many = (timed_rounds(tiny_scenario(**base, radio__pilots=count))[0] for count in (0, 4000))
    for rounds in (few, many):
        assert all(timed.total_s.max() <= 0.001 * (1 + 1e-9) for timed in rounds)
    assert np.nanmean(many[0].ratio) > np.nanmean(few[0].ratio)


def test_a_scheme_that_plans_work_refuses_pilots():
    with pytest.raises(InvalidValue, match=r"radio\.pilots must be 0 with scheme 'work'"):
        timed_rounds(tiny_scenario(method="adaptive-work", radio__pilots=10))
