"""Clusters that limp: workers that hang, have no space or other code are named, and the rest of the work goes on."""

import contextlib
import dataclasses
import logging
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import airprune as ap
from airprune.engines.cluster import versions
from airprune.engines.cluster.certificates import make_certificates
from airprune.engines.cluster.engine import DaskEngine
from airprune.engines.cluster.members import Silence
from airprune.errors import WorkFailed
from support.cluster import Cluster
from support.cluster_runs import PRUNED, on, serial, wait_until_joined
from support.cluster_services import hear, service, worker_processes
from support.factories import Freezing, Numbers, Sum, Toys
from support.processes import PATIENCE_S, start_airprune
from support.tiny import blobs, final_bytes, tiny_file, tiny_scenario
from support.trouble import AlwaysFreezes, FreezesOnce, Plain

LIMIT_S = 4.0  # heartbeats come twice a second, but not while a busy machine does something else
HANGS = r"^Worker (\S+) has given no sign of life for 4 s; its work is done elsewhere, and it may come back\.$"


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(shared_cluster) -> Cluster:
    """With two workers that are well."""
    for worker in list(shared_cluster.workers):
        if worker.poll() is not None or is_stopped(worker):
            worker.kill()
            worker.wait()
            shared_cluster.workers.remove(worker)
    while len(shared_cluster.workers) < 2:
        shared_cluster.add_worker()
    wait_until_joined(shared_cluster, 2)
    return shared_cluster


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Returns the driver's log, as it grows."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("airprune")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def address_of(worker) -> list[str]:
    """Returns the address at which a worker process listens."""
    found = psutil.Process(worker.pid).net_connections("inet")
    return [f"tcp://{c.laddr.ip}:{c.laddr.port}" for c in found if c.status == psutil.CONN_LISTEN]


def is_stopped(worker) -> bool:
    return psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED


def limping(cluster: Cluster, scenario: ap.Scenario) -> ap.Scenario:
    return on(cluster, scenario).with_("engine.worker_timeout_s", LIMIT_S)


# What counts as silence


def test_who_was_not_heard_of_for_longer_than_the_limit_is_silent():
    silence = Silence()
    heard = [silence.observe({"a": min(t, 3.0), "b": float(t)}, 100.0 + t, limit_s=2.0) for t in range(8)]
    assert heard == [[], [], [], [], [], [], ["a"], ["a"]]  # last heard of at 3, so silent for 3 s at 6
    assert silence.observe({"a": 8.0, "b": 8.0}, 108.0, limit_s=2.0) == []  # it is back


def test_nobody_is_blamed_while_driver_or_scheduler_stood_still():
    silence = Silence()
    silence.observe({"a": 1.0}, 0.0, limit_s=3.0)
    assert silence.observe({"a": 1.0}, 1000.0, limit_s=3.0) == []
    assert silence.observe({"a": 1.0}, 2000.0, limit_s=3.0) == ["a"]  # looked at twice and still nothing


# Workers that hang


def test_a_worker_that_hangs_is_named_and_its_devices_are_trained_elsewhere(tmp_path, cluster, said):
    workers = cluster.workers
    scenario, flag = tiny_scenario(**PRUNED), tmp_path / "flag"
    expected = serial(tmp_path / "serial", scenario, model=Plain())
    records = ap.run(limping(cluster, scenario), out=tmp_path / "dask", dataset=blobs(), model=FreezesOnce(flag))
    next(records)
    flag.touch()
    list(records)
    assert final_bytes(tmp_path / "dask") == expected
    (hung,) = [worker for worker in workers if is_stopped(worker)]
    (sentence,) = said
    assert re.match(HANGS, sentence).group(1) in address_of(hung)
    hung.send_signal(signal.SIGCONT)
    hung.wait(PATIENCE_S)  # it sees that it was let go of; whoever watches it starts it again


