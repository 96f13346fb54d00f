"""Who is served by whom: descents, makespans and dynamics against hand values and brute force."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import optimize

import airprune as ap
from airprune.engines.serial import SerialEngine
from airprune.methods.association import ASSOCIATIONS
from airprune.methods.association.descent import descend, members
from airprune.methods.association.hfel import Hfel
from airprune.methods.association.ina import descended, exact, listed, node_times_s
from airprune.methods.association.replicator import contest_bids, evolved, filled, matched, quotas, stepped
from airprune.rounds.experiment import Experiment
from airprune.runs.driver import InProcess
from airprune.simulation import run_rounds
from support.tiny import blobs, tiny_scenario

STUCK = np.array([[1, 1], [3, 4], [6, 5], [3, 2]], dtype=np.float64)
ROUTED = np.array([[4, 7], [3, 2], [5, 5], [2, 6]], dtype=np.float64)


def price_of(times, start=0.0):
    """Σ of a table's entries over an edge's devices, and what an edge costs beside."""
    start = np.broadcast_to(start, times.shape[1])
    return lambda groups: np.array([start[k] + times[list(devices), k].sum() for k, devices in groups])


def total(edge, price, num_edges, combine):
    groups = [members(np.asarray(edge), k) for k in range(num_edges)]
    return combine([price([group])[0] if group[1] else 0.0 for group in groups])


def brute(count, num_edges, price, combine):
    return min(total(edge, price, num_edges, combine) for edge in itertools.product(range(num_edges), repeat=count))


def test_an_exchange_helps_where_no_transfer_does():
    price, start = price_of(STUCK), np.array([0, 0, 1, 1])
    assert total(start, price, 2, max) == 7
    np.testing.assert_array_equal(descend(start, 2, price, worst=True, exchanges=False), start)
    found = descend(start, 2, price, worst=True)
    assert found.tolist() == [1, 0, 1, 0]
    assert total(found, price, 2, max) == brute(4, 2, price, max) == 6


def test_the_slowest_node_ends_soonest_where_brute_force_says():
    price = price_of(ROUTED, start=[1, 0])
    assert total(ROUTED.argmin(axis=1), price, 2, max) == 12
    found = exact(4, 2, price)
    assert found.tolist() == [0, 1, 1, 0] and total(found, price, 2, max) == 7


def test_descents_end_where_nothing_helps_and_exact_search_where_nothing_is_better():
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(15):
        count, num_edges = int(rng.integers(2, 7)), int(rng.integers(2, 4))
        times = rng.uniform(1, 10, (count, num_edges))
        price = price_of(times, start=rng.uniform(0, 3, num_edges))
        for combine, worst in ((sum, False), (max, True)):
            best = brute(count, num_edges, price, combine)
            start = listed(times.min(axis=1), num_edges, price) if worst else times.argmin(axis=1)
            edge = descend(start, num_edges, price, worst=worst)
            cost = total(edge, price, num_edges, combine)
            assert best - 1e-9 <= cost <= total(start, price, num_edges, combine) + 1e-9
            gaps.append(cost / best - 1)
            for n, k in itertools.product(range(count), range(num_edges)):
                other = edge.copy()
                other[n] = k
                assert total(other, price, num_edges, combine) >= cost - 1e-9
            for i, j in itertools.combinations(range(count), 2):
                other = edge.copy()
                other[[i, j]] = other[[j, i]]
                assert total(other, price, num_edges, combine) >= cost - 1e-9
        assert total(exact(count, num_edges, price), price, num_edges, max) == pytest.approx(best, rel=1e-12)
    assert max(gaps) < 0.35  # a local optimum, rarely far from the best one


def test_devices_sent_round_in_a_ring_come_home():
    """Everybody is near one edge; list scheduling leaves some elsewhere, and no exchange of two brings them back."""
    rng = np.random.default_rng(0)
    upload_s = np.where(np.arange(15)[:, None] % 5 == np.arange(5), 1.0, 1.3) * rng.uniform(0.95, 1.05, (15, 5))
    price = price_of(upload_s)
    home = total(np.arange(15) % 5, price, 5, max)
    assert total(descended(upload_s, price, exchanges=True), price, 5, max) <= home + 1e-9


def test_the_best_channel_for_everybody_is_optimal_where_only_the_sum_of_uploads_counts():
    times = np.random.default_rng(3).uniform(1, 10, (12, 4))
    best = times.argmin(axis=1)
    np.testing.assert_array_equal(descend(best, 4, price_of(times)), best)
    np.testing.assert_array_equal(descend(np.zeros(12, dtype=int), 4, price_of(times)), best)


def view_of(**changes):
    """What an association sees on six devices and two edges that stand close together."""
    near = {"network__edge_distance_m": 100.0, "network__inner_m": 40.0, "network__outer_m": 160.0}
    return Experiment.of(tiny_scenario(**{**near, **changes}), dataset=blobs()).stations.view(0)


def test_edges_cost_what_their_plans_cost():
    """Energy, delay and pruning of the scenario's own scheme, each alone."""
    view = view_of(plan__scheme="optimal", plan__deadline_s=0.0002)
    groups = [(0, (0, 3)), (1, (1, 2, 4, 5)), (1, (0,))]
    device = np.array([0, 3, 1, 2, 4, 5, 0])
    station = np.array([0, 0, 1, 1, 1, 1, 1])
    band = np.array([0, 0, 1, 1, 1, 1, 2])
    plan = ap.plan(view.problem(device, station, band))
    assert plan.pruning_ratio.max() > 0
    np.testing.assert_allclose(
        view.problem(device, station, band).full_band_rate_bps,
        20e6 * np.log2(1 + view.gains()[device, station] * 10 ** (2.8 - 3) / 10 ** (-11 - 3)),
        rtol=1e-12,
    )
    for weights, expected in (
        ((1.0, 0.0, 0.0), plan.problem.groups.sum(plan.energy_j)),
        ((0.0, 1.0, 0.0), plan.edge_latency_s),
        ((0.0, 0.0, 1.0), plan.problem.groups.sum(plan.pruning_ratio)),
    ):
        names = ("energy_weight", "time_weight", "pruning_weight")
        hfel = Hfel(**dict(zip(names, weights, strict=True)))
        np.testing.assert_allclose(hfel.edge_costs(view, groups), expected, rtol=1e-12)


