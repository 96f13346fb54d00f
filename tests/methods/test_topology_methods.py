"""Groups of devices, LANs, edges in the cloud's place and tiers: hand values, limit cases, what each link carries."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import airprune as ap
from airprune.engines.serial import SerialEngine
from airprune.errors import InvalidValue
from airprune.methods.masking.core.coverage import coverage_of
from airprune.methods.selection.base import Candidates, known_rates
from airprune.methods.topology.arrivals import LAG, LEFT, Buffered, KOfN
from airprune.methods.topology.base import DueView
from airprune.methods.topology.d2d import (
    D2d,
    d2d_rate_bps,
    interference_w,
    masters,
    without_leavers,
    without_slow_members,
)
from airprune.methods.topology.fog import chosen_edge, queueing_s, utility
from airprune.methods.topology.lan import ring_share
from airprune.methods.topology.relay import Relay, RelayView
from airprune.methods.topology.tiers import Tiers, tier_of
from airprune.randomness import rng_for
from airprune.results.traffic import link_bits
from airprune.rounds.device import device_round
from airprune.rounds.edge import select_and_plan
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.records import record_from
from airprune.rounds.sums import DeviceStatistics, EdgeResult, mean_of_parts
from airprune.rounds.timing import Events, time_round
from airprune.runs.driver import InProcess
from airprune.simulation import run_rounds
from airprune.wireless.channel import Radio, full_band_rates
from airprune.wireless.network import PAPER_HFL_RING, network_from_columns
from support.tiny import blobs, tiny_scenario

CLOSED = 1e-9  # closed forms, given to ten digits
MODEL_BITS = 64 * 43_888  # of the paper's CNN
TINY_BITS = 64 * (12 * 64 + 64 * 4)


def tiny(cpu_hz=None, **changes):
    experiment = Experiment.of(tiny_scenario(**changes), dataset=blobs())
    if cpu_hz is None:
        return experiment
    return replace(experiment, network=replace(experiment.network, cpu_hz=np.array(cpu_hz)))


def ran(cpu_hz=None, **changes):
    """(experiment, final state, records) of a tiny run."""
    experiment = tiny(cpu_hz, **changes)
    state = experiment.initial_state()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        records = list(run_rounds(experiment, engine, state))
    return experiment, state, records


@pytest.fixture(scope="module")
def hierfavg():
    return ran(method="hierfavg", network__devices_per_edge=5, rounds__edge_rounds=5, rounds__global_rounds=1)


def same_size(**changes):
    return ran(network__devices_per_edge=5, rounds__edge_rounds=5, rounds__global_rounds=1, **changes)


def calm(count):
    return Events(dropped=np.zeros(count, bool), slowdown=np.ones(count))


# FogFL


def test_the_node_with_the_least_latency_and_workload_averages():
    latency_s, megabytes = np.array([0.012, 0.009, 0.020]), np.array([2.0, 5.0, 1.0])
    np.testing.assert_allclose(utility(latency_s, megabytes, alpha=0.5), [0.5, 0.725, 0.6], rtol=CLOSED)
    assert chosen_edge(latency_s, megabytes, alpha=0.5) == 0
    assert chosen_edge(latency_s, megabytes, alpha=1.0) == 1 and chosen_edge(latency_s, megabytes, alpha=0.0) == 2
    assert chosen_edge(latency_s, megabytes, alpha=1.0, max_workload=4.0) == 0
    assert chosen_edge(latency_s, megabytes, alpha=0.0, max_latency_s=0.015) == 0
    assert chosen_edge(latency_s, megabytes, alpha=0.5, max_latency_s=0.001) is None
    assert chosen_edge(np.ones(3), np.ones(3), alpha=0.5) == 0


def test_a_node_that_more_ask_than_it_serves_is_excluded():
    waits_s = queueing_s(np.array([5, 5, 5]), np.array([50.0, 5.0, 4.0]))
    assert waits_s[0] == pytest.approx(1 / 45) and np.isinf(waits_s[1:]).all()
    assert chosen_edge(waits_s, np.array([9.0, 1.0, 1.0]), alpha=0.0) == 0


def test_averaging_at_an_edge_changes_the_clock_and_no_model(hierfavg):
    _, state, records = same_size(method="fogfl")
    _, plain_state, plain = hierfavg
    assert state.global_state.tobytes() == plain_state.global_state.tobytes()
    distance_m = 2 * 685.0  # two edges, on either side of the cloud
    added_s = TINY_BITS / 1e9 + distance_m / 299_792_458 + 2 * 1024 / 3e9 + 1 / (50 - 5)
    assert records[-1]["latency_s"] - plain[-1]["latency_s"] == pytest.approx(added_s, rel=CLOSED)
    assert records[-1]["aggregator"] == 0 and records[-1]["backhaul_bits"] == TINY_BITS
    assert records[-1]["uploaded_bits"] == plain[-1]["uploaded_bits"]


def test_without_a_node_that_may_average_the_cloud_does(hierfavg):
    _, state, records = same_size(method="fogfl", topology__fog__service_factor=1.0, topology__fog__cloud_bps=1e6)
    _, plain_state, plain = hierfavg
    assert state.global_state.tobytes() == plain_state.global_state.tobytes()
    assert records[-1]["latency_s"] - plain[-1]["latency_s"] == pytest.approx(TINY_BITS / 1e6, rel=CLOSED)
    assert "aggregator" not in records[-1] and records[-1]["backhaul_bits"] == 2 * TINY_BITS


# LanFL


def test_a_ring_of_five_sends_4_494_131_bits_per_device_and_round():
    assert ring_share(np.array([5]))[0] * MODEL_BITS == pytest.approx(4_494_131.2, rel=1e-15)
    assert ring_share(np.array([1]))[0] == 0.0


def test_a_lan_uploads_once_per_global_round_what_hierfavg_uploads_25_times(hierfavg):
    experiment, state, records = same_size(method="lanfl")
    _, plain_state, plain = hierfavg
    assert state.global_state.tobytes() == plain_state.global_state.tobytes()
    last = records[-1]
    assert (
        plain[-1]["uploaded_bits"] / last["uploaded_bits"] == plain[-1]["uploaded_weights"] / last["uploaded_weights"]
    )
    assert plain[-1]["uploaded_bits"] / last["uploaded_bits"] == 5 * 5
    ring_bits = 2 * 4 / 5 * TINY_BITS
    assert last["d2d_bits"] == pytest.approx(10 * 5 * ring_bits, rel=CLOSED)

    compute_s = records[0]["compute_s"][0]
    cloud_bps = full_band_rates(experiment.network.flat(), experiment.radio, seed=5)
    best_bps = [cloud_bps[:5].max(), cloud_bps[5:].max()]
    wan_s = sum(TINY_BITS / rate for rate in best_bps)
    assert last["latency_s"] == pytest.approx(5 * (compute_s + ring_bits / 100e6) + wan_s, rel=CLOSED)
    compute_j = 1e-28 * 3e9**3 * compute_s
    wan_j = 2 * experiment.radio.transmit_power_w * wan_s
    assert last["d2d_energy_j"] == pytest.approx(10 * 5 * 0.1 * ring_bits / 100e6, rel=CLOSED)
    assert last["energy_j"] == pytest.approx(50 * compute_j + last["d2d_energy_j"] + wan_j, rel=CLOSED)


def test_a_lan_of_one_has_no_ring_and_still_uploads_to_the_cloud():
    _, _, records = ran(method="lanfl", network__devices_per_edge=1, topology__lan__wan_bps=1e6)
    assert records[-1]["d2d_bits"] == 0.0
    assert records[-1]["uploaded_bits"] == 2 * 2 * TINY_BITS  # two LANs, two global rounds
    assert records[-1]["time_s"] == pytest.approx(2 * (2 * records[0]["compute_s"][0] + TINY_BITS / 1e6), rel=CLOSED)


# D2D-FedAvg


@pytest.fixture(scope="module")
def cnn():
    """Three devices with the paper's CNN at one edge."""
    small = {"data.name": "glyphs", "data.train_samples": 30, "data.test_samples": 10}
    changes = {"network.num_edges": 1, "network.devices_per_edge": 3, "method": "d2d-fedavg", **small}
    return Experiment.of(ap.Scenario().with_values(changes))


