"""Theorem 1 over recorded runs."""

import json

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue
from airprune.results.bound import worth_of
from airprune.theory.convergence import convergence_bound

SETTINGS = {
    "diagnostics.gradients": True,
    "network.num_edges": 2,
    "network.devices_per_edge": 3,
    "rounds.global_rounds": 2,
    "rounds.edge_rounds": 2,
    "data.samples_per_device": 20,
    "data.test_samples": 100,
    "train.batch_size": 8,
    "train.local_epochs": 2,
    "engine.name": "serial",
}


def folder_of(path, **changes):
    scenario = ap.Scenario.preset("smoke").with_values(SETTINGS | changes)
    for _ in ap.run(scenario, out=path):
        pass
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("bound") / "run")


def test_both_bounds_of_a_run_are_those_of_its_records(folder):
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    edges = [record for record in records if record["kind"] == "edge"]
    rounds = [record for record in records if record["kind"] == "global"]
    found = ap.bound_of(folder)

    num_weights = 43_888  # of the paper's CNN
    assert found.measured == pytest.approx(np.mean([r["gradient_sq"] for r in rounds]) / num_weights, rel=1e-12)
    ratio_sum = np.sum([record["pruning_ratio"] for record in edges]) / 2  # of a global round
    shared = {
        "initial_loss_gap": edges[0]["train_loss"],
        "learning_rate": ap.Scenario.load(folder / "scenario.toml").train.learning_rate,
        "num_global_rounds": 2,
        "num_edge_rounds": 2,
        "num_local_iterations": 6,  # 20 samples in batches of 8, twice
        "num_weights": num_weights,
        **found.constants,
    }
    corrected = convergence_bound(**shared, num_devices=6, pruning_ratio_sum=ratio_sum)
    tight = convergence_bound(**shared, num_devices=3, pruning_ratio_sum=ratio_sum / 2, variant="tight")
    assert found.corrected.total == pytest.approx(corrected.total, rel=1e-12)
    assert found.tight.total == pytest.approx(tight.total, rel=1e-12)
    assert found.constants["smoothness"] == max(value for record in edges for value in record["smoothness"])
    assert found.measured <= found.tight.total < found.corrected.total
    assert found.ratio == found.tight.total / found.measured


def test_what_the_theorem_does_not_cover_is_said(folder, tmp_path):
    momentum = ap.bound_of(folder_of(tmp_path / "m", **{"train.momentum": 0.9, "data.partition": "shards"}))
    assert momentum.departures[:2] == ("momentum 0.9", "non-IID data (shards): devices have different losses")
    assert "The theorem does not cover: momentum 0.9; non-IID data" in momentum.worth


def test_a_run_without_diagnostics_is_refused_with_the_way_out(tmp_path):
    path = folder_of(tmp_path / "r", **{"diagnostics.gradients": False, "rounds.global_rounds": 1})
    with pytest.raises(
        InvalidValue, match=r"bound_of\.run must be .* got .*r\. Train with diagnostics\.gradients = true"
    ):
        ap.bound_of(path)


def test_the_sentence_says_whether_the_bound_says_anything():
    useless = worth_of(measured=1e-4, corrected=1e11, tight=1.0, trivial=1e-2)
    assert useless.startswith(
        "Both bounds hold: the tight one is 10^4.0 times the measured value (the corrected one 10^15"
    )
    assert "more than φ²/W = 0.01" in useless and useless.endswith("so neither says anything about this run.")
    useful = worth_of(measured=1e-4, corrected=1e11, tight=1e-3, trivial=1e-2)
    assert "10 times the measured value" in useful and useful.endswith("the tight one says something about this run.")
    assert worth_of(measured=1.0, corrected=2.0, tight=0.5, trivial=3.0).startswith("A bound is broken")
