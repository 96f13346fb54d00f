"""The cloud's estimates of its devices follow drops at once, rises slowly, and noise never."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airprune.deployment.estimates import (
    PROBE_BYTES,
    PROBE_EVERY_ROUNDS,
    Estimates,
    Smoothed,
    paced_uplink_bps,
    probed_uplink_bps,
)

NOTHING = np.nan


def values(*observations: float) -> list[float]:
    """Returns what plans are made with after each observation of one device."""
    estimate, seen = Smoothed.unknown(1), []
    for observed in observations:
        estimate = estimate.updated([observed])
        seen.append(float(estimate.value[0]))
    return seen


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ([40, 20], [40, 20]),  # a drop at once
        ([40, 37, 43, 37], [40, 40, 40, 40]),  # within the band
        ([40, 80, 41, 80], [40, 40, 40, 40]),  # a rise once, and once more, but not in a row
        ([20, 40, 40], [20, 20, 35]),  # means 30, 35
        ([20, 40, 40, 40, 40], [20, 20, 35, 37.5, 37.5]),  # 40 is within the band of 37.5
        ([20, 60, 30], [20, 20, 30]),  # the mean would be 35, more than there is now
        ([20, 40, NOTHING, 40], [20, 20, 20, 35]),  # nothing in between changes nothing
        ([20, 40, 40, 10, 10.5], [20, 20, 35, 10, 10]),  # a drop forgets the mean
        ([20, 40, 10, 40], [20, 20, 10, 10]),  # and the rise before it
    ],
)
def test_sequences_by_hand(observed, expected):
    assert values(*observed) == expected


@given(st.floats(1e3, 1e10), st.floats(1e3, 1e10))
def test_constant_observations_end_within_the_band_of_them_and_stay(before, constant):
    seen = values(before, *[constant] * 40)
    assert 0.9 - 1e-9 <= seen[-1] / constant <= 1 / 0.9 + 1e-9
    assert len(set(seen[-10:])) == 1


@given(st.floats(1e3, 1e10), st.lists(st.floats(0.95, 1.05), min_size=2, max_size=30))
def test_noise_of_5_percent_never_moves_a_plan(truth, noise):
    assert len(set(values(*(truth * factor for factor in noise)))) == 1


@given(st.lists(st.floats(1e3, 1e10), min_size=1, max_size=30))
def test_plans_with_the_margin_are_never_above_the_last_observation(observed):
    estimates = Estimates.unknown(1)
    for rate_bps in observed:
        estimates = estimates.updated(uplink_bps=[rate_bps], seconds_per_sample=[1 / rate_bps])
        assert estimates.uplink_bps()[0] <= rate_bps * (1 + 1e-12)  # rounding
        assert estimates.seconds_per_sample()[0] >= 1 / rate_bps * (1 - 1e-12)


def test_a_paced_upload_that_kept_its_rate_is_no_news_and_a_slower_one_is():
    observed = paced_uplink_bps([10e6, 9.7e6, 5e6, NOTHING], planned_bps=[10e6] * 4, share=[0.5, 0.5, 0.25, 0.25])
    np.testing.assert_array_equal(observed, [NOTHING, NOTHING, 20e6, NOTHING])


def test_an_uplink_that_halves_is_late_in_one_round_only():
    """A closed loop by hand: a share of 0.5, planned by the estimate, paced; the link halves before round 3."""
    estimates, share, late = Estimates.unknown(1).updated(uplink_bps=[40e6], seconds_per_sample=[1e-3]), 0.5, []
    for number in range(8):
        full_band_bps = 40e6 if number < 3 else 20e6
        planned_bps = share * estimates.uplink_bps()
        measured_bps = np.minimum(planned_bps, share * full_band_bps)
        late.append(bool(measured_bps < planned_bps))
        observed = paced_uplink_bps(measured_bps, planned_bps=planned_bps, share=share)
        estimates = estimates.updated(uplink_bps=observed, seconds_per_sample=[NOTHING])
    assert late == [False, False, False, True, False, False, False, False]
    assert estimates.uplink_bps(margin_ratio=0) == 20e6


def test_probes_are_due_at_joining_after_silence_and_to_confirm_a_rise():
    estimates = Estimates.unknown(2)
    assert estimates.probe_due().tolist() == [True, True]
    estimates = estimates.updated(uplink_bps=[20e6, NOTHING], seconds_per_sample=[NOTHING, NOTHING])
    assert estimates.probe_due().tolist() == [False, True]
    for _ in range(PROBE_EVERY_ROUNDS):
        estimates = estimates.updated(uplink_bps=[NOTHING, 10e6], seconds_per_sample=[NOTHING, NOTHING])
    assert estimates.probe_due().tolist() == [True, False]
    estimates = estimates.updated(uplink_bps=[40e6, 10e6], seconds_per_sample=[NOTHING, NOTHING])
    assert estimates.probe_due().tolist() == [True, False]
    estimates = estimates.updated(uplink_bps=[40e6, 10e6], seconds_per_sample=[NOTHING, NOTHING])
    assert estimates.probe_due().tolist() == [False, False]
    assert estimates.uplink.value.tolist() == [35e6, 10e6]


def test_a_probe_raises_an_estimate_but_never_lowers_it():
    estimates = Estimates.unknown(3).updated(uplink_bps=[20e6, 20e6, NOTHING], seconds_per_sample=[1, 1, 1])
    for _ in range(2):
        observed = estimates.raised_by([9e6, 40e6, 9e6])
        estimates = estimates.updated(uplink_bps=observed, seconds_per_sample=[1, 1, 1])
    assert estimates.uplink.value.tolist() == [20e6, 35e6, 9e6]
    np.testing.assert_array_equal(estimates.raised_by([NOTHING] * 3), [NOTHING] * 3)
    assert not estimates.probe_due().any()  # a low one is news as well


def test_a_probe_tells_the_rate_of_the_link_with_its_headers():
    assert probed_uplink_bps(32_768, 1.0, 1.0 + 8 * 32_768 * 1.046984 / 20e6) == pytest.approx(20e6, rel=1e-5)
    assert np.isnan(probed_uplink_bps(32_768, 1.0, 1.0))


def test_estimates_come_back_from_their_arrays():
    estimates = Estimates.unknown(2).updated(uplink_bps=[20e6, NOTHING], seconds_per_sample=[NOTHING, 0.01])
    kept = {name: array.copy() for name, array in estimates.arrays().items()}
    again = Estimates.from_arrays(kept)
    assert all(array.dtype == np.float64 for array in kept.values())
    np.testing.assert_equal(again.arrays(), kept)


def test_a_probe_between_rounds_is_short_on_slow_links_and_never_tiny():
    estimates = Estimates.unknown(3).updated(uplink_bps=[1e6, 20e6, NOTHING], seconds_per_sample=[1, 1, 1])
    assert [estimates.probe_bytes(device) for device in range(3)] == [32_768, 125_000, PROBE_BYTES]