GROUPS = Relay(
    head=np.array([0, 0, 2]),
    uploads=np.array([True, False, True]),
    sends=np.array([0.0, 1.0, 0.0]),
    rate_bps=np.full(3, 400e6),
    power_w=0.2,
)


def r3(experiment, relay):
    """The round of r = (300, 240, 200) Mbit/s with these groups."""

    class Given(D2d):
        def relay(self, view):
            return relay

    context = replace(experiment.context, method=replace(experiment.method, topology=Given()))
    candidates = Candidates(
        device=np.arange(3),
        edge=np.zeros(3, dtype=np.int64),
        rates_bps=known_rates(np.arange(3), np.array([300e6, 240e6, 200e6])),
        num_samples=np.full(3, 10),
        round_index=0,
        rng=np.random.default_rng(0),
    )
    return context, select_and_plan(context, candidates, np.full(3, 3e9), 0)


def test_members_send_in_turn_then_masters_share_the_uplink(cnn):
    context, planned = r3(cnn, GROUPS)
    timed = time_round(context, planned, calm(3))
    np.testing.assert_allclose(timed.relay_s, 7.02208e-3, rtol=CLOSED)
    assert timed.edge_latency_s[0] == pytest.approx(35.695573333e-3, rel=CLOSED)
    assert timed.uploaded_bits.tolist() == [MODEL_BITS, 0.0, MODEL_BITS]
    assert timed.d2d_bits.tolist() == [0.0, MODEL_BITS, 0.0]
    assert timed.d2d_energy_j == pytest.approx([0.0, 0.2 * 7.02208e-3, 0.0], rel=CLOSED)

    def with_share(share):
        return time_round(
            context, replace(planned, share=np.array([share, np.nan, 1 - share])), calm(3)
        ).edge_latency_s[0]

    best = minimize_scalar(with_share, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-12})
    assert best.fun == pytest.approx(31.014186667e-3, rel=1e-8)  # a kink: found by sections

    alone = replace(GROUPS, head=np.arange(3), uploads=np.ones(3, bool), sends=np.zeros(3))
    assert time_round(*r3(cnn, alone), calm(3)).edge_latency_s[0] == pytest.approx(42.717653333e-3, rel=CLOSED)


