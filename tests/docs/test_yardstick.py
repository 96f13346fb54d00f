"""The yardstick sees every difference between two runs, down to one bit, and says where it is."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tools.yardstick import chosen, difference, main, report
from tools.yardstick_scenarios import CASES, METHODS, RENAMED, scenario_of

import airprune as ap
from airprune.scenario.presets import presets
from support.each import each

RECORDS = [
    {"kind": "edge", "loss": [0.5, 0.25], "coverage": [{"edge": 0, "min_count": 2}]},
    {"kind": "global", "test_loss": 0.75},
]
TENSORS = {"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.zeros(2, np.float32)}


def folder_of(path: Path, records: list[dict] = RECORDS, tensors: dict[str, np.ndarray] = TENSORS) -> Path:
    path.mkdir()
    (path / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    save_file(tensors, path / "final.safetensors")
    return path


@pytest.fixture
def base(tmp_path):
    return folder_of(tmp_path / "base")


def test_equal_runs_do_not_differ(base, tmp_path):
    assert difference(base, folder_of(tmp_path / "present")) is None


@pytest.mark.parametrize(
    ("edge_changes", "where"),
    [
        ({"loss": [0.5, np.nextafter(0.25, 1)]}, "line 1, loss[1]: 0.25000000000000006, base 0.25"),
        ({"coverage": [{"edge": 0, "min_count": 1}]}, "line 1, coverage[0].min_count: 1, base 2"),
        ({"new": None}, "line 1, new: new"),
        ({"loss": [0.5]}, "line 1, loss: [0.5], base [0.5, 0.25]"),
    ],
)
def test_a_changed_record_is_named_by_line_and_key(base, tmp_path, edge_changes, where):
    present = folder_of(tmp_path / "present", [RECORDS[0] | edge_changes, RECORDS[1]])
    assert difference(base, present) == f"records.jsonl {where}"


def test_a_missing_key_a_missing_line_and_another_order_of_keys_are_differences(base, tmp_path):
    without = {key: value for key, value in RECORDS[0].items() if key != "loss"}
    turned = dict(reversed(RECORDS[0].items()))
    for name, records, where in (
        ("key", [without, RECORDS[1]], "line 1, loss: gone"),
        ("line", RECORDS[:1], "has 1 lines, base 2"),
        ("order", [turned, RECORDS[1]], "line 1, the same values are written differently"),
    ):
        assert difference(base, folder_of(tmp_path / name, records)) == f"records.jsonl {where}"


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        (np.float32([0.0, 1e-45]), "1 of 2 values differ"),
        (np.float32([-0.0, 0.0]), "1 of 2 values differ"),
        (np.zeros(2), "float64[2], base float32[2]"),
        (np.zeros(3, np.float32), "float32[3], base float32[2]"),
    ],
)
def test_a_changed_tensor_is_named(base, tmp_path, changed, where):
    present = folder_of(tmp_path / "present", tensors=TENSORS | {"fc.bias": changed})
    assert difference(base, present) == f"tensor fc.bias: {where}"


def test_a_tensor_of_another_name_is_a_difference(base, tmp_path):
    present = folder_of(tmp_path / "present", tensors=TENSORS | {"extra": np.zeros(1)})
    assert difference(base, present) == "tensor extra: new"
    assert difference(present, base) == "tensor extra: gone"


def test_a_run_that_failed_differs_even_if_both_did(base, tmp_path):
    present = tmp_path / "present"
    present.mkdir()
    (present / "failed.txt").write_text("UsageError: no.\n")
    assert difference(base, present) == "base: succeeded; present: UsageError: no."
    assert difference(present, present) == "both fail: UsageError: no."


@each("name", CASES)
def test_every_scenario_of_the_yardstick_is_accepted_by_this_tree(name):
    assert isinstance(scenario_of(CASES[name]), ap.Scenario)


def test_every_method_and_every_preset_is_measured():
    assert set(METHODS) == set(ap.METHODS)
    assert {case.preset for case in CASES.values()} - {""} == set(presets())


def test_every_renamed_key_is_measured():
    measured = {key for case in CASES.values() for key in case.changes}
    assert set(RENAMED) <= measured


def test_a_pattern_chooses_scenarios_with_those_whose_results_they_must_have():
    assert set(chosen("dask-rough-dpf")) == {"dask-rough-dpf", "rough-dpf"}
    assert set(chosen("method-fj*kd")) == {"method-fjord-kd"}
    assert chosen("*") == list(CASES)


def test_a_pattern_without_scenario_and_an_unknown_commit_are_refused(monkeypatch, capsys):
    for words, message in ((["--only", "nothing"], "--only must match"), (["no-such-commit"], "BASE must name")):
        monkeypatch.setattr("sys.argv", ["yardstick", *words])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert message in capsys.readouterr().err


def test_a_run_that_depends_on_its_engine_is_reported_although_it_is_as_in_the_base(tmp_path, capsys):
    names = ["rough-dpf", "dask-rough-dpf"]
    for tree in ("base", "present"):
        (tmp_path / tree).mkdir()
        folder_of(tmp_path / tree / names[0])
        folder_of(tmp_path / tree / names[1], [RECORDS[0], RECORDS[1] | {"test_loss": 0.5}])
    assert report(tmp_path / "base", tmp_path / "present", names) == 1
    told = capsys.readouterr().out
    assert "is not as rough-dpf in the present tree: records.jsonl line 2, test_loss: 0.5, base 0.75" in told
    assert report(tmp_path / "base", tmp_path / "present", names[:1]) == 0
