"""Clock, power and energy: the scheme that chooses them, and the limits it needs."""

import dataclasses
from decimal import Decimal, localcontext

import numpy as np
import pytest

import airprune as ap
from airprune.planning import DeviceLimits
from airprune.planning.levels import Levels
from airprune.units import dbm_to_watt

FULL_POWER_W = dbm_to_watt(28.0)
KAPPA = 1e-28


def limits(**changes) -> DeviceLimits:
    return DeviceLimits(**{"cpu_hz_max": 3e9, "power_w_max": FULL_POWER_W, "bandwidth_hz": 20e6, **changes})


def three_devices(energy_j: float = np.inf, **changes) -> ap.PlanProblem:
    """300 Mbit/s at full power on a third of the band; more weights than any budget here carries."""
    fields = {"full_band_rate_bps": np.full(3, 300e6), "seconds_per_weight": 40 / 3e9, "fc_weights": 100_000}
    return ap.PlanProblem(**{**fields, "conv_weights": 0, "limits": limits(energy_j=energy_j), **changes})


def kept(plan: ap.Plan) -> np.ndarray:
    return plan.problem.conv_weights + (1 - plan.pruning_ratio) * plan.problem.fc_weights


@pytest.mark.parametrize(("energy_j", "weights"), [(np.inf, 45_918.367), (10e-3, 42_607.66), (3e-3, 36_938.05)])
def test_half_the_energy_leaves_nine_tenths_of_the_weights(energy_j, weights):
    """Computed apart from this program, to seven digits."""
    plan = ap.plan(three_devices(energy_j), "energy")
    np.testing.assert_allclose(kept(plan), weights, atol=0.006)
    assert np.all(plan.latency_s <= 0.030 * (1 + 1e-12))
    assert np.all(plan.energy_j <= energy_j * (1 + 1e-12))


def test_full_clock_and_power_spend_twenty_millijoules():
    np.testing.assert_allclose(ap.plan(three_devices(), "energy").energy_j, 20.195e-3, atol=1e-6)


def test_without_an_energy_limit_it_is_equal_resolved():
    problem = three_devices(full_band_rate_bps=np.array([300e6, 240e6, 200e6]), conv_weights=18_720, fc_weights=25_168)
    plan, equal = ap.plan(problem, "energy"), ap.plan(problem, "equal-resolved")
    np.testing.assert_allclose(plan.pruning_ratio, equal.pruning_ratio, atol=1e-13)
    np.testing.assert_array_equal(plan.bandwidth_share, equal.bandwidth_share)
    np.testing.assert_allclose(plan.latency_s[1:], 0.030, rtol=1e-13)


@pytest.mark.parametrize("energy_j", [1e-3, 3e-3, 10e-3])
@pytest.mark.parametrize("reserves", [{}, {"fixed_bits": 25_168.0, "extra_seconds": 0.001}])
def test_a_search_over_clock_and_power_finds_nothing_better(energy_j, reserves):
    problem = three_devices(energy_j, **reserves)
    plan = ap.plan(problem, "energy")
    clock, power = np.meshgrid(np.linspace(0.0, 3e9, 401)[1:], FULL_POWER_W * np.linspace(0.0, 1.0, 401)[1:] ** 2)
    snr = 2 ** (300 / 20) - 1
    bit_s = 3 / (20e6 * np.log2(1 + snr * power / FULL_POWER_W))
    cycles_s = 40 / clock
    fixed_bits, extra_cycles = reserves.get("fixed_bits", 0.0), reserves.get("extra_seconds", 0.0) * 3e9
    in_time = (0.030 - extra_cycles / clock - fixed_bits * bit_s) / (cycles_s + 64 * bit_s)
    spare_j = energy_j - KAPPA * clock**2 * extra_cycles - power * fixed_bits * bit_s
    in_budget = spare_j / (KAPPA * clock**2 * 40 + power * 64 * bit_s)
    best = np.minimum(in_time, in_budget).max()
    assert best <= kept(plan)[0] * (1 + 1e-12)
    assert best >= kept(plan)[0] * 0.995  # the grid's own coarseness


def test_a_second_costs_the_same_in_the_cpu_as_in_the_radio():
    plan = ap.plan(three_devices(3e-3), "energy")
    clock, power = plan.cpu_hz[0], plan.power_w[0]
    bits, cycles, snr = 64 * kept(plan)[0], 40 * kept(plan)[0], 2 ** (300 / 20) - 1

    def sending_j(seconds: float) -> float:
        return seconds * (2 ** (bits * 3 / (20e6 * seconds)) - 1) * FULL_POWER_W / snr

    uplink_s, step_s = plan.latency_s[0] - cycles / clock, 1e-8
    assert sending_j(uplink_s) == pytest.approx(power * uplink_s, rel=1e-9)
    saved = (sending_j(uplink_s - step_s) - sending_j(uplink_s + step_s)) / (2 * step_s)
    assert saved == pytest.approx(2 * KAPPA * clock**3, rel=1e-6)  # finite difference