def test_what_was_handed_to_a_master_is_lost_with_it(cnn):
    context, planned = r3(cnn, GROUPS)
    timed = time_round(context, planned, replace(calm(3), dropped=np.array([True, False, False])))
    assert timed.outcome.tolist() == ["dropped", "dropped", "ok"]
    assert timed.uploaded_bits.tolist() == [0.0, 0.0, MODEL_BITS]
    timed = time_round(context, planned, replace(calm(3), dropped=np.array([False, True, False])))
    assert timed.outcome.tolist() == ["ok", "dropped", "ok"]


def test_the_best_device_takes_its_nearest_neighbours_first():
    place = np.array([0.0, 10.0, 30.0, 49.0, 51.0, 200.0])
    distance_m = np.abs(place[:, None] - place)
    rate_bps = np.array([5.0, 1.0, 1.0, 1.0, 4.0, 9.0])
    near = masters(rate_bps, distance_m, max_distance_m=50.0, max_members=4)
    assert near.tolist() == [0, 0, 0, 0, 4, 5]
    few = masters(rate_bps, distance_m, max_distance_m=50.0, max_members=2)
    assert few.tolist() == [0, 0, 0, 4, 4, 5]
    assert masters(rate_bps, distance_m, max_distance_m=0.0, max_members=4).tolist() == [0, 1, 2, 3, 4, 5]


def test_nobody_who_stays_in_a_group_would_end_the_round_earlier_alone():
    def end_s(master, turn_s, upload_s):
        heads = master == np.arange(len(master))
        turns = [turn_s[(master == m) & ~heads].sum() for m in np.flatnonzero(heads)]
        return max(turns) + upload_s[heads].sum()

    left = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 9))
        master = masters(rng.random(count), rng.random((count, count)), max_distance_m=0.7, max_members=3)
        turn_s, upload_s = rng.random(count), rng.random(count)
        stays = without_leavers(master, turn_s, upload_s)
        left += np.count_nonzero(stays != master)
        reached_s = end_s(stays, turn_s, upload_s)
        assert reached_s <= end_s(master, turn_s, upload_s) + 1e-12
        for n in np.flatnonzero(stays != np.arange(count)):
            alone = stays.copy()
            alone[n] = n
            assert end_s(alone, turn_s, upload_s) >= reached_s - 1e-12
    assert left > 20
    stays = without_leavers(np.array([0, 0, 2]), np.array([0, 7.02, 0]), np.array([9.4, 11.7, 14.0]))
    assert stays.tolist() == [0, 0, 2]


