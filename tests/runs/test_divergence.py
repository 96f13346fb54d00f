"""A run whose models are not finite numbers ends at once and says so; where runs are compared, that is a result."""

import contextlib

import numpy as np
import pytest

import airprune as ap
from airprune.errors import Diverged
from airprune.rounds.experiment import Experiment
from airprune.runs.layout import RunFolder
from support.tiny import blobs, tiny_scenario

# Two regions of two edges each; a third level of rounds.
DEEP = {
    "topology__name": "tree",
    "topology__tree__nodes": [2],
    "topology__tree__rounds": [2],
    "network__num_edges": 4,
}


def wild(**changes) -> ap.Scenario:
    """Diverges in its first global round, but not in its first edge round."""
    return tiny_scenario(train__learning_rate=1e8, train__local_epochs=1, **changes)


def sentence_of(scenario: ap.Scenario, **given) -> tuple[str, list[dict]]:
    records = []
    with pytest.raises(Diverged) as caught:
        records.extend(ap.run(scenario, dataset=blobs(), **given))
    return str(caught.value), records


def test_it_is_an_error_of_airprune_after_the_records_so_far():
    taken = []
    with pytest.raises(ap.Diverged) as caught:
        for record in ap.run(wild(), dataset=blobs()):
            taken.append(record)
    assert isinstance(caught.value, ap.AirpruneError) and caught.value.exit_status == 1
    assert [record["kind"] for record in taken] == ["edge", "edge", "global"]
    assert taken[-1]["diverged"] == str(caught.value)
    where = "edge round 2 of global round 1: the models of edges 0, 1 and devices 0, 1, 2, 3, 4 and 1 more"
    assert where in str(caught.value)


def test_a_run_that_does_not_diverge_says_nothing_of_it(tmp_path):
    records = list(ap.run(tiny_scenario(), out=tmp_path, dataset=blobs()))
    assert not any("diverged" in record for record in records) and RunFolder(tmp_path).divergence == ""


@pytest.mark.parametrize("changes", [{}, DEEP], ids=["edges", "regions"])
def test_stopped_after_any_record_it_ends_in_the_same_bytes_and_sentence(tmp_path, changes):
    scenario = wild(**changes)
    expected, records = sentence_of(scenario, out=tmp_path / "whole")
    whole = RunFolder(tmp_path / "whole")
    assert whole.has_finished(scenario) and not whole.is_finished and not whole.final_file.exists()
    for count in range(1, len(records) + 1):
        folder = RunFolder(tmp_path / str(count))
        with contextlib.closing(ap.run(scenario, out=folder.path, dataset=blobs())) as run:
            for _ in range(count):
                next(run)
        assert sentence_of(scenario, out=folder.path, resume=True) == (expected, records[count:])
        assert folder.records_file.read_bytes() == whole.records_file.read_bytes()
        assert folder.has_finished(scenario)


def test_evaluations_of_a_diverged_model_have_no_number():
    _, records = sentence_of(wild(rounds__evaluate_every="edge"))
    assert [record["test_accuracy"] is None for record in records] == [False, True, True]
    _, records = sentence_of(wild(rounds__evaluate_every="never"))
    assert "test_accuracy" not in records[-1]


@pytest.mark.parametrize("engine", [{"name": "serial"}, {"name": "processes", "workers": 2}], ids=lambda e: e["name"])
def test_devices_that_cannot_choose_among_what_is_no_number_are_named(engine):
    scenario = wild().with_values({"method": "dpf", "plan.deadline_s": 0.0052})
    sentence, _ = sentence_of(scenario.with_values({f"engine.{key}": value for key, value in engine.items()}))
    assert "the models of devices 0, 1, 2, 3, 4 and 1 more are not made of finite" in sentence


def test_a_server_optimiser_that_diverges_is_the_clouds():
    scenario = tiny_scenario(aggregation__cloud_step="momentum", aggregation__momentum__rate=3e38)
    sentence, records = sentence_of(scenario.with_("train.learning_rate", 20.0))
    assert "in global round" in sentence and "the cloud's model is not made of finite" in sentence
    assert (
        sentence.endswith("train.learning_rate (now 20) or aggregation.momentum.rate.")
        and records[-1]["kind"] == "global"
    )


def test_one_device_of_many_is_enough_and_is_named():
    x, y = blobs()[0]
    scenario = tiny_scenario()
    mine = Experiment.of(scenario, dataset=blobs()).samples[4]
    spoilt = x.copy()
    spoilt[mine] *= np.float32(1e30)
    records = []
    with pytest.raises(Diverged, match=r"the models of edge 1 and device 4 are not made of finite"):
        records.extend(ap.run(scenario, dataset=((spoilt, y), blobs()[1])))
    assert [loss is None for loss in records[0]["loss"]] == [n == 4 for n in records[0]["device"]]


STEADY = ("sign-sgd", "fedadam")
ROBUST = (
    "norm-clip",
    "trimmed-mean",
    "median",
    "krum",
    "multi-krum",
    "geometric-median",
    "secure-sums",
)  # keep out what is not finite


@pytest.mark.parametrize("method", [name for name in ap.METHODS if name not in (*STEADY, *ROBUST)])
def test_every_method_that_diverges_ends_in_the_same_way(method):
    scenario = tiny_scenario(train__local_epochs=1, rounds__global_rounds=1).with_("method", method)
    scenario = scenario.with_values({"train.learning_rate": 1e30, "train.momentum": 0.0, "plan.deadline_s": 0.0052})
    sentence, _ = sentence_of(scenario)
    assert sentence.startswith("Training diverged in ") and "\n" not in sentence


def test_a_comparison_and_a_sweep_in_python_have_it_as_a_result(tmp_path):
    also = {"calm": {}, "wild": {"train.learning_rate": 1e8}}
    base = tiny_scenario(train__local_epochs=1, data__name="glyphs", data__train_samples=240, data__test_samples=60)
    found = ap.compare(base, also=also, out=tmp_path / "compare")
    assert found.diverged == {"wild": 1} and found.estimates["wild"] == {} and found.estimates["calm"]
    assert found.label("wild") == "wild (diverged)" and "wild (diverged)" in found.latex()
    swept = ap.sweep(base, {"train.learning_rate": [0.05, 1e8]}, out=tmp_path / "sweep")
    assert not swept.failed and [row.num_diverged for row in swept.rows] == [0, 1]
    states = [line.split(",")[3] for line in (tmp_path / "sweep" / "sweep.csv").read_text().splitlines()]
    assert states == ["state", "finished", "diverged"]
