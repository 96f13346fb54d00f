"""The engine `dask` with a real scheduler and real workers: the same bytes, and nothing lost when they break."""

import contextlib
import dataclasses
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import airprune as ap
from airprune.data.shared import save_shared
from airprune.engines.cluster.engine import DaskEngine
from airprune.engines.cluster.parcel import Parcel
from airprune.engines.serial import SerialEngine
from airprune.errors import UsageError, WorkFailed
from airprune.rounds.experiment import Experiment
from airprune.runs import InProcess
from airprune.simulation import run_rounds
from support.cluster import OTHER_VERSION, Cluster
from support.cluster_runs import PRUNED, on, serial, wait_until_joined
from support.tiny import blobs, final_bytes, tiny_scenario
from support.trouble import AlwaysDies, DiesOfDeviceTwo, DiesOnce, Moody, Plain, RaisesForDeviceTwo


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    cluster.close()


def test_two_workers_of_a_cluster_end_in_the_bytes_of_the_serial_engine(tmp_path, cluster, monkeypatch):
    cluster.add_worker()
    cluster.add_worker()
    changes = {"radio__fading": "rayleigh", "events__dropout_probability": 0.2, "train__momentum": 0.9}
    scenario = tiny_scenario(**PRUNED, **changes, diagnostics__gradients=True, rounds__evaluate_every="edge")
    expected = serial(tmp_path / "serial", scenario)
    records = list(ap.run(on(cluster, scenario), out=tmp_path / "dask", dataset=blobs()))
    assert 0.3 < records[-1]["mean_pruning_ratio"] < 0.95
    assert final_bytes(tmp_path / "dask") == expected

    # The same workers take up another job: a model that draws and counts, many chunks in several groups.
    scenario = tiny_scenario(network__devices_per_edge=18, train__local_epochs=80, rounds__global_rounds=1)
    expected = serial(tmp_path / "moody", scenario, model=Moody())
    for batches_per_worker in (8, 0):  # a chunk or a whole batch of them is a task of the cluster
        monkeypatch.setattr("airprune.engines.cluster.engine._WHOLE_BATCHES", batches_per_worker)
        folder = tmp_path / f"moody-dask-{batches_per_worker}"
        list(ap.run(on(cluster, scenario), out=folder, dataset=blobs(), model=Moody()))
        assert final_bytes(folder) == expected


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_without_a_scheduler_the_engine_makes_its_own_cluster_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRPRUNE_TEST", str(tmp_path))  # other tests have clusters of their own at the same time
    scenario, flag = tiny_scenario(**PRUNED), tmp_path / "flag"
    expected = serial(tmp_path / "serial", scenario, model=Plain())
    flag.touch()
    own = scenario.with_values({"engine.name": "dask", "engine.workers": 2})
    records = ap.run(own, out=tmp_path / "dask", dataset=blobs(), model=DiesOnce(flag))
    next(records)
    assert _local_workers(tmp_path) != []
    list(records)
    assert not flag.exists()  # a worker died of it, was replaced, and its devices were redone
    assert final_bytes(tmp_path / "dask") == expected
    assert _local_workers(tmp_path) == []


