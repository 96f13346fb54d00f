"""Runs whose devices, edges and cloud remember: the same bytes from every engine, after stops, kills and failures."""

import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from airprune.engines.serial import SerialEngine
from airprune.errors import AirpruneError, InvalidValue, WorkFailed
from airprune.rounds.experiment import Experiment
from airprune.runs import checkpoint, store
from airprune.runs.layout import RunFolder
from support.processes import kill_session, session_of, start_module, this_process_workers, wait_for
from support.stateful import NUM_DEVICES, memory_of, outcome, run, small_blocks, stateful_scenario
from support.tiny import blobs
from support.trouble import DiesOfDevice, DiesOnce, Plain, RaisesForDevice

pytestmark = pytest.mark.usefixtures("warm_workers")

SERIAL = {"engine.name": "serial", "engine.workers": None}
DASK = {"engine.name": "dask", "engine.workers": 2}
NUM_RECORDS = 12


def processes(workers: int) -> dict:
    return {"engine.name": "processes", "engine.workers": workers}


ENGINES = {"serial": SERIAL, "processes": processes(2), "dask": DASK}


@pytest.fixture(autouse=True)
def blocks_of_three_devices():
    with small_blocks():
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The folder of a serial run that nothing happens to."""
    folder = tmp_path_factory.mktemp("stateful") / "undisturbed"
    with small_blocks():
        assert len(list(run(folder, stateful_scenario()))) == NUM_RECORDS
    return folder


def test_the_scenario_really_prunes_remembers_samples_and_moves(undisturbed):
    """What the other tests rely on."""
    folder = RunFolder(undisturbed)
    rounds = [record for record in folder.records() if record["kind"] == "edge"]
    assert all(0.1 < record["mean_pruning_ratio"] < 0.9 for record in rounds)
    assert {fate for record in rounds for fate in record["fate"]} >= {"ok", "dropped", "late"}
    assert all(len(record["device"]) < NUM_DEVICES for record in rounds)
    served = {
        (device, edge) for record in rounds for device, edge in zip(record["device"], record["edge"], strict=True)
    }
    assert len(served) > NUM_DEVICES
    assert np.count_nonzero(np.abs(memory_of(undisturbed)).max(axis=1)) > NUM_DEVICES / 2

    arrays, facts = checkpoint.read(folder.checkpoint_file)
    assert len(facts["memory"]["top-k.error"]["blocks"]) == 4
    edges = arrays["values/edge_step/momentum.velocity"]
    assert len(edges) == 3 and np.abs(edges).max(axis=1).all()
    assert arrays["values/cloud_step/momentum.velocity"].any()
    assert arrays["values/shared.ranking"].any()
    assert arrays["values/handover.moves"].any()


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(processes(1), id="1 process", marks=pytest.mark.slow),
        pytest.param(processes(2), id="2 processes"),
        pytest.param(processes(3), id="3 processes", marks=pytest.mark.slow),
        pytest.param(DASK, id="dask"),
    ],
)
def test_every_engine_and_number_of_workers_ends_in_the_same_bytes(tmp_path, undisturbed, engine):
    list(run(tmp_path / "run", stateful_scenario().with_values(engine)))
    assert outcome(tmp_path / "run") == outcome(undisturbed)
    assert this_process_workers() == []


@pytest.mark.parametrize(
    "others", [{}, {1: processes(2), 5: DASK, 9: processes(1)}], ids=["serial", "engines and workers change"]
)
def test_stopped_after_every_record_it_ends_in_the_same_bytes(tmp_path, undisturbed, others):
    folder, scenario = tmp_path / "run", stateful_scenario()
    for number in range(NUM_RECORDS):
        records = run(folder, scenario.with_values(others.get(number, SERIAL)), resume=True)
        next(records)
        records.close()
    assert list(run(folder, scenario, resume=True)) == []
    assert outcome(folder) == outcome(undisturbed)


def kill_at_random_moments(tmp_path: Path, engine: dict, *, kills: int, seed: int) -> None:
    """kill -9 of everybody at random moments, resume, and so on; every run must end in the bytes of an undisturbed one.

    Moments: every fourth while the run starts, the others soon after it has written a record.
    """
    rng, global_rounds = np.random.default_rng(seed), 20
    command = ["support.stateful", engine["engine.name"], engine["engine.workers"] or 1, global_rounds]

    def start(folder: Path):
        return start_module(command[0], folder, *command[1:])

    expected_folder = tmp_path / "undisturbed"
    list(run(expected_folder, stateful_scenario(rounds__global_rounds=global_rounds)))
    expected = outcome(expected_folder)
    num_runs, num_moments, num_kills = 1, 0, 0
    while num_kills < kills:
        folder = RunFolder(tmp_path / f"run{num_runs}")
        process = start(folder.path)
        num_moments += 1
        if num_moments % 4 == 0:
            time.sleep(rng.uniform(0, 3))
        else:
            wait_for_record(process, folder)
            time.sleep(rng.uniform(0, 0.5))
        kill_session(process)
        num_kills += process.returncode == -signal.SIGKILL
        if folder.is_finished:
            assert outcome(folder.path) == expected
            num_runs += 1
    sys.stdout.write(f"{num_kills} of {num_moments} kills hit a running process, in {num_runs} runs\n")
    list(run(folder.path, stateful_scenario(rounds__global_rounds=global_rounds).with_values(engine), resume=True))
    assert outcome(folder.path) == expected


def wait_for_record(process, folder: RunFolder) -> None:
    """Until the command, just started, has written a record, or has ended."""

    def size() -> int:
        return folder.records_file.stat().st_size if folder.records_file.exists() else 0

    before = size()
    wait_for(lambda: process.poll() is not None or size() > before, "a record")


def test_killed_at_any_moment_it_ends_in_the_same_bytes(tmp_path):
    kill_at_random_moments(tmp_path, processes(1), kills=1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_killed_at_twenty_moments_it_ends_in_the_same_bytes(tmp_path, name):
    kill_at_random_moments(tmp_path, ENGINES[name], kills=20, seed=2)


def test_a_kill_finds_the_workers_too(tmp_path):
    process = start_module("support.stateful", tmp_path / "run", "processes", 2, 20)
    wait_for(lambda: len(session_of(process.pid)) == 3, "two workers")
    kill_session(process)
    assert session_of(process.pid) == []


@pytest.mark.parametrize("name", ["processes", "dask"])
def test_a_worker_killed_in_the_midst_of_a_round_with_memory_changes_nothing(tmp_path, undisturbed, name):
    folder, flag = tmp_path / "run", tmp_path / "flag"
    records = run(folder, stateful_scenario().with_values(ENGINES[name]), model=DiesOnce(flag))
    next(records), next(records)
    assert memory_of(folder).any()
    flag.touch()
    next(records)
    assert not flag.exists()
    list(records)
    assert outcome(folder) == outcome(undisturbed)


def test_only_devices_that_arrive_move_their_memory(tmp_path):
    """Dropped, late, blocked and those who were not asked keep theirs to the bit."""
    folder, before, seen = tmp_path / "run", np.zeros((NUM_DEVICES, 256), dtype=np.float32), set()
    for record in run(folder, stateful_scenario()):
        after = memory_of(folder)
        fates = dict(zip(record["device"], record["fate"], strict=True)) if record["kind"] == "edge" else {}
        for device in range(NUM_DEVICES):
            moved = after[device].tobytes() != before[device].tobytes()
            assert moved == (fates.get(device) == "ok"), (device, fates.get(device))
            seen.add((fates.get(device), bool(before[device].any())))
        before = after
    assert seen >= {("ok", True), ("dropped", True), ("late", True), (None, True)}


# Everybody takes part in every round, so that what becomes of one device can be seen.
def all_present():
    quiet = {"events.dropout_probability": 0.0, "events.straggler_probability": 0.0, "plan.deadline_s": 4e-4}
    return stateful_scenario().with_values(
        {**quiet, "selection.name": "everyone", "engine.on_device_failure": "drop-device"}
    )


def samples_of(device: int) -> torch.Tensor:
    experiment = Experiment.of(all_present(), model=Plain(), dataset=blobs())
    return torch.from_numpy(experiment.dataset.train_x[experiment.samples[device]])


@pytest.mark.parametrize(
    ("engine", "model"),
    [(SERIAL, RaisesForDevice), (processes(1), RaisesForDevice), (processes(1), DiesOfDevice)],
    ids=["serial", "processes", "worker dies"],
)
def test_a_device_that_fails_keeps_its_memory_and_the_others_move_theirs(tmp_path, engine, model):
    folder, flag, failing = tmp_path / "run", tmp_path / "flag", 5
    records = run(folder, all_present().with_values(engine), model=model(flag, samples_of(failing)))
    first = next(records)
    assert first["fate"][first["device"].index(failing)] == "ok"
    before = memory_of(folder)
    assert before[failing].any()

    flag.touch()
    record = next(records)
    fates = dict(zip(record["device"], record["fate"], strict=True))
    after = memory_of(folder)
    assert fates[failing] == "failed"
    for device, fate in fates.items():
        assert (after[device].tobytes() != before[device].tobytes()) == (fate == "ok"), (device, fate)

    flag.unlink()
    record = next(records)
    assert record["fate"][record["device"].index(failing)] == "ok"
    assert memory_of(folder)[failing].tobytes() != before[failing].tobytes()
    records.close()


@pytest.mark.parametrize(
    ("limit", "error", "words"),
    [
        ("MAX_BYTES", InvalidValue, "The memory of 12 devices, most of it for 'top-k.error', must be ≤ .* GB, got"),
        ("disk", WorkFailed, "The memory of 12 devices, most of it for 'top-k.error', needs .* GB of free disk, got"),
    ],
)
@pytest.mark.parametrize("folder", ["run", None])
def test_memory_that_cannot_fit_is_refused_before_anything_is_started_or_written(
    tmp_path, monkeypatch, limit, error, words, folder
):
    num_bytes = NUM_DEVICES * 256 * 4
    if limit == "disk":  # every block may be there twice
        usage = shutil.disk_usage(tmp_path)._replace(free=2 * num_bytes - 1)
        monkeypatch.setattr(store.shutil, "disk_usage", lambda path: usage)
    else:
        monkeypatch.setattr(store, "MAX_BYTES", num_bytes - 1)
    monkeypatch.setattr(SerialEngine, "start", lambda self: pytest.fail("an engine was started"))
    with pytest.raises(error, match=words) as caught:
        next(run(folder and tmp_path / folder, stateful_scenario()))
    assert isinstance(caught.value, AirpruneError) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
