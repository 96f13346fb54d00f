import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airprune.errors import InvalidValue
from airprune.wireless.channel import Radio, full_band_rates, uplink_rate_bps
from airprune.wireless.latency import (
    compute_energy_j,
    compute_time_s,
    device_latency_s,
    edge_round_latency_s,
    fc_weight_count,
    global_round_latency_s,
    idle_energy_j,
    kept_weights,
    receive_energy_j,
    run_latency_s,
    seconds_per_weight,
    total_weights,
    transmit_energy_j,
    unicast_time_s,
    uplink_time_s,
)
from airprune.wireless.network import place_flat, place_hierarchical

PAPER_CPU = {"local_iterations": 2, "cycles_per_weight": 20, "cpu_hz": 3e9}
CLOSED = 1e-14  # relative: a handful of float64 roundings


def test_the_papers_cnn_has_43_888_weights():
    conv = 1 * 32 * 3 * 3 + 32 * 64 * 3 * 3
    assert fc_weight_count((7 * 7 * 64, 8, 10)) == 25_168
    assert total_weights(conv, (3136, 8, 10)) == 43_888


def test_a_model_without_fully_connected_layers_is_its_convolutions():
    assert total_weights(18_720, ()) == 18_720


def test_pruning_removes_only_fully_connected_weights():
    kept = kept_weights([0.0, 0.5, 1.0], conv_weights=18_720, fc_weights=25_168)
    assert kept.tolist() == [43_888, 31_304, 18_720]


def test_computing_the_papers_full_model_takes_0_585_ms():
    # 2 · 20 · 43 888 cycles at 3 GHz; a MHz or ms slip would be off by a thousand.
    assert compute_time_s(43_888, **PAPER_CPU) == pytest.approx(1_755_520 / 3e9, rel=CLOSED, abs=0)
    assert compute_time_s(43_888, **PAPER_CPU) == pytest.approx(0.585e-3, abs=5e-7)  # three decimals


def test_no_weights_and_parts_of_one_are_computed_in_proportion():
    work = {"local_iterations": 2, "cycles_per_weight": 20, "cpu_hz": 4e9}
    assert compute_time_s([0.0, 0.25, 1.0], **work).tolist() == [0.0, 2.5e-9, 1e-8]


def test_uplink_counts_bits_not_bytes():
    # 1 000 weights of 64 bit at 64 kbit/s.
    assert uplink_time_s(1000, 64_000.0, bits_per_weight=64) == 1.0


def test_fixed_bits_and_extra_seconds_are_spent_whatever_is_pruned():
    """100 weights of 8 bits and 200 bits at 1 kbit/s, 1 ms a weight and half a second: 0.1 + 0.5 + 0.8 + 0.2 s."""
    fields = {"seconds_per_weight": 1e-3, "rate_bps": 1e3, "bits_per_weight": 8}
    assert device_latency_s(100, **fields, fixed_bits=200, extra_seconds=0.5) == pytest.approx(1.6, rel=1e-15)
    assert device_latency_s(0, **fields, fixed_bits=200, extra_seconds=0.5) == pytest.approx(0.7, rel=1e-15)
    assert uplink_time_s(0, 0.0, bits_per_weight=8, fixed_bits=1) == np.inf


def test_device_latency_is_compute_plus_uplink():
    weights, rate = np.array([100.0, 5000.0]), np.array([1e6, 3e6])
    expected = compute_time_s(weights, **PAPER_CPU) + uplink_time_s(weights, rate, bits_per_weight=32)
    slope = seconds_per_weight(**PAPER_CPU)
    found = device_latency_s(weights, seconds_per_weight=slope, rate_bps=rate, bits_per_weight=32)
    assert found == pytest.approx(expected, rel=CLOSED, abs=0)


def test_without_bandwidth_an_upload_never_ends_unless_there_is_nothing_to_send():
    assert uplink_time_s([5.0, 0.0, 5.0, 0.0], [0.0, 0.0, 320.0, 1.0], bits_per_weight=64).tolist() == [
        math.inf,
        0.0,
        1.0,
        0.0,
    ]
    assert uplink_time_s(1.0, 1e-308, bits_per_weight=64) == math.inf
    assert device_latency_s(1.0, seconds_per_weight=0.0, rate_bps=0.0, bits_per_weight=64) == math.inf