def test_the_link_between_devices_has_the_cells_path_loss_and_23_dbm():
    snr_db = 23.0 - (128.1 + 37.6 * math.log10(0.05)) + 110.0
    rate_bps = d2d_rate_bps(np.array([50.0]), Radio(), power_w=10 ** (23 / 10 - 3))
    assert rate_bps[0] == pytest.approx(20e6 * math.log2(1 + 10 ** (snr_db / 10)), rel=CLOSED)


def test_groups_of_a_cell_take_turns_in_the_order_in_which_they_are_ready():
    relay = Relay(
        head=np.array([0, 0, 2, 2, 4]),
        uploads=np.array([True, False, True, False, True]),
        sends=np.array([0.0, 1.0, 0.0, 1.0, 0.0]),
        rate_bps=np.array([1.0, 5.0, 1.0, 2.0, 1.0]),
        power_w=0.2,
        takes_turns=True,
    )
    bits, one_cell = np.full(5, 10.0), np.zeros(5, dtype=np.int64)  # turns of 2 and 5 s
    together = replace(relay, takes_turns=False)

    def over_s(relay, ready_s, edge=one_cell):
        return relay.over_s(np.array(ready_s), bits, edge).tolist()

    # Groups ready after 2 and 3 s: 2–4 and 4–9 s in turn, or until 3 + 5 s at the same time.
    assert over_s(relay, [1.0, 2.0, 3.0, 1.0, 30.0]) == [9.0] * 5
    assert over_s(together, [1.0, 2.0, 3.0, 1.0, 30.0]) == [8.0] * 5
    # After 9 and 3 s: the second group is first, 3–8 s, and the first waits for its own training, 9–11 s.
    assert over_s(relay, [9.0, 2.0, 3.0, 1.0, 30.0]) == over_s(together, [9.0, 2.0, 3.0, 1.0, 30.0]) == [11.0] * 5
    # Two cells do not wait for each other; a device alone relays nothing.
    assert over_s(relay, [1.0, 2.0, 3.0, 1.0, 30.0], np.array([0, 0, 1, 1, 2])) == [4.0, 4.0, 8.0, 8.0, 0.0]


