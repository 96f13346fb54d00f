"""Engines differ in nothing but speed: the same bytes, whatever the workers, and whatever happens to them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import airprune as ap
from airprune.cli import main
from airprune.engines import ENGINES, check_engine, engine_named, machine
from airprune.engines.processes import ProcessesEngine
from airprune.engines.serial import SerialEngine
from airprune.errors import UnknownName, WorkFailed
from airprune.rounds.experiment import Experiment
from airprune.rounds.messages import Broadcast
from airprune.rounds.training.chunks import TrainTask
from airprune.runs import InProcess
from support.processes import PATIENCE_S, this_process_workers, wait_until_gone
from support.tiny import blobs, final_bytes, tiny_file, tiny_scenario
from support.trouble import AlwaysDies, CannotArrive, DiesOnce, Moody, Plain, Raises

# Ten epochs of 40 samples make a chunk of their own, so that edges merge several chunks.
PRUNED = {"plan__deadline_s": 2e-4, "train__local_epochs": 10, "rounds__global_rounds": 1}
SCENARIOS = {
    "weights, fading and dropouts": {
        **PRUNED,
        "radio__fading": "rayleigh",
        "events__dropout_probability": 0.2,
        "train__momentum": 0.9,
    },
    "neurons, uneven data": {
        **PRUNED,
        "masking__probe__structure": "neurons",
        "data__size_spread": 0.5,
        "aggregation__edge": "data-weighted",
        "rounds__evaluate_every": "edge",
        "diagnostics__gradients": True,
    },
}


def run_to(folder: Path, scenario: ap.Scenario, *, engine: str = "serial", workers: int | None = None, **own):
    chosen = scenario.with_values({"engine.name": engine, "engine.workers": workers})
    own.setdefault("dataset", blobs())
    records = list(ap.run(chosen, out=folder, **own))
    return final_bytes(folder), records


@pytest.mark.parametrize(
    ("name", "worker_counts"), [("weights, fading and dropouts", [1, 3]), ("neurons, uneven data", [2])]
)
def test_every_engine_and_number_of_workers_ends_in_the_same_bytes(tmp_path, name, worker_counts):
    scenario = tiny_scenario(**SCENARIOS[name])
    expected, records = run_to(tmp_path / "serial", scenario)
    assert 0.3 < records[-1]["mean_pruning_ratio"] < 0.95
    for workers in worker_counts:
        assert run_to(tmp_path / str(workers), scenario, engine="processes", workers=workers)[0] == expected


def test_the_papers_cnn_ends_in_the_same_bytes_in_every_engine(tmp_path):
    scenario = ap.Scenario.preset("smoke").with_values({"plan.deadline_s": 0.015, "rounds.global_rounds": 1})
    expected, records = run_to(tmp_path / "serial", scenario, dataset=None)
    assert records[-1]["mean_pruning_ratio"] > 0.3
    assert run_to(tmp_path / "processes", scenario, engine="processes", workers=2, dataset=None)[0] == expected


def test_models_that_draw_and_count_end_in_the_same_bytes_in_every_engine(tmp_path):
    scenario = tiny_scenario(**PRUNED)
    expected, _ = run_to(tmp_path / "serial", scenario, model=Moody())
    assert run_to(tmp_path / "processes", scenario, engine="processes", workers=2, model=Moody())[0] == expected


def lone_devices(experiment: Experiment) -> list[TrainTask]:
    """A chunk for each of the first three devices."""
    return [
        TrainTask(
            devices=(device,),
            keep=(50,),
            weights=(1.0,),
            learning_rate=0.05,
            global_round=0,
            edge_round=0,
            round_index=0,
        )
        for device in range(3)
    ]


def test_a_device_trains_alike_whoever_trained_before_it_in_the_same_process():
    experiment = Experiment.of(tiny_scenario(), dataset=blobs(), model=Moody())
    chunks = lone_devices(experiment)
    received = Broadcast(model=experiment.model.state.numpy().copy())
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        together = list(engine.map("train", received, chunks))
        alone = list(engine.map("train", received, chunks[::-1]))[::-1]
    for first, second in zip(together, alone, strict=True):
        np.testing.assert_array_equal(first.total.total, second.total.total)


def test_the_serial_engine_leaves_the_users_random_stream_and_threads_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    threads = torch.get_num_threads()
    torch.manual_seed(3)
    list(ap.run(tiny_scenario(rounds__global_rounds=1), dataset=blobs(), model=Moody()))
    assert torch.equal(torch.rand(4), expected)
    assert torch.get_num_threads() == threads


def test_a_worker_killed_in_the_midst_of_a_chunk_is_replaced_and_its_devices_redone(tmp_path):
    scenario, flag = tiny_scenario(**PRUNED), tmp_path / "flag"
    expected, _ = run_to(tmp_path / "serial", scenario, model=Plain())
    flag.touch()
    got, _ = run_to(tmp_path / "processes", scenario, engine="processes", workers=1, model=DiesOnce(flag))
    assert not flag.exists()
    assert got == expected


def test_a_worker_killed_while_idle_is_replaced(tmp_path):
    scenario = tiny_scenario(**PRUNED).with_values({"engine.name": "processes", "engine.workers": 2})
    expected, _ = run_to(tmp_path / "serial", scenario)
    records = ap.run(scenario, out=tmp_path / "processes", dataset=blobs())
    next(records)
    before = this_process_workers()
    os.kill(before[0], signal.SIGKILL)
    next(records)
    after = this_process_workers()
    assert len(after) == 2 and before[1] in after and before[0] not in after
    assert len(list(records)) == 1
    assert this_process_workers() == []
    assert final_bytes(tmp_path / "processes") == expected


def test_devices_that_kill_their_worker_three_times_fail_the_run_which_stays_resumable(tmp_path):
    scenario, flag = tiny_scenario(**PRUNED), tmp_path / "flag"
    expected, _ = run_to(tmp_path / "serial", scenario, model=Plain())
    in_workers = scenario.with_values({"engine.name": "processes", "engine.workers": 1})
    records = ap.run(in_workers, out=tmp_path / "run", model=AlwaysDies(flag), dataset=blobs())
    next(records)
    flag.touch()
    with pytest.raises(WorkFailed, match=r"died 3 times on the same devices, last by signal SIGKILL.*resumed\.$"):
        next(records)
    assert this_process_workers() == []
    list(ap.run(scenario, out=tmp_path / "run", resume=True, model=Plain(), dataset=blobs()))
    assert final_bytes(tmp_path / "run") == expected


@pytest.mark.parametrize(
    ("model", "begin", "words"),
    [
        (Raises, "Device 0 failed 3 times;", "the flag is up"),
        (CannotArrive, "A worker could not do its task:\nTraceback (most recent call last):", "lost on the way"),
    ],
)
def test_an_exception_in_a_worker_surfaces_once_with_its_traceback(tmp_path, capfd, model, begin, words):
    flag = tmp_path / "flag"
    flag.touch()
    scenario = tiny_scenario().with_values({"engine.name": "processes", "engine.workers": 1})
    with pytest.raises(WorkFailed) as caught:
        list(ap.run(scenario, model=model(flag), dataset=blobs()))
    message = str(caught.value)
    assert message.startswith(begin)
    assert message.endswith(f"ArithmeticError: {words}") and message.count("Traceback") == 1
    assert capfd.readouterr().err == ""
    assert this_process_workers() == []


def test_workers_leave_when_a_run_is_abandoned():
    scenario = tiny_scenario().with_values({"engine.name": "processes", "engine.workers": 2})
    records = ap.run(scenario, dataset=blobs())
    next(records)
    workers = this_process_workers()
    assert len(workers) == 2
    records.close()
    wait_until_gone(workers)


@pytest.mark.parametrize(("cores", "most"), [(1, 32), (8, 32), (9, 36), (128, 512)])
def test_a_machine_has_at_most_four_workers_per_core_and_always_32(monkeypatch, cores, most):
    monkeypatch.setattr(machine, "num_cores", lambda: cores)
    assert [machine.workers_here(asked) for asked in (None, 1, most)] == [cores, 1, most]
    with pytest.raises(ap.InvalidValue, match=rf"Scenario\.engine\.workers must be ≤ {most} with the {cores} core"):
        machine.workers_here(most + 1)


@pytest.mark.parametrize(
    "words", ["run", "run --engine dask", "compare", "sweep seed=0,1", "sweep seed=0,1 --engine dask"]
)
def test_a_flood_of_workers_is_refused_in_one_sentence_before_there_is_a_run(tmp_path, monkeypatch, capsys, words):
    monkeypatch.setattr(machine, "num_cores", lambda: 2)
    monkeypatch.setattr(subprocess, "Popen", None)  # no process is started
    name, *more = words.split()
    command = [name, str(tiny_file(tmp_path)), *more, "--workers", "100000", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: Scenario.engine.workers must be ≤ 32 with the 2 cores of this machine, got 100000. "
        "Leave it out for one per core."
    )
    assert {path.name for path in tmp_path.rglob("*")} <= {"tiny.toml", "out", "comparison.json"}


def test_a_machine_of_a_cluster_refuses_a_flood_of_workers(monkeypatch, capsys):
    monkeypatch.setattr(machine, "num_cores", lambda: 2)
    assert main(["cluster", "worker", "tcp://127.0.0.1:8786", "--insecure", "--workers", "33"]) == 2
    assert capsys.readouterr().err.startswith("error: --workers must be ≤ 32 with the 2 cores of this machine, got 33.")


def test_how_many_workers_a_cluster_has_is_its_own_business():
    check_engine("dask", workers=100_000, scheduler="tls://lab1:8786")
    check_engine("serial", workers=100_000, scheduler=None)  # has none


def test_a_worker_that_cannot_be_started_is_one_sentence_and_leaves_nobody_behind(monkeypatch):
    started = []
    popen = subprocess.Popen

    def failing(*arguments, **options):
        if started:
            raise OSError(11, "Resource temporarily unavailable")
        started.append(popen(*arguments, **options))
        return started[0]

    monkeypatch.setattr("airprune.engines.children.subprocess.Popen", failing)
    experiment = Experiment.of(tiny_scenario(), dataset=blobs())
    engine = ProcessesEngine(experiment.job(InProcess(experiment.dataset)), workers=2)
    with pytest.raises(WorkFailed, match=r"could not be started: Resource temporarily unavailable\."), engine:
        pass
    assert started[0].returncode is not None


def test_an_engine_is_known_by_name():
    assert engine_named("serial") is SerialEngine and set(ENGINES) == {"serial", "processes", "dask"}
    with pytest.raises(UnknownName, match=r"Scenario\.engine\.name 'seriall' is unknown; did you mean 'serial'\?"):
        engine_named("seriall")


SCRIPT = """\
import numpy as np, torch
import airprune as ap
from beside import Hidden
class Net(torch.nn.Sequential):
    pass
torch.manual_seed(0)
x, y = np.random.default_rng(0).normal(size=(200, 12)).astype("f"), np.arange(200) % 4
scenario = ap.Scenario().with_values({"network.num_edges": 2, "rounds.global_rounds": 1, "engine.workers": 2})
for record in ap.run(scenario, model=Net(Hidden(), torch.nn.ReLU(), torch.nn.Linear(8, 4)), dataset=(x, y)):
    print(record["kind"])
"""


def test_a_plain_script_runs_its_own_model_and_arrays_in_worker_processes(tmp_path):
    """No main guard; one class of the script itself, one of a module beside it; started from another folder."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / "script.py").write_text(SCRIPT)
    (home / "beside.py").write_text("import torch\nclass Hidden(torch.nn.Linear):\n    def __init__(self):\n"
                                    "        super().__init__(12, 8)\n")  # fmt: skip
    (elsewhere / "numpy.py").write_text("raise ImportError('a file of the working folder passed for numpy')\n")
    done = subprocess.run(
        [sys.executable, home / "script.py"], cwd=elsewhere, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["edge"] * 5 + ["global"]