def _local_workers(mark: Path) -> list[Path]:
    """Processes of own clusters that were started with this mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"engines.cluster.local" in (process / "cmdline").read_bytes():
                found += [process] if str(mark).encode() in (process / "environ").read_bytes() else []
    return found


def test_a_worker_killed_in_the_midst_of_a_round_costs_a_retry(tmp_path, cluster):
    first, _ = cluster.add_worker(), cluster.add_worker()
    scenario, flag = tiny_scenario(**PRUNED), tmp_path / "flag"
    expected = serial(tmp_path / "serial", scenario, model=Plain())
    records = ap.run(on(cluster, scenario), out=tmp_path / "dask", dataset=blobs(), model=DiesOnce(flag))
    next(records)
    flag.touch()
    next(records)
    assert not flag.exists()
    assert sorted(worker.poll() is None for worker in cluster.workers) == [False, True]
    if first.poll() is None:
        first.send_signal(signal.SIGSTOP)  # the one left may even stand still for a while
        time.sleep(1.5)
        first.send_signal(signal.SIGCONT)
    list(records)
    assert final_bytes(tmp_path / "dask") == expected


def test_a_worker_that_joins_late_is_used(tmp_path, cluster):
    early = cluster.add_worker()
    scenario = tiny_scenario(**PRUNED)
    expected = serial(tmp_path / "serial", scenario)
    records = ap.run(on(cluster, scenario), out=tmp_path / "dask", dataset=blobs())
    next(records)
    late = cluster.add_worker()
    wait_until_joined(cluster, 2)
    os.kill(early.pid, signal.SIGKILL)
    early.wait()
    assert len(list(records)) == 2  # all of it by the late one
    assert late.poll() is None
    assert final_bytes(tmp_path / "dask") == expected


def test_a_cluster_that_all_workers_leave_ends_the_run_which_another_worker_can_resume(tmp_path, cluster, monkeypatch):
    monkeypatch.setattr("airprune.engines.cluster.engine._NO_WORKERS_S", 1.0)
    only = cluster.add_worker()
    wait_until_joined(cluster, 1)
    scenario = tiny_scenario(**PRUNED)
    expected = serial(tmp_path / "serial", scenario)
    records = ap.run(on(cluster, scenario), out=tmp_path / "dask", dataset=blobs())
    next(records)
    only.kill()
    only.wait()
    with pytest.raises(WorkFailed, match=r"No worker of the cluster can take part, none has joined\."):
        list(records)
    cluster.add_worker()
    wait_until_joined(cluster, 1)
    list(ap.run(on(cluster, scenario), out=tmp_path / "dask", dataset=blobs(), resume=True))
    assert final_bytes(tmp_path / "dask") == expected


def test_a_worker_with_another_version_is_left_out_and_named(tmp_path, cluster, caplog):
    cluster.add_worker()
    cluster.add_worker(before=OTHER_VERSION)
    wait_until_joined(cluster, 2)
    scenario = tiny_scenario(**PRUNED)
    expected = serial(tmp_path / "serial", scenario)
    with caplog.at_level(logging.WARNING, logger="airprune"):
        list(ap.run(on(cluster, scenario), out=tmp_path / "dask", dataset=blobs()))
    assert final_bytes(tmp_path / "dask") == expected
    (sentence,) = [record.getMessage() for record in caplog.records if record.name == "airprune"]
    assert "is excluded: it has torch 0.0.7, but this run has torch 2." in sentence


def test_a_cluster_of_other_versions_only_is_refused_in_one_sentence(cluster):
    cluster.add_worker(before=OTHER_VERSION)
    wait_until_joined(cluster, 1)
    with pytest.raises(WorkFailed, match=r"No worker of the cluster can take part: tcp://.* has torch 0\.0\.7, but"):
        next(ap.run(on(cluster, tiny_scenario()), dataset=blobs()))


def test_a_worker_with_other_data_is_left_out_and_named(tmp_path, cluster):
    cluster.add_worker()
    experiment = Experiment.of(tiny_scenario(), dataset=blobs())
    shared = save_shared(experiment.dataset, tmp_path)
    other = bytearray((tmp_path / "train_x.npy").read_bytes())
    other[-4:] = b"\0\0\0\0"
    with DaskEngine(experiment.job(shared), scheduler=cluster.scheduler_file) as engine:
        (tmp_path / "train_x.npy").write_bytes(bytes(other))
        with pytest.raises(WorkFailed, match=r"cannot take part: .* holds data with hash .*, but this run's"):
            next(run_rounds(experiment, engine, experiment.initial_state()))


def test_files_travel_once_to_a_machine_that_does_not_see_the_drivers(tmp_path, cluster, monkeypatch):
    """Workers see this machine's files, so the driver names a folder that is nowhere."""
    monkeypatch.setattr("airprune.engines.cluster.parcel.PART_BYTES", 1000)
    cluster.add_worker()
    cluster.add_worker()
    wait_until_joined(cluster, 2)
    experiment = Experiment.of(tiny_scenario(**PRUNED), dataset=blobs())
    shared = save_shared(experiment.dataset, tmp_path / "data")
    engine = DaskEngine(experiment.job(shared), scheduler=cluster.scheduler_file)
    with engine:
        hidden = dataclasses.replace(engine.members.parcel, folder=tmp_path / "nowhere")
        engine.members.parcel, engine.members.accepted = hidden, set()
        sent = []
        run = engine.client.run
        monkeypatch.setattr(
            engine.client, "run", lambda f, *a, **k: (sent.append((a[0], k.get("workers"))), run(f, *a, **k))[1]
        )
        state = experiment.initial_state()
        list(run_rounds(experiment, engine, state))
        receivers = {tuple(workers) for step, workers in sent if step is Parcel.receive}
        assert len(receivers) == 1 and len(receivers.pop()) == 1
        assert len(engine.members.accepted) == 2
        kept = hidden.here
        assert kept is not None
    assert not kept.exists()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as serial_engine:
        expected = experiment.initial_state()
        list(run_rounds(experiment, serial_engine, expected))
    assert (expected.global_state == state.global_state).all()