def line_of_devices(place_m):
    """Devices of one cell along a line, as D2D groups see them."""
    place_m = np.array(place_m)
    return RelayView(
        edge=np.zeros(len(place_m), dtype=np.int64),
        full_band_rate_bps=np.array([9e6, 1e6] * (len(place_m) // 2)),
        compute_s=np.zeros(len(place_m)),
        model_bits=np.full(len(place_m), 1e6),
        radio=Radio(),
        positions_m=lambda: np.stack([place_m, np.zeros_like(place_m)], axis=1),
    )


def test_groups_that_reuse_the_bandwidth_interfere_with_each_others_masters():
    def gain(distance_m):
        return 10 ** (-(128.1 + 37.6 * math.log10(distance_m / 1000.0)) / 10)

    power_w, noise_w = 10 ** (23 / 10 - 3), 10 ** (-110 / 10 - 3)
    view = line_of_devices([0.0, 10.0, 100.0, 120.0])  # masters 0 and 2, members 1 and 3
    relay = D2d(reuse=True).relay(view)
    assert relay.head.tolist() == [0, 0, 2, 2] and not relay.takes_turns
    for member, own_m, other_m in ((1, 10.0, 120.0), (3, 20.0, 90.0)):
        sinr = gain(own_m) * power_w / (noise_w + gain(other_m) * power_w)
        assert relay.rate_bps[member] == pytest.approx(20e6 * math.log2(1 + sinr), rel=CLOSED)
    quiet = D2d().relay(view)
    assert quiet.takes_turns and quiet.rate_bps[1] > relay.rate_bps[1]
    assert quiet.rate_bps[1] == pytest.approx(20e6 * math.log2(1 + gain(10.0) * power_w / noise_w), rel=CLOSED)


def test_a_group_alone_in_its_cell_has_no_interference_and_the_strongest_member_counts():
    distance_m = np.array(
        [[3.0, 10.0, 60.0, 30.0], [10.0, 3.0, 50.0, 40.0], [60.0, 50.0, 3.0, 5.0], [30.0, 40.0, 5.0, 3.0]]
    )
    alone = interference_w(np.array([0, 0, 0, 0]), distance_m, Radio(), power_w=1.0)
    assert alone.tolist() == [0.0] * 4
    masters_of = np.array([0, 0, 2, 0])  # members 1 and 3 send to 0; device 2 has no members and hears both
    heard_w = interference_w(masters_of, distance_m, Radio(), power_w=1.0)
    strongest = 10 ** (-(128.1 + 37.6 * math.log10(0.005)) / 10)  # 3, at 5 m
    assert heard_w == pytest.approx([0.0, 0.0, strongest, 0.0], rel=CLOSED)


def test_a_member_leaves_where_its_own_upload_takes_less_than_its_turn():
    master, turn_s = np.array([0, 0, 0, 3, 3]), np.array([0.0, 2.0, 2.0, 0.0, 5.0])
    stays = without_slow_members(master, turn_s, np.array([1.0, 1.5, 2.0, 9.0, 6.0]))
    assert stays.tolist() == [0, 1, 0, 3, 3]


def test_without_reach_everything_is_hierfavg_to_the_bit_and_to_the_second(hierfavg):
    _, state, records = same_size(method="d2d-fedavg", topology__d2d__max_distance_m=0.0)
    _, plain_state, plain = hierfavg
    assert state.global_state.tobytes() == plain_state.global_state.tobytes()
    assert records[:-1] == plain[:-1]
    assert records[-1] == {**plain[-1], "d2d_bits": 0.0, "d2d_energy_j": 0.0}


def test_groups_change_no_model_and_each_group_is_one_upload(hierfavg):
    _, state, records = same_size(method="d2d-fedavg", topology__d2d__max_distance_m=150.0)
    _, plain_state, plain = hierfavg
    assert state.global_state.tobytes() == plain_state.global_state.tobytes()
    for record, before in zip(records[:-1], plain[:-1], strict=True):
        groups = sum(share is not None for share in record["bandwidth_share"])
        assert 2 <= groups < 10
        assert record["uploaded_bits"] == groups * TINY_BITS and record["uploaded_weights"] == groups * 1024
        assert record["d2d_bits"] == (10 - groups) * TINY_BITS
        assert max(record["edge_latency_s"]) < max(before["edge_latency_s"])
    assert records[-1]["energy_j"] < plain[-1]["energy_j"]


def test_the_denser_the_cell_the_fewer_the_uploads():
    def saved(count, cells):
        shares = []
        for seed in range(cells):
            place = PAPER_HFL_RING.offsets_m(rng_for(seed, "placement", 0), count)
            distance_m = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1))
            heads = masters(-np.hypot(*place.T), distance_m, max_distance_m=50.0, max_members=4)
            shares.append(1 - len(np.unique(heads)) / count)
        return float(np.mean(shares))

    few, some, many = saved(5, 400), saved(20, 40), saved(100, 10)
    assert few < some < many
    assert [few, some, many] == pytest.approx([0.18, 0.55, 0.76], abs=0.03)  # means of other draws


def test_a_master_sends_the_union_of_its_groups_masks_with_counts():
    _, _, records = ran(
        plan__scheme="optimal",
        topology__name="d2d",
        topology__d2d__max_distance_m=1000.0,
        topology__d2d__power_dbm=100.0,  # so that nobody would rather upload alone
        plan__deadline_s=0.0003,
        rounds__global_rounds=1,
        rounds__edge_rounds=1,
    )
    record = records[0]
    shares = record["bandwidth_share"]
    assert sum(share is not None for share in shares) == 2  # one group of three at each edge
    unions = [1024 - part["num_uncovered"] for part in record["coverage"]]
    kept = np.array(record["kept_weights"]).reshape(2, 3)
    assert all(part.max() < union <= part.sum() for part, union in zip(kept, unions, strict=True))
    assert record["uploaded_weights"] == sum(unions)
    assert record["uploaded_bits"] == (64 + 2) * sum(unions)  # a number from 0 to 3 takes two bits
    times = np.array([record["compute_s"], record["relay_s"], record["uplink_s"]]).sum(axis=0)
    assert times.max() <= 0.0003 and max(record["edge_latency_s"]) == pytest.approx(times.max(), rel=CLOSED)


def test_groups_need_places_and_updates_that_can_be_added():
    with pytest.raises(InvalidValue, match="must leave values as they are"):
        ran(method="d2d-fedavg", compression__name="sign")
    table = {"device": range(4), "edge": [0, 0, 1, 1], "snr_db": [60.0] * 4}
    experiment = tiny(method="d2d-fedavg")
    experiment = replace(experiment, network=network_from_columns(table), samples=experiment.samples[:4])
    state = experiment.initial_state()
    nowhere = pytest.raises(InvalidValue, match="needs to know where devices stand")
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine, nowhere:
        next(iter(run_rounds(experiment, engine, state)))


