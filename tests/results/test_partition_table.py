"""A partition shown before training: counts by device and edge, warnings, text, JSON and a figure."""

import json

import numpy as np
import pytest

import airprune as ap
from airprune.cli import main
from airprune.data import as_dataset
from airprune.errors import InvalidValue
from airprune.results.partition import PartitionTable
from airprune.rounds.experiment import Experiment
from airprune.scenario import Scenario

COUNTS = np.array([[3, 0, 1], [0, 2, 0], [0, 0, 0], [4, 4, 0]])
EDGE = np.array([0, 0, 1, 1])


def table(**changes):
    values = {"name": "mine", "counts": COUNTS, "edge": EDGE, "class_names": ("a", "b", "c")}
    return PartitionTable(**{**values, **changes})


def test_sizes_and_edges_are_the_sums_of_devices():
    found = table()
    assert found.sizes.tolist() == [4, 2, 0, 8]
    assert found.edge_counts.tolist() == [[3, 2, 1], [4, 4, 0]]
    assert found.edge_rows()[1] == {"edge": 1, "devices": 2, "samples": 8, "counts": [4, 4, 0]}
    assert "4 devices on 2 edges, 14 training samples; 0 to 8 per device, median 3; 0 to 2 of 3 classes" in str(found)


def test_devices_without_samples_and_edges_without_a_class_are_warned_of():
    found = table(num_tests=np.array([1, 0, 0, 2]))
    assert found.warnings == (
        "1 device (2) is without samples, which cannot train.",
        "Edge 1 has no samples of 1 of 3 classes: c.",
        "2 devices (1, 2) are without test samples of their own.",
    )
    assert table(counts=np.ones((4, 3), int)).warnings == ()


def test_text_has_a_line_for_each_device_and_edge():
    lines = str(table(owner=("ann", "bob", "cy", "2 owners"))).splitlines()
    assert lines[2].split() == ["device", "edge", "owner", "samples", "a", "b", "c"]
    assert lines[3].split() == ["0", "0", "ann", "4", "3", "·", "1"]
    assert lines[9].split() == ["0", "2", "6", "3", "2", "1"]


def test_the_table_is_what_a_run_trains_on():
    scenario = Scenario.preset("smoke").with_values({"data.partition": "dirichlet", "engine.name": "serial"})
    experiment = Experiment.of(scenario)
    found = ap.partition_of(scenario)
    for counts, own in zip(found.counts, experiment.samples, strict=True):
        assert counts.tolist() == np.bincount(experiment.dataset.train_y[own], minlength=10).tolist()
    np.testing.assert_array_equal(found.edge, experiment.network.edge)


def test_owners_have_their_names_and_their_own_test_samples():
    x, who = np.random.default_rng(0).normal(size=(100, 3)), ["ann", "bob", "cy", "di", "ed"] * 20
    data = as_dataset((x, x.argmax(axis=1)), owner=who)
    found = ap.partition_of(Scenario.preset("smoke").with_("data.partition", "natural"), data)
    assert sorted(found.owner)[0] == "2 owners" and len(set(found.owner) & {"ann", "bob", "cy", "di", "ed"}) == 3
    assert sorted(found.num_tests.tolist()) == [4, 4, 4, 8]  # a fifth of 20 for each owner


def test_targets_without_classes_have_one_column_of_samples():
    x = np.random.default_rng(0).normal(size=(40, 3))
    scenario = Scenario.preset("smoke").with_values({"train.loss": "mse", "model.name": "mlp"})
    found = ap.partition_of(scenario, (x, x[:, 0]))
    assert found.class_names == ("samples",) and found.counts.tolist() == [[8]] * 4


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_figure_has_devices_and_edges(tmp_path, ending):
    path = tmp_path / f"partition.{ending}"
    figure = table().draw(path)
    devices, edges = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]
    assert [label.get_text() for label in edges.get_yticklabels()] == ["edge 0\n6", "edge 1\n8"]
    widths = [patch.get_width() for patch in edges.patches]
    assert widths == pytest.approx([3 / 6, 4 / 8, 2 / 6, 4 / 8, 1 / 6, 0])  # class by class, edge by edge
    assert path.stat().st_size > 1000 and devices.get_xlabel() == "training samples"


def test_many_classes_leave_a_legend_that_fits(tmp_path):
    counts = np.ones((4, 62), dtype=int)
    figure = table(counts=counts, class_names=tuple(map(str, range(62)))).draw()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(texts) == 40 and texts[-1] == "…"


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InvalidValue, match="one edge per device"):
        table(edge=EDGE[:3])


def test_the_command_prints_the_table_warns_and_draws(capsys, tmp_path):
    changes = ["data.partition=edge-non-iid", "data.classes_per_device=3"]
    assert main(["data", "partition", "smoke", *changes, "--out", str(tmp_path / "p.svg")]) == 0
    out, said = capsys.readouterr()
    assert "4 devices on 2 edges" in out and "By edge" in out
    assert said.count("warning: Edge") == 2 and (tmp_path / "p.svg").exists()
    assert main(["data", "partition", "smoke", *changes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["edge"] for row in found["devices"]] == [0, 0, 1, 1] and len(found["warnings"]) == 2
    assert main(["data", "partition", "smoke", "data.partition=natural"]) == 2
    assert "must be another for samples without owners" in capsys.readouterr().err