def test_devices_and_plans_broadcast():
    rate = uplink_rate_bps(np.array([[0.1], [0.2]]), np.array([1e6, 2e6, 4e6]))
    assert uplink_time_s(10.0, rate, bits_per_weight=64).shape == (2, 3)


@given(st.floats(0, 1), st.floats(1e3, 1e9), st.floats(0, 1e-6))
def test_latency_is_proportional_to_the_weights_kept(rho, rate, slope):
    def latency(weights):
        return device_latency_s(weights, seconds_per_weight=slope, rate_bps=rate, bits_per_weight=64)

    kept = kept_weights(rho, conv_weights=18_720, fc_weights=25_168)
    assert latency(kept) == pytest.approx(latency(43_888) * kept / 43_888, rel=CLOSED, abs=0)


def test_an_edge_waits_for_its_slowest_device_and_an_empty_edge_for_nobody():
    found = edge_round_latency_s([3.0, 1.0, math.inf, 2.0, 5.0], [0, 0, 3, 2, 0], num_edges=4)
    assert found.tolist() == [5.0, 0.0, 2.0, math.inf]


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 10)), max_size=30))
def test_edge_latency_matches_a_plain_loop_in_any_device_order(devices):
    expected = [max([t for e, t in devices if e == k], default=0.0) for k in range(5)]
    edge = np.array([e for e, _ in devices], dtype=int)
    latency_s = np.array([t for _, t in devices])
    assert edge_round_latency_s(latency_s, edge, num_edges=5).tolist() == expected
    assert edge_round_latency_s(latency_s[::-1], edge[::-1], num_edges=5).tolist() == expected


def test_edges_wait_for_each_other_only_at_the_cloud():
    # Edge 0 takes 1 + 5, edge 1 takes 4 + 1; waiting every round would take 4 + 5.
    assert global_round_latency_s([[1.0, 4.0], [5.0, 1.0]]) == 6.0


def test_an_edge_that_ran_fewer_rounds_adds_nothing_for_the_others():
    assert global_round_latency_s([[1.0, 4.0], [math.nan, 1.0], [2.0, math.nan]]) == 5.0
    assert global_round_latency_s(np.empty((0, 3))) == 0.0


def test_a_run_is_the_sum_of_its_global_rounds():
    assert run_latency_s([0.15, 0.10, 0.25]) == pytest.approx(0.5, rel=CLOSED, abs=0)
    assert run_latency_s([]) == 0.0
    assert run_latency_s([1.0, math.inf]) == math.inf


# Table II, "No Pruning": 52 ± 0.33 ms and 750 ± 15.44 ms. Two of the paper's spreads, since our rings are a reading.
@pytest.mark.parametrize(
    ("place", "devices_per_band", "paper_s", "spread_s"),
    [(place_hierarchical, 5, 0.052, 0.00033), (place_flat, 25, 0.750, 0.01544)],
)
def test_unpruned_rounds_take_as_long_as_in_table_ii(place, devices_per_band, paper_s, spread_s):
    latencies = []
    for seed in range(20):
        network = place(seed=seed)
        rate = uplink_rate_bps(1 / devices_per_band, full_band_rates(network, Radio(), seed=seed))
        slope = seconds_per_weight(local_iterations=2, cycles_per_weight=20, cpu_hz=network.cpu_hz)
        device = device_latency_s(43_888, seconds_per_weight=slope, rate_bps=rate, bits_per_weight=64)
        latencies.append(edge_round_latency_s(device, network.edge, num_edges=network.num_edges).max())
    assert np.mean(latencies) == pytest.approx(paper_s, abs=2 * spread_s)