# TT-Prune


def seen(latency_s, deadline_s=1.0, round_index=0):
    """One edge's devices as a topology sees them."""
    count = len(latency_s)
    return DueView(
        device=np.arange(count),
        edge=np.zeros(count, dtype=np.int64),
        latency_s=np.array(latency_s),
        deadline_s=deadline_s,
        round_index=round_index,
    )


def test_times_of_12_25_and_47_ms_are_tiers_1_2_and_4_of_15_ms():
    assert tier_of(np.array([0.012, 0.025, 0.047]), 0.015).tolist() == [1, 2, 4]
    assert tier_of(np.array([0.015, 0.030, 0.0]), 0.015).tolist() == [1, 2, 1]


def test_a_tier_delivers_every_so_many_rounds_what_it_began_then():
    topology, latency_s = Tiers(tiers=4), (0.012, 0.025, 0.047)

    def due(deadline_s, k):
        return topology.due(seen(latency_s, deadline_s, k), {})[0]

    delivered = [due(0.060, k).delivers.tolist() for k in range(4)]
    assert delivered == [[True, False, False], [True, True, False], [True, False, False], [True, True, True]]
    found = due(0.060, 3)
    assert found.lag.tolist() == [0, 1, 3] and found.period_s.tolist() == [0.015] * 3
    late = due(0.030, 0)  # a baseline beyond the deadline
    assert late.period_s == pytest.approx(0.047 / 4) and late.delivers.tolist() == [False, False, False]


def test_a_straggler_is_late_and_does_not_stretch_the_period():
    slow = {"events__straggler_probability": 0.5, "events__straggler_slowdown": 1e6}
    _, _, records = ran(method="tt-prune", topology__tiers__tiers=1, rounds__global_rounds=1, **slow)
    assert sum(record["left_out"]["late"] for record in records[:-1]) > 0
    assert all(record["edge_latency_s"] == [1.0, 1.0] for record in records[:-1])


def part_of(combined, held, device):
    statistics = DeviceStatistics.of([(n, *[0.0] * 9) for n in device])
    held = np.array(held)
    return EdgeResult(
        combined=np.array(combined),
        held=held,
        kept_by=held.astype(np.int64) * len(device),
        coverage=coverage_of(held.astype(np.int64) * len(device), len(device)),
        statistics=statistics,
        failures=(),
        reports={},
    )


def test_tiers_count_alike_where_they_sent_something():
    current = np.array([9.0, 9.0, 9.0, 9.0])
    fast = part_of([1.0, 1.0, 5.0, 5.0], [True, True, False, False], (0, 1))
    slow = part_of([3.0, 7.0, 7.0, 7.0], [True, False, True, False], (2,))
    both = mean_of_parts([(0, fast), (1, slow)], current)
    assert both.combined.tolist() == [2.0, 1.0, 7.0, 9.0]
    assert both.kept_by.tolist() == [3, 2, 1, 0] and both.statistics.device.tolist() == [0, 1, 2]
    assert mean_of_parts([(0, fast)], current) is fast
    assert mean_of_parts([(1, slow)], current).combined.tolist() == [3.0, 9.0, 7.0, 9.0]


def test_slow_devices_train_from_the_model_of_two_rounds_ago():
    """Two rounds done by hand from the devices' own work: tier 1 from w_0 and w_1, tier 2 from w_0."""
    experiment = tiny(
        [3e9, 3e9, 1e7, 1e7],
        topology__name="tiers",
        plan__scheme="no-pruning",
        plan__deadline_s=0.0008,
        network__num_edges=1,
        network__devices_per_edge=[4],
        plan__cycles_per_weight=10.0,
        rounds__global_rounds=2,
        rounds__edge_rounds=1,
        model__float64=True,
    )
    scenario, state = experiment.scenario, experiment.initial_state()
    start = state.global_state.copy()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:

        def trained(device, model, global_round):
            upload = device_round(
                engine._worker.device,
                Broadcast(model=model),
                Orders(device=device, keep=1024, learning_rate=scenario.train.learning_rate, round_index=global_round),
                samples=experiment.samples[device],
                streams=Streams(scenario.seed, global_round, 0),
            )
            return upload.state.copy()

        records = list(run_rounds(experiment, engine, state))
        first = np.mean([trained(n, start, 0) for n in (0, 1)], axis=0)
        fast = np.mean([trained(n, first, 1) for n in (0, 1)], axis=0)
        slow = np.mean([trained(n, start, 1) for n in (2, 3)], axis=0)
    edges = [record for record in records if record["kind"] == "edge"]
    assert [record["device"] for record in edges] == [[0, 1], [0, 1, 2, 3]]
    assert edges[1]["lag"] == [0, 0, 1, 1] and edges[0]["asked"] == 2
    np.testing.assert_allclose(state.global_state, (fast + slow) / 2, rtol=0, atol=1e-12)
    total_s = np.array(edges[1]["compute_s"]) + edges[1]["uplink_s"]
    assert edges[0]["edge_latency_s"] == [max(0.0008, total_s.max()) / 2]


