"""Edges that use the same bandwidth, against a fixed point found by brute force and by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import optimize

import airprune as ap
from airprune.errors import InvalidValue
from airprune.planning import Interference
from airprune.planning.interference import plan_with_interference
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario
from airprune.studies.conformance import points
from airprune.wireless.mcs import mcs_rate_bps
from support.tiny import blobs, tiny_scenario

BAND = 20e6


def shannon(sinr):
    return BAND * np.log2(1 + sinr)


def cells(rng, *, per_cell=2, num_cells=2, rate_bps=shannon, **changes):
    """Devices at 10 to 30 dB, heard by the other cells' stations at −10 to 10 dB."""
    n = per_cell * num_cells
    edge = np.repeat(np.arange(num_cells), per_cell)
    heard = np.where(np.arange(num_cells) == edge[:, None], 0.0, 10.0 ** rng.uniform(-1, 1, (n, num_cells)))
    snr = 10.0 ** rng.uniform(1, 3, n)
    values = {
        "full_band_rate_bps": rate_bps(snr),
        "seconds_per_weight": 2 * 20 / rng.uniform(1e9, 3e9, n),
        "edge": edge,
        "deadline_s": 0.06,
        "max_pruning_ratio": 1.0,
        "interference": Interference(snr=snr, heard=heard, rate_bps=rate_bps),
    }
    return ap.PlanProblem(**values | changes)


def best_pair(problem, own, load):
    """Shares of two devices that minimise ρ₁ + ρ₂ at this load, by a search over the first one's share."""
    rate = shannon(problem.interference.snr[own] / (1 + load))
    a, q = problem.seconds_per_weight[own], problem.bits_per_weight[own]
    conv, fc, deadline_s = problem.conv_weights[own], problem.fc_weights[own], problem.deadline_s[own]

    def ratios(first):
        b = np.array([first, 1 - first])
        return np.maximum(1 - (deadline_s * b * rate / (a * b * rate + q) - conv) / fc, 0.0)

    least = conv * q / (rate * (deadline_s - a * conv))  # ρ = 1
    found = optimize.minimize_scalar(
        lambda first: ratios(first).sum(), bounds=(least[0], 1 - least[1]), method="bounded", options={"xatol": 1e-12}
    )
    return np.array([found.x, 1 - found.x])


@pytest.mark.parametrize("seed", range(5))
def test_two_cells_match_a_fixed_point_by_brute_force(seed):
    problem = cells(np.random.default_rng(seed), conv_weights=2000, deadline_s=0.02)  # all prune, all fit
    plan = ap.plan(problem).raise_if_failed()
    assert np.all(problem.groups.sum(plan.bandwidth_share) > 1 - 1e-12) and plan.pruning_ratio.max() < 1
    heard, first, second = problem.interference.heard, np.array([0, 1]), np.array([2, 3])

    def caused_back(load):
        """The load at the first station that follows from this one there, through both cells."""
        at_second = best_pair(problem, first, load) @ heard[first, 1]
        return best_pair(problem, second, at_second) @ heard[second, 0]

    load = optimize.brentq(lambda x: caused_back(x) - x, 0.0, heard.max(), xtol=1e-10)
    np.testing.assert_allclose(plan.bandwidth_share[second] @ heard[second, 0], load, rtol=1e-5)  # the search's digits
    np.testing.assert_allclose(plan.bandwidth_share[first], best_pair(problem, first, load), atol=1e-5)


def test_one_device_per_cell_by_hand():
    # Each has its whole cell, b = 1: SINR = 100 / (1 + 3) at both, 20 MHz · log2(26).
    links = Interference(snr=np.array([100.0, 100.0]), heard=np.array([[0.0, 3.0], [3.0, 0.0]]), rate_bps=shannon)
    problem = ap.PlanProblem(
        full_band_rate_bps=shannon(links.snr), seconds_per_weight=1e-9, edge=[0, 1], deadline_s=0.02, interference=links
    )
    plan = ap.plan(problem)
    np.testing.assert_allclose(plan.problem.full_band_rate_bps, 20e6 * np.log2(26), rtol=1e-12)  # closed form


@pytest.mark.parametrize("scheme", ["optimal", "min-max", "equal-resolved", "no-pruning"])
def test_rates_and_shares_of_a_plan_belong_together(scheme):
    rng = np.random.default_rng(7)
    for _ in range(10):
        problem = cells(rng, per_cell=5, num_cells=3, deadline_s=rng.uniform(0.2, 0.6))
        plan = ap.plan(problem, scheme)
        load = plan.bandwidth_share @ problem.interference.heard
        rate = shannon(problem.interference.snr / (1 + load[problem.edge]))
        np.testing.assert_allclose(plan.problem.full_band_rate_bps, rate, rtol=1e-10)


