"""Clusters that limp: workers that hang, have no space or other code are named, and the rest of the work goes on."""

import logging
import re
import signal
from collections.abc import Iterator

import psutil
import pytest

import airprune as ap
from airprune.engines.cluster.engine import DaskEngine
from airprune.engines.cluster.silence import Silence
from airprune.errors import WorkFailed
from support.cluster import Cluster
from support.processes import PATIENCE_S
from support.tiny import blobs, final_bytes, tiny_scenario
from support.trouble import AlwaysFreezes, FreezesOnce, Plain
from support.workshops import Freezing, Sum, Toys
from test_cluster import PRUNED, on, serial, wait_until_joined

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
    """What the driver has said, as it grows."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("airprune")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def address_of(worker) -> list[str]:
    """Where a worker process listens."""
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


def test_parts_that_a_hung_worker_holds_are_made_again(tmp_path, cluster, said):
    """The one left would wait for them as long as the connection stands."""
    workers = cluster.workers
    flag = tmp_path / "flag"
    flag.touch()
    pids = tuple(worker.pid for worker in workers)
    tasks = [Freezing((float(n),), flag=flag, pids=pids, is_last=n == 11) for n in range(12)]
    with DaskEngine(Toys(), scheduler=cluster.scheduler_file, silence_s=LIMIT_S) as engine:
        assert engine.reduce([Sum(shared=2.0, tasks=tasks, method="total_of")]) == [2.0 * 66 + 2.0]
    assert not flag.exists() and len(said) == 1 and re.match(HANGS, said[0])
    assert sum(map(is_stopped, workers)) == 1


def test_a_hung_worker_of_the_engines_own_cluster_is_replaced(tmp_path, said):
    scenario, flag = tiny_scenario(**PRUNED), tmp_path / "flag"
    expected = serial(tmp_path / "serial", scenario, model=Plain())
    flag.touch()
    own = scenario.with_values({"engine.name": "dask", "engine.workers": 1, "engine.worker_timeout_s": LIMIT_S})
    list(ap.run(own, out=tmp_path / "dask", dataset=blobs(), model=FreezesOnce(flag)))
    assert not flag.exists() and final_bytes(tmp_path / "dask") == expected
    assert len(said) == 1 and re.match(HANGS, said[0])