@pytest.mark.parametrize(("scheme", "weighs"), [("energy", False), ("hfel", True), ("ren2021", True)])
def test_an_amplifiers_loss_counts_as_if_computing_cost_less_within_a_smaller_budget(scheme, weighs):
    """κ f³ T + p T_up / η is 1/η of η κ f³ T + p T_up: the same plan where a joule weighs 1/η."""
    efficiency, rates = 0.35, {"full_band_rate_bps": np.array([300e6, 240e6, 200e6])}
    lossy = limits(energy_j=20e-3, amplifier_efficiency=efficiency)
    scaled = limits(energy_j=20e-3 * efficiency, effective_capacitance=KAPPA * efficiency)
    one = ap.plan(three_devices(limits=lossy, fc_weights=25_168, **rates), scheme)
    options = {"energy_weight": 1 / efficiency} if weighs else None
    other = ap.plan(three_devices(limits=scaled, fc_weights=25_168, **rates), scheme, options)
    np.testing.assert_allclose(one.pruning_ratio, other.pruning_ratio, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.bandwidth_share, other.bandwidth_share, rtol=1e-7)  # roots of two problems
    np.testing.assert_allclose(one.energy_j * efficiency, other.energy_j, rtol=1e-7)


def test_an_inefficient_amplifier_leaves_a_budget_for_fewer_weights():
    good, poor = (
        ap.plan(three_devices(limits=limits(energy_j=10e-3, amplifier_efficiency=share)), "energy")
        for share in (1.0, 0.35)
    )
    assert np.all(kept(poor) < kept(good))
    assert np.all(poor.energy_j <= 10e-3 * (1 + 1e-12))
    half = ap.plan(three_devices(limits=limits(energy_j=10e-3, amplifier_efficiency=0.35)), "energy")
    by_hand_j = KAPPA * half.cpu_hz**2 * 40 * kept(half) + half.power_w / 0.35 * (
        half.latency_s - 40 * kept(half) / half.cpu_hz
    )
    np.testing.assert_allclose(half.energy_j, by_hand_j, rtol=1e-12)


def test_a_loose_deadline_is_spent_on_a_slower_clock_and_less_power():
    plan = ap.plan(three_devices(fc_weights=10_000, deadline_s=0.1), "energy")
    assert np.all(plan.pruning_ratio == 0) and np.all(plan.cpu_hz < 1e9) and np.all(plan.power_w < 0.01)
    np.testing.assert_allclose(plan.latency_s, 0.1, rtol=1e-12)
    slowest = limits(cpu_hz_min=1e9, power_w_min=0.01)
    floor = ap.plan(dataclasses.replace(plan.problem, limits=slowest), "energy")
    assert np.all(floor.cpu_hz == 1e9) and np.all(floor.power_w == 0.01) and np.all(floor.latency_s < 0.1)


def test_too_little_energy_names_the_device_and_the_deadline_that_works():
    tight = limits(energy_j=np.array([1.0, 2e-4, 1.0]))
    problem = three_devices(conv_weights=30_000, limits=tight)
    plan = ap.plan(problem, "energy")
    assert plan.status[0] == "infeasible-energy" and list(np.flatnonzero(plan.blocking_devices)) == [1]
    assert np.all(np.isnan(plan.cpu_hz)) and np.all(np.isnan(plan.power_w))
    with pytest.raises(ap.Infeasible, match=r"more than the energy budget; blocked by 1; the smallest deadline .* ms"):
        plan.raise_if_failed()
    at_smallest = ap.plan(dataclasses.replace(problem, deadline_s=plan.min_deadline_s[0]), "energy")
    assert at_smallest.status[0] == "ok" and at_smallest.energy_j[1] == pytest.approx(2e-4, rel=1e-9)
    assert ap.plan(problem.subset(~plan.blocking_devices), "energy").status[0] == "ok"


def test_energy_that_never_suffices_says_so():
    plan = ap.plan(three_devices(conv_weights=30_000, limits=limits(energy_j=1e-9)), "energy")
    with pytest.raises(ap.Infeasible, match="the budget does not suffice even at the lowest CPU frequency"):
        plan.raise_if_failed()