def test_a_period_in_which_everybody_is_done_is_hierfavg_to_the_bit():
    _, state, records = ran(method="tt-prune", topology__tiers__tiers=1)
    _, plain, _ = ran(method="hierfavg")
    assert state.global_state.tobytes() == plain.global_state.tobytes()
    assert records[0]["edge_latency_s"] == [1.0, 1.0]  # ΔT is the deadline


def test_pruning_keeps_each_tiers_own_deadline():
    changes = {"network__devices_per_edge": 4, "plan__deadline_s": 0.003, "topology__tiers__tiers": 4}
    _, _, records = ran([3e9, 3e9, 1e7, 1e7] * 2, method="tt-prune", **changes)
    seen = set()
    for record in records:
        if record["kind"] == "edge":
            tier = np.array(record["lag"]) + 1
            total_s = np.array(record["compute_s"]) + record["uplink_s"]
            assert np.all(total_s <= tier * 0.00075 * (1 + 1e-9))
            assert record["edge_latency_s"] == [0.00075, 0.00075]
            seen |= set(zip(tier.tolist(), (np.array(record["pruning_ratio"]) > 0).tolist(), strict=True))
    assert seen == {(2, False), (4, True)}


# Hierarchical SGD; levels of one child and of one round each are in test_topology


def test_hierarchical_sgd_with_one_period_at_all_levels_is_flat_local_sgd():
    by_data = {"aggregation__edge": "data-weighted", "aggregation__cloud": "data-weighted"}
    changes = {"rounds__edge_rounds": 1, "model__float64": True, "data__partition": "iid"}
    _, tall, _ = ran(method="h-sgd", network__num_edges=4, **by_data, **changes)
    _, flat, _ = ran(method="fedavg", network__num_edges=4, **changes)
    np.testing.assert_allclose(tall.global_state, flat.global_state, rtol=0, atol=1e-12)


# What went over which links


def test_links_are_told_apart_and_what_is_not_recorded_follows_from_who_took_part(hierfavg):
    def links(records, **options):
        return link_bits([record_from(record) for record in records], model_bits=TINY_BITS, **options)

    plain = links(hierfavg[2])
    assert (plain.uplink, plain.d2d) == (50 * TINY_BITS, 0.0)
    assert (plain.backhaul, plain.downlink) == (2 * TINY_BITS, 50 * TINY_BITS)
    lan = links(same_size(method="lanfl")[2])
    assert (lan.uplink, lan.backhaul) == (2 * TINY_BITS, 0.0) and lan.d2d == pytest.approx(80 * TINY_BITS)
    assert links(hierfavg[2], has_backhaul=False).backhaul == 0.0
    tall = ran(method="h-sgd", network__num_edges=4, topology__tree__rounds=[3])[2]
    assert links(tall).backhaul == 2 * (3 * 4 + 2) * TINY_BITS


# Edges that do not wait for all


def events(latency_s, count, rounds):
    """An independent event queue: [(when a round closes, who has arrived, which round each began with)]."""
    ends = dict.fromkeys(range(len(latency_s)))
    for device, needs_s in enumerate(latency_s):
        ends[device] = (needs_s, 0)
    closed = []
    for number in range(rounds):
        now = sorted(when for when, _ in ends.values())[count - 1]
        now = max(now, closed[-1][0] if closed else 0.0)
        here = [device for device, (when, _) in ends.items() if when <= now]
        closed.append((now, here, [ends[device][1] for device in here]))
        for device in here:
            ends[device] = (now + latency_s[device], number + 1)
    return closed