def test_who_blocks_an_edge_counts_as_everybody_pruned_whole():
    view = view_of(plan__scheme="optimal", plan__deadline_s=1e-7)
    hfel = Hfel(energy_weight=0.0, time_weight=0.0, pruning_weight=1.0)
    np.testing.assert_array_equal(hfel.edge_costs(view, [(0, (0, 1, 2)), (1, (4,))]), [18.0, 6.0])


@pytest.mark.parametrize(
    ("scheme", "options"),
    [("hfel", {}), ("optimal", {"energy_weight": 0.0, "time_weight": 0.0, "pruning_weight": 1.0})],
)
def test_hfel_costs_no_more_than_the_best_channel_and_hardly_more_than_the_best_assignment(scheme, options):
    view = view_of(plan__scheme=scheme, plan__deadline_s=0.0002)
    hfel = Hfel(**options)
    served, _ = hfel.decide(view, {})
    np.testing.assert_array_equal(served.gain, view.gains()[np.arange(6), served.edge])
    every = [(k, devices) for k in (0, 1) for size in range(1, 7) for devices in itertools.combinations(range(6), size)]
    known = dict(zip(every, hfel.edge_costs(view, every).tolist(), strict=True))

    def cost(edge):
        groups = (members(np.asarray(edge), k) for k in (0, 1))
        return sum(known[group] for group in groups if group[1])

    best = min(cost(edge) for edge in itertools.product((0, 1), repeat=6))
    assert cost(served.edge) <= cost(view.gains().argmax(axis=1)) + 1e-12
    assert cost(served.edge) == pytest.approx(best, rel=0.02)  # a local optimum


def test_in_network_aggregation_counts_rounds_and_the_way_up():
    view = view_of(topology__hierarchical__backhaul_bps=1e6, rounds__edge_rounds=(2, 3))
    problem = view.problem(np.array([0, 1]), np.array([1, 1]), np.array([0, 0]))
    weights = float(problem.largest_model_weights[0])
    compute_s = weights * 40 / 3e9
    uploads_s = np.sum(64 * weights / problem.full_band_rate_bps)
    expected = 3 * (compute_s + uploads_s) + 64 * weights / 1e6
    assert node_times_s(view, [(1, (0, 1))])[0] == pytest.approx(expected, rel=1e-12)


def test_shares_follow_rewards_one_step_and_to_the_end():
    rewards, uniform = np.array([3.0, 1.0, 2.0]), np.full(3, 1 / 3)
    free = {"alone_s": np.zeros(3), "time_cost": 0.0, "speed": 0.1}
    np.testing.assert_allclose(stepped(uniform, rewards, 30, **free), [0.3366667, 0.33, 0.3333333], atol=5e-8)
    rng = np.random.default_rng(0)
    for start in (uniform, np.array([0.01, 0.98, 0.01]), *rng.dirichlet(np.ones(3), size=3)):
        end = evolved(start, rewards, 30, steps=10_000, **free)
        np.testing.assert_allclose(end, rewards / rewards.sum(), atol=1e-6)  # steps below 1e-9 end it
        assert end.sum() == pytest.approx(1.0, abs=1e-12)