def test_inverse_questions_know_the_energy_budget():
    problem = three_devices(2e-3, fc_weights=40_000, conv_weights=2_000)
    in_time = ap.smallest_deadline_s(problem, target_pruning=0.1, scheme="energy")
    unlimited = ap.smallest_deadline_s(problem, target_pruning=0.1, scheme="equal-resolved")
    assert in_time.value > unlimited.value and in_time.plan.mean_pruning_ratio == pytest.approx(0.1, rel=1e-6)
    band = ap.smallest_bandwidth_hz(problem, bandwidth_hz=20e6, target_pruning=0.1, scheme="energy")
    assert band.value > 20e6 and np.all(band.plan.problem.limits.bandwidth_hz == pytest.approx(band.value, rel=1e-12))
    with pytest.raises(ap.Infeasible, match="within the energy budget"):
        ap.smallest_deadline_s(three_devices(1e-5), target_pruning=0.1, scheme="energy")


def test_other_schemes_do_not_read_the_limits():
    for scheme in ("optimal", "min-max", "variance"):
        plan = ap.plan(three_devices(1e-3), scheme)
        assert plan.cpu_hz is None and plan.power_w is None and plan.bits_per_weight is None
        without = ap.plan(dataclasses.replace(plan.problem, limits=None), scheme)
        np.testing.assert_array_equal(plan.pruning_ratio, without.pruning_ratio)


def test_a_plan_is_timed_with_the_bits_clock_and_power_that_its_scheme_chose():
    """Half the bits halve the upload, half the clock doubles the compute; a thousandth of the power sends a third."""
    plan = ap.plan(three_devices(fc_weights=30_000), "equal-resolved")
    compute_s, uplink_s = 30_000 * 40 / 3e9, 30_000 * 64 / 100e6
    np.testing.assert_allclose(
        dataclasses.replace(plan, bits_per_weight=np.full(3, 32.0)).latency_s, compute_s + uplink_s / 2
    )
    np.testing.assert_allclose(dataclasses.replace(plan, cpu_hz=np.full(3, 1.5e9)).latency_s, 2 * compute_s + uplink_s)
    quiet = dataclasses.replace(plan, power_w=np.full(3, FULL_POWER_W * (2**5 - 1) / (2**15 - 1)))
    np.testing.assert_allclose(quiet.latency_s, compute_s + 3 * uplink_s)


def test_without_limits_the_scheme_refuses_in_one_sentence():
    with pytest.raises(ap.InvalidValue, match=r"PlanProblem\.limits must be given for schemes .* got None\. Example: "):
        ap.plan(three_devices(limits=None), "energy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpu_hz_max": 0.0}, "DeviceLimits.cpu_hz_max must be > 0, got 0"),
        ({"cpu_hz_min": 4e9}, "DeviceLimits.cpu_hz_min must be ≤ cpu_hz_max"),
        ({"power_w_min": 1.0}, "DeviceLimits.power_w_min must be ≤ power_w_max"),
        ({"energy_j": [1.0, 2.0]}, "energy_j must be a number or have one entry for each of 3 devices"),
        ({"bandwidth_hz": 20.0}, "bandwidth_hz must be at least a 1000th of full_band_rate_bps, got 20"),
    ],
)
def test_wrong_limits_are_refused_in_one_sentence(change, message):
    with pytest.raises(ap.InvalidValue, match=message):
        three_devices(limits=limits(**change))


def test_a_subset_keeps_the_limits_of_its_devices():
    problem = three_devices(np.array([1e-3, 2e-3, 3e-3]))
    part = problem.subset(np.array([2, 0]))
    assert list(part.limits.energy_j) == [3e-3, 1e-3] and list(part.limits.cpu_hz_max) == [3e9, 3e9]


def test_a_second_has_its_price_also_where_the_formula_cancels():
    """z e^z − e^z + 1 with forty digits; floats lose all of theirs at z = 1e-8."""
    curve = Levels.of(three_devices(), np.full(3, 1 / 3))
    for z in (1e-12, 1e-8, 3e-5, 9.9e-5, 1.1e-4, 1e-3, 1.0):
        with localcontext(prec=40):
            exact = float(Decimal(z) * Decimal(z).exp() - Decimal(z).exp() + 1)
        price = curve.second_j(np.full(3, z)) / curve.power_at_unit_snr
        np.testing.assert_allclose(price, exact, rtol=3e-8)  # the series ends at z³; above it, eps / z² cancels


def test_a_thousand_bits_per_hertz_are_the_most_that_limits_allow():
    most = limits(bandwidth_hz=3e5)
    assert ap.PlanProblem(full_band_rate_bps=300e6, seconds_per_weight=1e-8, limits=most).limits is not None
    with pytest.raises(ap.InvalidValue, match="bandwidth_hz must be at least a 1000th"):
        ap.PlanProblem(full_band_rate_bps=np.nextafter(300e6, 1e9), seconds_per_weight=1e-8, limits=most)
