"""Attackers in a simulation, and models that are rolled back when they explode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import airprune as ap
from airprune.components.component import paper_shape
from airprune.deployment.packing import ReportArrays
from airprune.deployment.run_definition import check_is_real
from airprune.engines.serial import SerialEngine
from airprune.errors import InvalidValue, UsageError
from airprune.rounds.attacks import Attack
from airprune.rounds.experiment import Experiment
from airprune.rounds.rollback import update_length, verdict_on
from airprune.rounds.sums import DeviceStatistics
from airprune.runs.driver import InProcess
from airprune.scenario.sections import AttackSection
from airprune.simulation import run_rounds
from airprune.simulation.environment import Environment
from support.tiny import blobs, last_state, tiny_scenario

KINDS = ("sign-flip", "noise", "scaled", "label-flip", "free-rider", "colluding")
SHARE = {"attack__share": 0.5}  # three of six devices


def traced(**changes):
    """The first edge round, where all edges have the same model: (updates by device, attackers, trace)."""
    scenario = tiny_scenario(model__float64=True, **changes)
    trace = ap.trace_round(scenario, dataset=blobs())
    sent = np.ones_like(trace.upload, dtype=bool)
    sent[:, slice(*trace.prunable)] = trace.sent
    received = np.stack([trace.received(row) for row in range(len(trace.device))])
    attack = Attack.of(scenario.attack, scenario.num_devices, scenario.seed)
    return np.where(sent, trace.upload - received, 0.0), [] if attack is None else list(attack.devices), trace


# Who attacks


def test_attackers_are_an_exact_share_and_the_same_for_all_methods():
    by_method = {
        name: Experiment.of(tiny_scenario(method=name, attack__kind="noise", **SHARE), dataset=blobs()).attack.devices
        for name in ("hierfavg", "krum", "adaptive-pruning")
    }
    assert len(set(by_method.values())) == 1 and len(by_method["krum"]) == 3
    of_seed = {Attack.of(AttackSection(kind="noise"), 1_000, seed).devices for seed in range(3)}
    assert len(of_seed) == 3 and all(len(devices) == 200 for devices in of_seed)


def test_no_kind_and_no_share_is_no_attack():
    assert Attack.of(AttackSection(), 10, 0) is None
    assert Attack.of(AttackSection(kind="noise", share=0.0), 10, 0) is None


# What they send


@pytest.mark.parametrize("scheme", ["no-pruning", "optimal"])
@pytest.mark.parametrize(
    ("kind", "strength", "factor"),
    [("sign-flip", None, -1.0), ("sign-flip", 3.0, -3.0), ("scaled", None, 100.0), ("free-rider", None, 0.0)],
)
def test_attackers_send_a_multiple_of_what_they_trained_and_others_their_own(kind, strength, factor, scheme):
    changes = {"plan__scheme": scheme, "plan__deadline_s": 0.0004 if scheme == "optimal" else 1.0}
    honest, _, plain = traced(**changes)
    found, attackers, trace = traced(attack__kind=kind, attack__strength=strength, **SHARE, **changes)
    expected = honest.copy()
    expected[attackers] *= factor
    assert len(attackers) == 3 and np.allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert np.array_equal(trace.sent, plain.sent) and np.array_equal(trace.upload_bits, plain.upload_bits)
    assert scheme == "no-pruning" or not trace.sent.all()


def test_noise_has_the_length_of_the_update_times_the_strength_and_is_repeated_by_the_seed():
    honest, _, _ = traced(plan__scheme="no-pruning")
    found, attackers, _ = traced(plan__scheme="no-pruning", attack__kind="noise", attack__strength=4.0, **SHARE)
    again, _, _ = traced(plan__scheme="no-pruning", attack__kind="noise", attack__strength=4.0, **SHARE)
    assert np.array_equal(found, again)
    for device in attackers:
        moved = honest[device][honest[device] != 0.0]
        # The standard error of a standard deviation of 1,092 numbers is 2 %.
        assert found[device].std() == pytest.approx(4.0 * np.sqrt(np.square(moved).mean()), rel=0.1)
    assert not np.allclose(found[attackers[0]], found[attackers[1]])


def test_colluders_send_the_same_a_few_standard_deviations_from_their_mean():
    honest, _, _ = traced(plan__scheme="no-pruning")
    found, attackers, _ = traced(plan__scheme="no-pruning", attack__kind="colluding", **SHARE)
    theirs = honest[attackers]
    expected = theirs.mean(axis=0) - 1.5 * theirs.std(axis=0)
    for device in range(6):
        assert np.allclose(found[device], expected if device in attackers else honest[device], rtol=1e-9, atol=1e-12)


def test_flipped_labels_are_those_of_the_attackers_samples():
    plain = Experiment.of(tiny_scenario(), dataset=blobs())
    flipped = Experiment.of(tiny_scenario(attack__kind="label-flip", **SHARE), dataset=blobs())
    for device in range(6):
        own, before = plain.samples[device], plain.dataset.train_y
        expected = 3 - before[own] if device in flipped.attack.devices else before[own]
        assert np.array_equal(flipped.dataset.train_y[own], expected)
    assert np.array_equal(plain.dataset.test_y, flipped.dataset.test_y)


def test_labels_of_shared_samples_cannot_be_flipped():
    scenario = tiny_scenario(attack__kind="label-flip", data__samples_per_device=20)
    with pytest.raises(InvalidValue, match=r"^Scenario\.attack\.kind must be another one where devices share samples"):
        Experiment.of(scenario, dataset=blobs())


@pytest.mark.parametrize("kind", KINDS)
def test_attackers_are_recorded_and_cost_what_honest_devices_do(kind):
    _, honest, _ = last_state(tiny_scenario(plan__scheme="no-pruning"))
    _, attacked, experiment = last_state(tiny_scenario(plan__scheme="no-pruning", attack__kind=kind, **SHARE))
    for before, after in zip(honest, attacked, strict=True):
        assert all(before[key] == after[key] for key in ("uploaded_bits", "energy_j", "num_samples"))
        if after["kind"] == "edge":
            assert after["attackers"] == list(experiment.attack.devices) and "attackers" not in before


def test_attackers_that_do_not_upload_are_not_recorded():
    _, records, experiment = last_state(tiny_scenario(attack__kind="noise", events__dropout_probability=0.5, **SHARE))
    for record in records:
        if record["kind"] == "edge":
            there = {n for n, fate in zip(record["device"], record["fate"], strict=True) if fate == "ok"}
            assert set(record["attackers"]) == there & set(experiment.attack.devices)


def test_robust_aggregations_learn_where_the_mean_does_not():
    changes = {"attack__kind": "scaled", "attack__share": 0.17, "network__devices_per_edge": 5, "seed": 1}
    mean = last_state(tiny_scenario(method="hierfavg", **changes))[1][-1]
    for name in ("norm-clip", "trimmed-mean", "median", "multi-krum", "geometric-median"):
        found = last_state(tiny_scenario(method=name, **changes))[1][-1]
        assert found["test_accuracy"] > 0.9 > mean["test_accuracy"]


def test_devices_that_add_up_updates_leave_nothing_to_compare():
    with pytest.raises(
        InvalidValue, match=r"^Scenario\.aggregation\.edge must not compare devices with topology 'd2d'"
    ):
        Experiment.of(tiny_scenario(topology__name="d2d", aggregation__edge="median"), dataset=blobs())


def test_attackers_are_not_deployed():
    experiment = Experiment.of(tiny_scenario(attack__kind="noise"), dataset=blobs())
    with pytest.raises(UsageError, match="Attackers are simulated"):
        check_is_real(experiment)


# Models that are rolled back


@pytest.mark.parametrize(
    ("combined", "lengths", "suspected", "rolled_back"),
    [
        (1.0, [1.0, 1.0, 1.0], (), False),
        (9.0, [1.0, 1.0, 30.0], (2,), False),  # named, though the mean is still short enough
        (11.0, [1.0, 1.0, 30.0], (2,), True),
        (11.0, [1.0, 30.0], (), True),  # which of two it was cannot be known
        (30.0, [30.0], (), False),
        (np.nan, [1.0, np.nan], (1,), True),
        (np.inf, [np.inf, np.inf, 1.0], (0, 1), True),
        (5.0, [0.0, 0.0, 5.0], (), False),  # a median of 0 is no measure
        (0.0, [], (), False),
    ],
)
def test_verdicts_by_hand(combined, lengths, suspected, rolled_back):
    assert verdict_on(combined, lengths, 10.0) == (suspected, rolled_back)


def test_lengths_are_root_mean_squares_over_what_was_sent():
    model, previous = np.array([3.0, 1.0, 5.0]), np.array([0.0, 1.0, 1.0])
    assert update_length(model, previous) == pytest.approx(5.0 / np.sqrt(3.0))
    assert update_length(model, previous, np.array([True, True, False])) == pytest.approx(np.sqrt(4.5))


@pytest.mark.parametrize("strength", [1e20, 1e300])  # huge, and infinite in float32
def test_an_exploding_average_is_rolled_back_and_the_attacker_named(strength):
    one = {"attack__kind": "scaled", "attack__share": 0.1, "attack__strength": strength, "network__devices_per_edge": 5}
    state, records, experiment = last_state(tiny_scenario(aggregation__rollback=10.0, **one))
    (attacker,) = experiment.attack.devices
    home = int(experiment.network.edge[attacker])
    edge_rounds = [record for record in records if record["kind"] == "edge"]
    for record in edge_rounds:
        assert record["suspected"] == [attacker] and record["rolled_back"] == [home]
        assert record["fate"] == ["ok"] * 10, "contributors stay in the record, and none is called failed"
    assert np.isfinite(state.global_state).all() and not state.diverged
    first = next(record for record in records if record["kind"] == "global")
    assert records[-1]["test_accuracy"] > 0.5 > 0.25 and records[-1]["train_loss"] < first["train_loss"]
    without = last_state(tiny_scenario(**one))[1][-1]
    assert without.get("diverged") or without["test_accuracy"] < 0.5


@pytest.mark.parametrize("kind", ["none", "label-flip", "free-rider"])
def test_a_rollback_that_is_never_needed_changes_no_byte(kind):
    values = {"attack__kind": kind, "plan__deadline_s": 0.0004, "events__dropout_probability": 0.2}
    plain, guarded = (last_state(tiny_scenario(**values, **more)) for more in ({}, {"aggregation__rollback": 1e6}))
    assert plain[1] == guarded[1] and np.array_equal(plain[0].models, guarded[0].models)


class LyingEdge(Environment):
    """The simulated network, but the model of edge 1 is another one after each round."""

    def play(self, experiment, engine, state, timed, groups):
        results = super().play(experiment, engine, state, timed, groups)
        state.edge_states[1] = 1e25
        return results


@pytest.mark.parametrize("step", ["replace", "momentum", "adam"])
def test_the_cloud_keeps_its_last_good_model_and_names_the_edge(step):
    values = {"network__num_edges": 4, "aggregation__rollback": 10.0, "aggregation__cloud_step": step}
    experiment = Experiment.of(tiny_scenario(rounds__edge_rounds=1, **values), dataset=blobs())
    state = experiment.initial_state()
    before = state.global_state.copy()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        records = list(run_rounds(experiment, engine, state, environment=LyingEdge()))
    cloud = [record for record in records if record["kind"] == "global"]
    assert all(record["rolled_back"] is True and record["suspected"] == [1] for record in cloud)
    assert np.array_equal(state.global_state, before)


def test_robust_clouds_contain_a_lying_edge():
    values = {"network__num_edges": 4, "aggregation__cloud": "median", "rounds__edge_rounds": 1}
    experiment = Experiment.of(tiny_scenario(**values), dataset=blobs())
    state = experiment.initial_state()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        records = list(run_rounds(experiment, engine, state, environment=LyingEdge()))
    assert np.abs(state.global_state).max() < 10.0 and records[-1]["test_accuracy"] > 0.6


def test_verdicts_travel_with_an_edges_report_and_take_no_bytes_without_one():
    shape = paper_shape()
    plain = ReportArrays(
        station=None,
        held=np.ones(shape.num_state, dtype=bool),
        kept_by=np.ones(shape.prunable_weights, dtype=np.int64),
        statistics=DeviceStatistics.of([]),
        reports={},
    )
    judged = replace(plain, suspected=(3, 5), rolled_back=True)
    found = ReportArrays.from_bytes(judged.to_bytes(), shape)
    assert (found.suspected, found.rolled_back) == ((3, 5), True)
    assert b"verdict" not in plain.to_bytes() and b"verdict" in judged.to_bytes()
    assert ReportArrays.from_bytes(plain.to_bytes(), shape).rolled_back is False