def test_slow_edges_stay_small_and_utilities_level_out():
    rewards, alone_s = np.ones(3), np.array([0.01, 0.02, 0.4])
    share = evolved(np.full(3, 1 / 3), rewards, 30, alone_s=alone_s, time_cost=1.0, speed=0.1, steps=100_000)
    assert share[0] > share[1] > share[2] > 0
    utility = rewards / (30 * share) - 30 * share * alone_s
    assert np.ptp(utility) < 1e-5


def test_edges_bid_as_in_a_tullock_contest():
    np.testing.assert_allclose(contest_bids(np.array([4.0, 2.0])), [4**2 * 2 / 36, 2**2 * 4 / 36], rtol=1e-14)
    np.testing.assert_allclose(contest_bids(np.full(5, 3.0)), 3 * 4 / 25, rtol=1e-14)
    bids = contest_bids(np.array([1.0, 9.0, 8.0, 0.0]))  # the first is worth less than what the others spend
    assert bids[0] == bids[3] == 0.0
    for edge in (1, 2):
        own = np.linspace(0.5, 1.5, 1001) * bids[edge]
        gain = [9.0, 8.0][edge - 1] * own / (own + bids.sum() - bids[edge]) - own
        assert abs(own[np.argmax(gain)] / bids[edge] - 1) < 1.1e-3  # nobody gains by another bid, to the grid's step


def test_quotas_are_filled_to_the_last_place():
    places = quotas(np.array([0.5, 1 / 6, 1 / 3]), 10)
    assert places.tolist() == [5, 2, 3]
    gains = np.random.default_rng(0).uniform(size=(10, 3))
    edge = filled(places, gains)
    assert np.bincount(edge).tolist() == [5, 2, 3] and edge[0] == 0
    cost = 1 / gains
    best = matched(places, cost)
    rows, columns = optimize.linear_sum_assignment(np.repeat(cost, places, axis=1))
    assert np.bincount(best).tolist() == [5, 2, 3]
    least = cost[rows, np.repeat([0, 1, 2], places)[columns]].sum()
    assert cost[np.arange(10), best].sum() == pytest.approx(least, rel=1e-12)


def test_associations_decide_whose_samples_an_edge_stands_for():
    scenario = tiny_scenario(association__name="ina", network__devices_per_edge=(5, 1), network__edge_distance_m=50.0)
    experiment = Experiment.of(scenario, dataset=blobs())
    state = experiment.initial_state()
    edge = experiment.stations.serving(state.values)
    assert edge.tolist() != experiment.network.edge.tolist()
    expected = np.bincount(edge, experiment.data_sizes, minlength=2)
    np.testing.assert_array_equal(experiment.station_samples(state), expected)


def test_devices_are_matched_with_blocks_of_all_stations_at_the_least_energy():
    """Brute force over who serves whom, at most three devices a station, each with a third of the band."""
    view = view_of(plan__scheme="conflict-graph", plan__deadline_s=0.002)
    matching = ASSOCIATIONS["conflict-graph"]
    device, station = np.divmod(np.arange(12), 2)
    thirds = view.problem(device, station, np.arange(12))
    thirds = dataclasses.replace(thirds, full_band_rate_bps=thirds.full_band_rate_bps / 3)
    narrow = dataclasses.replace(thirds.limits, bandwidth_hz=thirds.limits.bandwidth_hz / 3)
    plan = ap.plan(dataclasses.replace(thirds, limits=narrow), "energy")
    assert not plan.pruning_ratio.any()
    energy_j = plan.energy_j.reshape(6, 2)
    allowed = [edge for edge in itertools.product((0, 1), repeat=6) if sum(edge) == 3]
    best = min(energy_j[np.arange(6), edge].sum() for edge in allowed)
    served, _ = matching().decide(view, {})
    assert energy_j[np.arange(6), served.edge].sum() == pytest.approx(best, rel=1e-9)
    greedy, _ = matching(search="greedy").decide(view, {})
    assert energy_j[np.arange(6), greedy.edge].sum() >= best * (1 - 1e-9)


def test_whoever_serves_whom_one_round_of_edges_and_cloud_is_flat_averaging():
    """Sums and counts by data: routing changes the clock, never the model (but for the rounding of sums)."""
    one_round = {"rounds__edge_rounds": 1, "model__float64": True, "network__edge_distance_m": 100.0}
    models, clocks = {}, {}
    for method in ("fedavg", "hierfavg", "ina", "replicator", "hfel"):
        scenario = tiny_scenario(method=method, **one_round)
        experiment = Experiment.of(scenario, dataset=blobs())
        state = experiment.initial_state()
        with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
            records = list(run_rounds(experiment, engine, state))
        models[method], clocks[method] = state.global_state, records[-1]["time_s"]
    for method, model in models.items():
        np.testing.assert_allclose(model, models["fedavg"], rtol=0, atol=1e-12, err_msg=method)
    assert clocks["ina"] < clocks["fedavg"] and clocks["ina"] <= clocks["hierfavg"]