def test_a_run_begins_beside_a_hung_worker_and_ends_in_one_sentence_when_all_hang(tmp_path, cluster, said, monkeypatch):
    monkeypatch.setattr("airprune.engines.cluster.engine._NO_WORKERS_S", 1.0)
    workers = cluster.workers
    workers[0].send_signal(signal.SIGSTOP)
    scenario, flag = tiny_scenario(**PRUNED), tmp_path / "flag"
    expected = serial(tmp_path / "serial", scenario, model=Plain())
    records = ap.run(limping(cluster, scenario), out=tmp_path / "dask", dataset=blobs(), model=AlwaysFreezes(flag))
    next(records)
    (sentence,) = said
    assert re.match(HANGS, sentence).group(1) in address_of(workers[0])

    flag.touch()
    with pytest.raises(WorkFailed, match=r"^No worker of the cluster can take part: tcp://\S+ has given no sign of"):
        list(records)
    assert is_stopped(workers[1]) and len(said) == 2
    ended = scenario.with_("engine.name", "serial")
    list(ap.run(ended, out=tmp_path / "dask", dataset=blobs(), model=Plain(), resume=True))
    assert final_bytes(tmp_path / "dask") == expected


@pytest.mark.slow
def test_parts_that_a_hung_worker_holds_are_made_again(tmp_path, cluster, said):
    """The one left is asking for them."""
    workers = cluster.workers
    flag = tmp_path / "flag"
    flag.touch()
    pids = tuple(worker.pid for worker in workers)
    tasks = [Freezing((float(n),), flag=flag, pids=pids, is_last=n == 11) for n in range(12)]
    with DaskEngine(Toys(), scheduler=cluster.scheduler_file, silence_s=LIMIT_S) as engine:
        assert engine.reduce([Sum(shared=2.0, tasks=tasks, method="total_of")]) == [2.0 * 66 + 2.0]
    assert not flag.exists() and len(said) == 1 and re.match(HANGS, said[0])
    assert sum(map(is_stopped, workers)) == 1


@pytest.mark.slow
def test_a_hung_worker_of_the_engines_own_cluster_is_replaced(tmp_path, said):
    scenario, flag = tiny_scenario(**PRUNED), tmp_path / "flag"
    expected = serial(tmp_path / "serial", scenario, model=Plain())
    flag.touch()
    own = scenario.with_values({"engine.name": "dask", "engine.workers": 1, "engine.worker_timeout_s": LIMIT_S})
    list(ap.run(own, out=tmp_path / "dask", dataset=blobs(), model=FreezesOnce(flag)))
    assert not flag.exists() and final_bytes(tmp_path / "dask") == expected
    assert len(said) == 1 and re.match(HANGS, said[0])


@pytest.mark.slow
@pytest.mark.parametrize("frozen", ["process", "machine"])
def test_a_worker_of_a_machine_that_was_frozen_comes_back_and_is_used_again(tmp_path, frozen):
    """The only one there is. Its parent replaces it, or both go on when the machine does."""
    tls, file = tmp_path / "tls", tmp_path / "scheduler.json"
    make_certificates(tls)
    run = ("run", tiny_file(tmp_path, global_rounds=1), "--scheduler", file, "--tls", tls, "--out", tmp_path / "run")
    with (
        service("scheduler", "--port", 0, "--tls", tls, "--scheduler-file", file),
        service("worker", file, "--tls", tls, "--workers", 1) as machine,
    ):
        hear(machine, "joined")
        (worker,) = worker_processes(machine)
        stopped = [worker] if frozen == "process" else [machine.pid, worker]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        driver = start_airprune(*run, f"engine.worker_timeout_s={LIMIT_S:g}")
        sentence = hear(driver, "no sign of life")
        assert re.match(HANGS.replace(r"^Worker (\S+)", r"^Worker tls://127\.0\.0\.1:\d+"), sentence.rstrip())
        if frozen == "machine":
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        _, errors = driver.communicate(timeout=PATIENCE_S)
        assert driver.returncode == 0, errors
        assert worker_processes(machine) not in ([], [worker])