def test_without_links_to_other_stations_the_plan_is_that_without_interference():
    problem = cells(np.random.default_rng(1))
    deaf = dataclasses.replace(problem.interference, heard=np.zeros_like(problem.interference.heard))
    ours = ap.plan(dataclasses.replace(problem, interference=deaf))
    np.testing.assert_array_equal(
        ours.bandwidth_share, ap.plan(dataclasses.replace(problem, interference=None)).bandwidth_share
    )


def test_more_interference_never_prunes_less():
    problem = cells(np.random.default_rng(2), per_cell=4)
    totals = []
    for factor in (0.0, 0.1, 1.0, 3.0):
        louder = dataclasses.replace(problem.interference, heard=factor * problem.interference.heard)
        plan = ap.plan(dataclasses.replace(problem, interference=louder, deadline_s=0.15))
        totals.append(plan.raise_if_failed().pruning_ratio.sum())
    assert totals == sorted(totals)


def test_slices_are_heard_with_their_whole_power():
    problem = cells(np.random.default_rng(3), slice_bandwidth_hz=BAND)
    plan = ap.plan(problem)
    load = problem.interference.heard.sum(axis=0)
    rate = shannon(problem.interference.snr / (1 + load[problem.edge]))
    np.testing.assert_allclose(plan.problem.full_band_rate_bps, rate, rtol=1e-12)  # closed form


def test_steps_of_an_mcs_end_with_loads_that_no_device_exceeds():
    rng = np.random.default_rng(4)
    for _ in range(20):
        problem = cells(rng, per_cell=3, num_cells=3, rate_bps=lambda sinr: mcs_rate_bps(sinr, BAND), deadline_s=0.3)
        plan = ap.plan(problem)
        if plan.failed.any():
            continue
        load = plan.bandwidth_share @ problem.interference.heard
        true = mcs_rate_bps(problem.interference.snr / (1 + load[problem.edge]) * (1 + 1e-9), BAND)
        assert np.all(true >= plan.problem.full_band_rate_bps)


def test_the_fixed_point_needs_few_plans():
    problem, calls = cells(np.random.default_rng(5), per_cell=5, num_cells=4, deadline_s=0.3), []

    def counted(given):
        calls.append(1)
        return ap.plan(given)

    plan_with_interference(problem, counted)
    assert len(calls) < 40


def test_a_subset_keeps_its_links():
    problem = cells(np.random.default_rng(6))
    some = problem.subset(np.array([0, 3]))
    np.testing.assert_array_equal(some.interference.heard, problem.interference.heard[[0, 3]])


def test_reuse_decides_which_edges_interfere():
    small = {"model.name": "mlp", "network.num_edges": 4, "network.devices_per_edge": 2, "radio.noise": "thermal"}

    def rates(reuse):
        scenario = Scenario().with_values(small | {"radio.reuse": reuse})
        return first_round(Experiment.of(scenario, dataset=points())).plan.problem.full_band_rate_bps

    alone, pairs, all_edges = rates(None), rates(2), rates(1)
    assert np.all(all_edges < pairs) and np.all(pairs < alone)
    np.testing.assert_array_equal(rates(4), alone)


def test_a_run_with_interference_meets_the_deadline_and_prunes_more():
    def records(**changes):
        scenario = tiny_scenario(plan__deadline_s=0.0002, **changes)
        return [record for record in ap.run(scenario, dataset=blobs()) if record["kind"] == "edge"]

    ours, theirs = records(radio__reuse=1), records()
    assert all(np.add(r["compute_s"], r["uplink_s"]).max() <= 0.0002 * (1 + 1e-9) for r in ours)
    assert np.mean(ours[0]["pruning_ratio"]) > np.mean(theirs[0]["pruning_ratio"])


def test_schemes_that_choose_powers_and_inexact_knowledge_are_refused():
    with pytest.raises(InvalidValue, match=r"radio\.reuse must be none with scheme 'energy'"):
        list(ap.run(tiny_scenario(radio__reuse=1, plan__scheme="energy"), dataset=blobs()))
    with pytest.raises(InvalidValue, match=r"radio\.csi_correlation must be 1 with a reuse"):
        Scenario().with_values({"radio.reuse": 1, "radio.fading": "rayleigh", "radio.csi_correlation": 0.5})
