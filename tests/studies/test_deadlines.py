"""`airprune deadline` and `airprune.deadlines`: what fits at which deadline, under which clock."""

import json

import numpy as np
import pytest
import torch

import airprune as ap
from airprune.cli import main
from airprune.errors import InvalidValue
from support.tiny import tiny_file


@pytest.fixture
def tiny(tmp_path):
    return ap.Scenario.load(tiny_file(tmp_path)).with_values({"engine.name": "serial", "plan.infeasible": "fail"})


def test_the_smallest_deadline_is_where_a_run_begins_to_serve_all_devices(tiny):
    found = ap.deadlines(tiny, clocks=["own"])
    smallest_s = found.smallest_s["the paper's"]
    serves = next(row for row in found.rows if row.note == "serves all")
    assert serves.outlook.served == serves.outlook.num_devices
    assert serves.deadline_s == pytest.approx(smallest_s, rel=1e-5)  # rounded up to six digits
    next(ap.run(tiny.with_("plan.deadline_s", serves.deadline_s)))
    with pytest.raises(ap.Infeasible):
        next(ap.run(tiny.with_("plan.deadline_s", smallest_s * 0.99)))


def test_rows_have_the_pruning_of_the_runs_first_round(tiny):
    found = ap.deadlines(tiny, clocks=["own"])
    row = next(row for row in found.rows if 0.1 < row.outlook.mean_pruning < 0.9 and row.outlook.served == 4)
    record = next(ap.run(tiny.with_("plan.deadline_s", row.deadline_s)))
    assert row.outlook.mean_pruning == pytest.approx(np.mean(record["pruning_ratio"]), abs=1e-3)  # whole weights
    last = found.rows[-1]
    assert max(row.outlook.max_pruning for row in found.rows if row.deadline_s >= last.deadline_s) == 0.0


def test_a_board_needs_longer_than_the_papers_clock(tiny):
    found = ap.deadlines(tiny)
    papers_s, boards_s = found.smallest_s.values()
    assert next(iter(found.smallest_s)) == "the paper's" and boards_s > papers_s
    with pytest.raises(InvalidValue, match="raspberry-pi-4"):
        ap.deadlines(tiny, clocks=["pi"])


def test_a_module_and_data_of_ones_own_are_planned(tiny):
    x = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)
    sizes_s = []
    for hidden in (16, 64):
        module = torch.nn.Sequential(torch.nn.Linear(12, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 3))
        found = ap.deadlines(tiny, model=module, dataset=(x, x[:, :3].argmax(axis=1)), clocks=["own"])
        sizes_s.append(next(row.deadline_s for row in found.rows if row.note == "nothing is pruned"))
    assert 3.5 < sizes_s[1] / sizes_s[0] < 4.5  # four times the weights


def test_planned_work_shows_layers_and_steps(tiny, tmp_path, capsys):
    words = ["method=adaptive-work", "clock.compute=flops", "clock.flops_per_cycle=8"]
    assert main(["deadline", str(tmp_path / "tiny.toml"), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    own = [row for row in found["deadlines"] if row["clock"] == "flops, 8 FLOP per cycle" and row.get("progress")]
    assert own[-1]["whole_models"] == own[-1]["devices"]
    progress = [row["progress"] for row in own if row["devices_served"] == row["devices"]]
    assert progress == sorted(progress)


def test_the_command_takes_a_file_with_a_module_and_samples(tmp_path, capsys):
    tiny_file(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import numpy as np, torch\n"
        "from torch import nn\n"
        "def build():\n    return nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3))\n"
        "x = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)\n"
        "pairs = (x, x[:, :3].argmax(axis=1))\n"
    )
    words = ["deadline", str(tmp_path / "tiny.toml"), "--model", f"{tmp_path}/mine.py:build"]
    assert main([*words, "--data", f"{tmp_path}/mine.py:pairs", "--clocks", "own"]) == 0
    out = capsys.readouterr().out
    assert "serves all" in out and "The smallest deadline that serves all devices:" in out
    assert main([*words[:2], "--model", f"{tmp_path}/mine.py:nothing"]) == 2
    assert main([*words[:2], "--deadlines-ms", "0"]) == 2
    assert "--deadlines-ms must be numbers > 0, got '0'" in capsys.readouterr().err