# Workers that have no space, or other code


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[Path | None]:
    """With room for 64 kB; None where nothing can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.getuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_workers_without_space_or_with_other_code_are_named_and_left_out_and_the_rest_goes_on(tmp_path, cluster, said):
    """Workers see this machine's files, so the driver names a folder that is nowhere, and sends them."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "data").write_bytes(bytes(200_000))
    other = tmp_path / "other"
    shutil.copytree(Path(ap.__file__).parent, other / "airprune")
    with (other / "airprune" / "wording.py").open("a") as file:
        file.write("# another commit of the same version\n")
    (tmp_path / "small").mkdir()
    keeps_in = "import tempfile; tempfile.tempdir = {!r}\n"
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    code = f"import sys; sys.path.insert(0, {str(other)!r})\n"
    with full_disk(tmp_path / "full") as full:
        bad = {
            "files": limited + keeps_in.format(str(tmp_path / "small")),
            "code": code,
            "disk": keeps_in.format(str(full)) if full else None,
        }
        processes = {
            kind: cluster.add_worker(before=before, is_cold=kind == "code")
            for kind, before in bad.items()
            if before is not None
        }
        try:
            wait_until_joined(cluster, 2 + len(processes))
            at = {kind: address_of(process) for kind, process in processes.items()}
            with DaskEngine(Toys(folder=files), scheduler=cluster.scheduler_file) as engine:
                hidden = dataclasses.replace(engine.members.parcel, folder=tmp_path / "nowhere")
                engine.members.parcel, engine.members.accepted = hidden, set()
                tasks = [Numbers((float(n),)) for n in range(4)]
                assert engine.reduce([Sum(shared=2.0, tasks=tasks)]) == [2.0 * 6 + 2.0]
                assert len(engine.members.accepted) == 2
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
                cluster.workers.remove(process)
    told = {
        kind: next(sentence for sentence in said if any(f"Worker {address} " in sentence for address in addresses))
        for kind, addresses in at.items()
    }
    assert len(said) == len(told) == len(processes)
    assert re.search(r"excluded: it has airprune files \w{12}, but this run has airprune files \w{12}\.$", told["code"])
    assert "excluded: it cannot keep the run's files: File too large" in told["files"]
    if "disk" not in told:
        pytest.skip("nothing can be mounted here, so no disk was full")
    assert "excluded: it cannot keep the run's files: no space left for 0.2 MB (" in told["disk"]


@pytest.mark.slow
def test_a_worker_that_hangs_while_it_is_sent_files_holds_nobody_up(tmp_path, cluster, said, monkeypatch):
    files = tmp_path / "files"
    files.mkdir()
    (files / "data").write_bytes(bytes(50_000_000))  # more than connections take in
    with DaskEngine(Toys(folder=files), scheduler=cluster.scheduler_file, silence_s=LIMIT_S) as engine:
        hidden = dataclasses.replace(engine.members.parcel, folder=tmp_path / "nowhere")
        engine.members.parcel, engine.members.accepted = hidden, set()
        run = engine.client.run

        def freezing(function, *arguments, **options):
            if function.__name__ == "receive":
                for worker in cluster.workers:
                    if set(address_of(worker)) & set(options["workers"]) and len(said) == 0:
                        worker.send_signal(signal.SIGSTOP)
            return run(function, *arguments, **options)

        monkeypatch.setattr(engine.client, "run", freezing)
        assert engine.reduce([Sum(shared=2.0, tasks=[Numbers((3.0,))])]) == [8.0]
    assert len(said) == 1 and re.match(HANGS, said[0])


def test_a_disk_that_is_full_in_the_midst_of_work_leaves_out_its_worker_only(tmp_path, cluster, said):
    flag = tmp_path / "flag"
    flag.touch()
    with DaskEngine(Toys(), scheduler=cluster.scheduler_file) as engine:
        assert list(engine.map("first_finds_no_space", flag, [1, 2, 3])) == [1, 2, 3]
    (sentence,) = said
    assert sentence.endswith("is excluded: it cannot use its files: No space left on device (/scratch/file).")


def test_code_is_compared_by_what_it_is():
    found = versions.versions()
    assert versions.difference(found, found) is None
    for name in ("airprune files", "native kernel from", "torch build", "numpy build"):
        unlike = versions.difference(found, {**found, name: "0" * 12})
        assert unlike is None if not found[name] else unlike.startswith(f"has {name} 000000000000, but this run has")
    assert versions.difference(found, {**found, "native kernel from": ""}) is None  # who needs it asks for it


def test_a_worker_whose_files_changed_since_it_started_says_so(monkeypatch):
    assert versions.change_since_start() is None
    monkeypatch.setattr(versions, "code_digest", lambda: "0" * 12)
    assert versions.change_since_start().startswith("has airprune files 000000000000 now but was started with ")
