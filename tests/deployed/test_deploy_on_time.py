"""`plan.on_time` of a deployment: plans by quantiles of what was measured of each device."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import airprune as ap
from airprune.deployment.cloud_estimates import as_values, learn, load_estimates, slowdown_of
from airprune.deployment.estimates import MARGIN_RATIO, Estimates
from airprune.deployment.histories import KEPT, first_histories, planned_seconds, quantiles, remember
from airprune.deployment.remote import CloudSettings
from airprune.runs.layout import RunFolder
from airprune.runs.measured import read_inputs, read_measured
from support.deployed import ROW
from support.federation import Tasks
from support.tiny import final_bytes

P = 0.9


def state_of(num_devices: int) -> SimpleNamespace:
    known = Estimates.unknown(num_devices).updated(
        uplink_bps=np.full(num_devices, 1e7), seconds_per_sample=np.full(num_devices, 1e-3)
    )
    return SimpleNamespace(values={**as_values(known), **first_histories(num_devices)})


def share_on_time(jitter: np.ndarray, *, on_time: float | None) -> float:
    """Share of rounds in which the time that was planned sufficed, in the closed loop of a deployment's cloud."""
    state, num_met, num_counted = state_of(1), 0, 0
    for number, factor in enumerate(jitter):
        estimates = load_estimates(state)
        planned_s = estimates.seconds_per_sample()
        if on_time is not None and number:
            planned_s = planned_seconds(state, estimates.seconds_per_sample(0.0), on_time=on_time, num_parts=1)
        true_s = 1e-3 * factor
        row = dataclasses.replace(
            ROW, fate="ok", planned_compute_s=planned_s[0], compute_s=true_s, started_s=true_s, uplink_s=None
        )
        if on_time is not None:
            remember(state, [row], [slowdown_of(row)], planned_s)
        learn(state, [row], [], planned_s)
        if number >= KEPT:
            num_counted += 1
            num_met += true_s <= planned_s[0] * (1 + 1e-12)
    return num_met / num_counted


@pytest.mark.parametrize("spread", [0.05, 0.3, 0.8])
def test_planned_times_suffice_with_the_given_probability_whatever_the_jitter(spread):
    jitter = np.random.default_rng(0).lognormal(0.0, spread, KEPT + 3_000)
    share = share_on_time(jitter, on_time=P)
    assert share > stats.binom(3_000, P).ppf(1e-4) / 3_000  # never less; more, as drops are followed at once


def test_a_fixed_margin_does_not_keep_that_promise():
    jitter = np.random.default_rng(0).lognormal(0.0, 0.8, KEPT + 3_000)
    assert share_on_time(jitter, on_time=None) < P


def test_a_quantile_is_an_order_statistic_and_below_nineteen_measurements_the_worst_with_a_margin():
    for count in (1, 5, 18):
        history = np.arange(1.0, count + 1)[np.newaxis]
        assert quantiles(history, 0.95)[0] == pytest.approx(count / (1 - MARGIN_RATIO), rel=1e-15)
    for count, place in ((19, 19), (39, 38), (59, 57)):  # ⌈(n + 1) · 0.95⌉
        history = np.random.default_rng(count).permutation(np.arange(1.0, count + 1))
        padded = np.concatenate([np.full(64 - count, np.nan), history])
        assert quantiles(padded[np.newaxis], 0.95)[0] == place
    assert math.isnan(quantiles(np.full((1, 4), np.nan), 0.95)[0])


def test_the_next_value_of_exchangeable_measurements_is_below_the_quantile_as_often_as_said():
    rng = np.random.default_rng(1)
    draws = rng.pareto(1.5, (20_000, 40))  # heavy tails
    share = np.mean(draws[:, -1] <= quantiles(draws[:, :-1], 0.95))
    assert share == pytest.approx(38 / 40, abs=4 * math.sqrt(0.95 * 0.05 / 20_000))  # k / (n + 1), four deviations


def test_a_device_that_becomes_slower_is_planned_so_at_once():
    state = state_of(1)
    for _ in range(40):
        row = dataclasses.replace(ROW, planned_compute_s=1e-3, compute_s=1e-3, started_s=1e-3)
        remember(state, [row], [1.0], np.array([1e-3]))
    slow = dataclasses.replace(ROW, planned_compute_s=1e-3, compute_s=3e-3, started_s=3e-3)
    remember(state, [slow], [slowdown_of(slow)], np.array([1e-3]))
    learn(state, [slow], [], np.array([1e-3]))
    now_s = load_estimates(state).seconds_per_sample(0.0)
    assert planned_seconds(state, now_s, on_time=P, num_parts=2)[0] == pytest.approx(3e-3)


def test_a_deployment_plans_with_quantiles_of_its_own_measurements_and_is_replayed_bit_for_bit(tmp_path):
    changes = ["model.name=mlp", "data.train_samples=120", "data.test_samples=40", "engine.name=serial"]
    changes += ["network.num_edges=1", "network.devices_per_edge=2", "plan.deadline_s=20", f"plan.on_time={P}"]
    scenario = ap.Scenario.preset("deployed").with_overrides(
        [*changes, "rounds.global_rounds=2", "rounds.edge_rounds=2"]
    )
    run = tmp_path / "run"
    with Tasks(tmp_path / "federation", num_edges=1, devices_per_edge=2) as federation:
        federation.start_all()
        for _ in federation.run_cloud(scenario, run, CloudSettings()):
            pass
    rows, inputs = read_measured(RunFolder(run)), read_inputs(RunFolder(run))
    assert {row.fate for row in rows} == {"ok"} and len(inputs) == 4
    for device in (0, 1):
        own = [row for row in rows if row.device == device]
        planned = [inputs[number].seconds_per_sample[device] for number in range(4)]
        shown = [planned[number] * slowdown_of(own[number]) for number in range(3)]
        for number in range(1, 4):  # fewer than 19 measurements: the worst with a margin, or the estimate
            assert planned[number] >= max(shown[:number]) / (1 - MARGIN_RATIO) * (1 - 1e-12)
        rates = [8 * row.bytes / (row.share * row.uplink_s) for row in own]
        assert inputs[3].full_band_rate_bps[device] <= (1 - MARGIN_RATIO) * min(rates[:3]) * (1 + 1e-12)
    for _ in ap.run(scenario, out=tmp_path / "again", replay=run):
        pass
    assert final_bytes(tmp_path / "again") == final_bytes(run)