@pytest.mark.parametrize(
    ("latency_s", "share", "count"), [((1.0, 2.0, 5.0), 0.6, 2), ((1.0, 1.5, 2.25, 7.0, 9.0), 0.2, 1)]
)
def test_rounds_close_when_an_event_queue_says_so(latency_s, share, count):
    topology = KOfN(share=share, models=64)
    values = {LEFT: np.full(len(latency_s), np.nan), LAG: np.zeros(len(latency_s), dtype=np.int64)}
    values["arrivals.edge"] = np.zeros(len(latency_s), dtype=np.int64)
    now_s = 0.0
    for number, (when_s, who, began) in enumerate(events(latency_s, count, 12)):
        due, changed = topology.due(seen(latency_s, round_index=number), values)
        values |= changed
        now_s += due.period_s[0]
        assert now_s == pytest.approx(when_s, rel=1e-12)
        assert np.flatnonzero(due.delivers).tolist() == who
        assert (number - due.lag[due.delivers]).tolist() == began


def test_an_edge_waits_for_a_device_that_began_with_the_oldest_model_it_has():
    topology = KOfN(share=0.4, models=2)  # two devices of 1 s and 5 s: closes after the first
    values = {LEFT: np.full(2, np.nan), LAG: np.zeros(2, dtype=np.int64), "arrivals.edge": np.zeros(2, dtype=np.int64)}
    periods = []
    for number in range(3):
        due, changed = topology.due(seen((1.0, 5.0), round_index=number), values)
        values |= changed
        periods.append((due.period_s[0], due.delivers.tolist(), due.lag.max()))
    assert periods == [(1.0, [True, False], 0), (4.0, [True, True], 1), (1.0, [True, False], 0)]


def test_a_buffer_of_a_fresh_update_of_1_and_one_of_4_that_is_three_rounds_old_moves_the_edge_by_1_and_a_half():
    start = np.zeros(1)
    fresh, old = part_of([1.0], [True], (0,)), part_of([14.0], [True], (1,))
    weights = Buffered().part_weights(np.array([0, 3]), np.array([1, 1]))
    found = mean_of_parts([(0, fresh), (3, old)], start, [start, np.array([10.0])], weights)
    assert found.combined.tolist() == [1.5]
    even = KOfN().part_weights(np.array([0, 3]), np.array([1, 1]))  # 1 : ½
    found = mean_of_parts([(0, fresh), (3, old)], start, [start, np.array([10.0])], even)
    assert found.combined[0] == pytest.approx(1.0 * 2 / 3 + 4.0 / 3, rel=1e-15)


def test_the_weight_of_a_part_that_lacks_an_entry_falls_to_the_others():
    current = np.array([5.0, 5.0, 5.0])
    first = part_of([6.0, 6.0, 0.0], [True, True, False], (0,))
    second = part_of([9.0, 0.0, 0.0], [True, False, False], (1,))
    found = mean_of_parts([(0, first), (1, second)], current, [current, np.array([7.0] * 3)], np.array([0.75, 0.25]))
    assert found.combined.tolist() == [5.0 + 0.75 * 1.0 + 0.25 * 2.0, 6.0, 5.0]


@pytest.mark.parametrize("method", ["semi-sync", "fedbuff"])
def test_an_edge_that_waits_for_all_is_hierfavg_to_the_bit(method):
    topology = ap.METHODS[method].settings["topology.name"]
    _, state, records = ran(method=method, **{f"topology__{topology}__share": 1.0})
    _, plain, expected = ran(method="hierfavg")
    assert state.global_state.tobytes() == plain.global_state.tobytes()
    assert records[-1]["time_s"] == expected[-1]["time_s"]


def test_edges_that_do_not_wait_close_sooner_and_slow_devices_still_count():
    cpu_hz = [3e9, 3e9, 3e9, 1e7] * 2
    changes = {"network__devices_per_edge": 4, "rounds__global_rounds": 3, "plan__cycles_per_weight": 1000.0}
    _, _, waiting = ran(cpu_hz, method="hierfavg", **changes)
    _, _, records = ran(cpu_hz, method="semi-sync", **changes, **{"topology__k-of-n__share": 0.75})
    assert records[-1]["time_s"] < waiting[-1]["time_s"]
    slow = {
        (device, lag) for r in records if r["kind"] == "edge" for device, lag in zip(r["device"], r["lag"], strict=True)
    }
    assert all(lag == 0 for device, lag in slow if device not in (3, 7))