def test_a_lost_scheduler_is_one_sentence_and_the_run_resumes_to_the_same_bytes(tmp_path, cluster):
    cluster.add_worker()
    scenario = tiny_scenario(**PRUNED)
    expected = serial(tmp_path / "serial", scenario)
    records = ap.run(on(cluster, scenario), out=tmp_path / "dask", dataset=blobs())
    next(records)
    cluster.scheduler.kill()
    cluster.scheduler.wait()
    with pytest.raises(WorkFailed, match=r"scheduler \(.*scheduler\.json\) cannot be reached any more\. .*resume"):
        list(records)
    cluster.start_scheduler()
    cluster.add_worker()
    list(ap.run(on(cluster, scenario), out=tmp_path / "dask", dataset=blobs(), resume=True))
    assert final_bytes(tmp_path / "dask") == expected


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("engine", ["serial", "processes", "dask", "dask in batches"])
def test_a_poison_device_is_reported_once_and_dropped_or_fails_the_run(tmp_path, engine, caplog, monkeypatch):
    if engine == "dask in batches":
        monkeypatch.setattr("airprune.engines.cluster.engine._WHOLE_BATCHES", 0)
        engine = "dask"
    scenario = tiny_scenario(**PRUNED, engine__name=engine, engine__workers=1)
    with pytest.raises(WorkFailed) as caught:
        list(ap.run(scenario, out=tmp_path / "fail", dataset=blobs(), model=RaisesForDeviceTwo()))
    message = str(caught.value)
    assert message.startswith("Device 2 failed 3 times; engine.on_device_failure=") and message.count("Traceback") == 1

    dropping = scenario.with_("engine.on_device_failure", "drop-device")
    with caplog.at_level(logging.ERROR, logger="airprune"):
        records = list(ap.run(dropping, out=tmp_path / "drop", dataset=blobs(), model=RaisesForDeviceTwo()))
    reports = [record.getMessage() for record in caplog.records if record.name == "airprune"]
    assert len(reports) == 1 and reports[0].startswith(
        "Device 2 failed 3 times and is excluded from this round:\nTraceback"
    )
    for record in records[:2]:
        assert record["left_out"]["failed"] == 1 and record["fate"] == ["ok", "ok", "failed", "ok", "ok", "ok"]
        assert record["loss"][2] is None and record["loss"][3] is not None
    assert records[-1]["left_out"] == 2
    if engine != "serial":
        plain = dropping.with_("engine.name", "serial")
        assert final_bytes(tmp_path / "drop") == serial(tmp_path / "serial", plain, model=RaisesForDeviceTwo())


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("engine", ["processes", pytest.param("dask", marks=pytest.mark.slow)])
def test_a_device_that_kills_its_workers_is_found_and_dropped(tmp_path, engine):
    """All of an edge's devices share a chunk here; the two innocent ones still count."""
    scenario = tiny_scenario(rounds__global_rounds=1, rounds__edge_rounds=1, engine__name=engine, engine__workers=1)
    dropping = scenario.with_("engine.on_device_failure", "drop-device")
    records = list(ap.run(dropping, dataset=blobs(), model=DiesOfDeviceTwo()))
    assert records[0]["fate"] == ["ok", "ok", "failed", "ok", "ok", "ok"]


@pytest.mark.usefixtures("warm_workers")
def test_devices_that_kill_their_workers_fail_the_run(tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    scenario = tiny_scenario(engine__name="dask", engine__workers=1)
    with pytest.raises(WorkFailed, match=r"A worker died 3 times on the same devices"):
        list(ap.run(scenario, dataset=blobs(), model=AlwaysDies(flag)))


def test_a_wrong_scheduler_is_one_sentence(tmp_path):
    scenario = tiny_scenario(engine__name="dask")
    with pytest.raises(UsageError, match=r"must be an address like tls://host:8786 or a scheduler file, got 'nobody'"):
        next(ap.run(scenario.with_("engine.scheduler", "nobody"), dataset=blobs()))


def test_nobody_at_the_address_is_one_sentence(monkeypatch):
    monkeypatch.setattr("airprune.engines.cluster.connection._CONNECT_S", 0.5)
    scenario = tiny_scenario(engine__name="dask", engine__scheduler="tcp://127.0.0.1:9")
    with pytest.raises(WorkFailed, match=r"^No Dask scheduler answers at tcp://127\.0\.0\.1:9 \(.*\)\.$"):
        next(ap.run(scenario, dataset=blobs()))
