"""Sums over the air: error, powers and time against symbols that are really sent through fading channels and noise."""

from __future__ import annotations

import numpy as np
import pytest

from airprune.wireless.over_the_air import air_rate_bps, mean_error_sq, noise_variance, num_symbols, power_shares

LIMIT_W, NOISE_W = 0.5, 2e-3


def sent_through(values, weights, channel, per_symbol, rng):
    """Returns (the mean that the station computes, each device's power over the limit), symbol by symbol."""
    num_devices, num_values = values.shape
    symbols = -(-num_values // per_symbol)
    padded = np.zeros((num_devices, symbols * per_symbol))
    padded[:, :num_values] = weights[:, None] * values
    carried = padded.reshape(num_devices, symbols, per_symbol) @ np.array([1.0, 1.0j])[:per_symbol]
    per_amplitude = np.mean(np.abs(carried / channel[:, None]) ** 2, axis=1)  # power at a = 1
    amplitude = np.sqrt(LIMIT_W / per_amplitude.max())
    on_air = amplitude * carried / channel[:, None]
    noise = np.sqrt(NOISE_W / 2) * (rng.standard_normal(symbols) + 1j * rng.standard_normal(symbols))
    heard = (channel[:, None] * on_air).sum(axis=0) + noise
    parts = np.column_stack([heard.real, heard.imag])[:, :per_symbol].reshape(-1)[:num_values]
    return parts / (amplitude * weights.sum()), np.mean(np.abs(on_air) ** 2, axis=1) / LIMIT_W


@pytest.mark.parametrize(("per_symbol", "num_values"), [(2, 2000), (2, 1999), (1, 2000)])
def test_the_error_of_the_mean_is_that_of_symbols_through_channels_and_noise_within_1_percent(per_symbol, num_values):
    """400 messages: the mean of 800,000 squares has a relative standard deviation of 0.16 %."""
    rng = np.random.default_rng(3)
    weights = np.array([1.0, 3.0, 2.0, 0.5])
    values = rng.normal(size=(4, num_values)) * np.array([[0.1], [0.02], [0.3], [0.05]])
    channel = np.array([1.0, 0.05, 0.4, 2.0]) * np.exp(2j * np.pi * rng.random(4))
    energy, snr = weights**2 * np.square(values).sum(axis=1), np.abs(channel) ** 2 * LIMIT_W / NOISE_W
    message = {"total_weight": 6.5, "num_values": num_values, "values_per_symbol": per_symbol}
    wanted, squares = weights @ values / 6.5, []
    for _ in range(400):
        mean, shares = sent_through(values, weights, channel, per_symbol, rng)
        squares.append(np.square(mean - wanted).sum())
    assert np.mean(squares) == pytest.approx(mean_error_sq(energy, snr, **message), rel=0.01)
    assert noise_variance(energy, snr, **message) == pytest.approx(np.mean(squares) / num_values, rel=0.01)
    assert power_shares(energy, snr) == pytest.approx(shares, rel=1e-12)  # the same sums in another order


def test_the_device_that_needs_most_power_decides_for_all_by_hand():
    """E / SNR is 2, 8 and 4: the second sends with the limit; (Σ c)² = 4 and two values per symbol give 8 / 4."""
    energy, snr = np.array([2.0, 4.0, 40.0]), np.array([1.0, 0.5, 10.0])
    assert power_shares(energy, snr).tolist() == [0.25, 1.0, 0.5]
    assert mean_error_sq(energy, snr, total_weight=2.0, num_values=10, values_per_symbol=2) == 2.0
    assert mean_error_sq(energy, snr, total_weight=2.0, num_values=10, values_per_symbol=1) == 1.0


def test_updates_of_nothing_need_no_power_and_arrive_without_error():
    nothing, snr = np.zeros(3), np.ones(3)
    assert power_shares(nothing, snr).tolist() == [0.0, 0.0, 0.0]
    assert mean_error_sq(nothing, snr, total_weight=3.0, num_values=4, values_per_symbol=2) == 0.0


def test_a_message_of_43_888_weights_takes_1_1_ms_on_20_mhz_by_hand():
    rate = air_rate_bps(64.0, values_per_symbol=2, bandwidth_hz=20e6)
    assert 64 * 43_888 / rate == pytest.approx(43_888 / 40e6, rel=1e-15)
    assert [num_symbols(43_888, 2), num_symbols(43_889, 2), num_symbols(43_889, 1)] == [21_944, 21_945, 43_889]