def test_compute_energy_is_capacitance_times_cycles_times_frequency_squared():
    compute_s = compute_time_s(1000, local_iterations=2, cycles_per_weight=20, cpu_hz=1e9)
    energy = compute_energy_j(compute_s, cpu_hz=1e9, effective_capacitance=1e-28)
    assert energy == pytest.approx(1e-28 * 20 * 2 * 1000 * 1e18, rel=CLOSED, abs=0)  # 4 µJ


def test_halving_the_clock_doubles_the_time_and_quarters_the_energy():
    fast, slow = PAPER_CPU, {**PAPER_CPU, "cpu_hz": 1.5e9}
    assert compute_time_s(100, **slow) == pytest.approx(2 * compute_time_s(100, **fast), rel=CLOSED, abs=0)
    slow_j, fast_j = (compute_energy_j(compute_time_s(100, **cpu), cpu_hz=cpu["cpu_hz"]) for cpu in (slow, fast))
    assert slow_j == pytest.approx(fast_j / 4, rel=CLOSED, abs=0)


def test_transmit_energy_is_power_times_time():
    assert transmit_energy_j([2.0, math.inf], transmit_power_w=0.5).tolist() == [1.0, math.inf]


def test_four_cores_of_a_loaded_raspberry_pi_4_take_3_7_watts_with_a_capacitance_of_2_7e_28():
    watts = compute_energy_j(1.0, cpu_hz=1.5e9, effective_capacitance=2.74e-28, num_cores=4)
    assert watts == pytest.approx(3.7, abs=0.01)  # measured: 6.4 W less 2.7 W
    assert compute_energy_j(1.0, cpu_hz=1.8e9) == pytest.approx(0.583, abs=1e-3)  # one core by default


def test_an_amplifier_of_efficiency_a_quarter_takes_four_times_what_it_radiates():
    assert transmit_energy_j([2.0], transmit_power_w=0.5, amplifier_efficiency=0.25).tolist() == [4.0]


def test_a_device_takes_its_idle_power_for_the_whole_round():
    assert idle_energy_j([3.0, 0.0], idle_power_w=2.5).tolist() == [7.5, 0.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: fc_weight_count((3136,)),
        lambda: fc_weight_count((3136, 0, 10)),
        lambda: total_weights(-1, (2, 2)),
        lambda: seconds_per_weight(local_iterations=2, cycles_per_weight=20, cpu_hz=0),
        lambda: compute_time_s(math.inf, **PAPER_CPU),
        lambda: edge_round_latency_s([math.nan], [0], num_edges=1),
        lambda: edge_round_latency_s([1.0], [1], num_edges=1),
        lambda: edge_round_latency_s([1.0], [-1], num_edges=1),
        lambda: edge_round_latency_s([1.0], [0.0], num_edges=1),
        lambda: edge_round_latency_s([1.0, 2.0], [0], num_edges=1),
        lambda: global_round_latency_s([1.0, 2.0]),
        lambda: global_round_latency_s([[-1.0]]),
        lambda: run_latency_s([math.nan]),
        lambda: compute_energy_j(1.0, effective_capacitance=math.nan, cpu_hz=3e9),
        lambda: compute_energy_j(1.0, num_cores=0, cpu_hz=3e9),
        lambda: transmit_energy_j(1.0, transmit_power_w=0.0),
        lambda: transmit_energy_j(1.0, transmit_power_w=1.0, amplifier_efficiency=0.0),
        lambda: transmit_energy_j(1.0, transmit_power_w=1.0, amplifier_efficiency=1.1),
        lambda: receive_energy_j(-1.0, receive_power_w=1.0),
        lambda: idle_energy_j(1.0, idle_power_w=-1.0),
        lambda: unicast_time_s(1.0, [1.0], [0], num_edges=0),
    ],
)
def test_misuse_raises(call):
    with pytest.raises(InvalidValue):
        call()


def test_a_device_without_a_plan_has_no_latency():
    weights = kept_weights([math.nan, 0.5], conv_weights=10, fc_weights=10)
    latency = device_latency_s(weights, seconds_per_weight=1.0, rate_bps=1.0, bits_per_weight=1.0)
    assert math.isnan(latency[0]) and latency[1] == 30.0
