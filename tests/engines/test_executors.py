"""Engines run any factory's tasks: in order, lazily, merged alike everywhere, and with what the user registered."""

import itertools
import subprocess
import sys
from collections.abc import Iterator

import cloudpickle
import numpy as np
import pytest

from airprune.engines import ENGINES
from airprune.engines.base import GROUP_CHUNKS, Engine
from airprune.errors import WorkFailed
from airprune.extras import install_command
from support import factories
from support.factories import NeedsLuggage, Numbers, Sum, Toys

WORKERS = 2


@pytest.fixture(scope="module", params=["serial", "processes", "dask"])
def engine(request) -> Iterator[Engine]:
    with ENGINES[request.param](Toys(), workers=WORKERS) as started:
        yield started


def random_numbers(count: int) -> list[float]:
    return np.random.default_rng(0).normal(size=count).tolist()


def test_results_come_in_the_order_of_the_calls_or_as_they_end(engine):
    numbers = random_numbers(40)
    expected = [2.0 * number for number in numbers]
    assert list(engine.map("scaled", 2.0, numbers)) == expected
    assert list(engine.calls("scaled", [(n, 2.0) for n in numbers])) == expected
    ended = list(engine.as_completed("scaled", [(2.0, n) for n in numbers]))
    assert sorted(ended) == list(enumerate(expected))


def sum_by_hand(groups: list[list[float]], shared: float) -> float:
    """Sixteen tasks at a time, then the sums of those: float addition is not associative."""
    products = [shared * sum(values) for values in groups]
    batches = [products[start : start + GROUP_CHUNKS] for start in range(0, len(products), GROUP_CHUNKS)]
    totals = [list(itertools.accumulate(batch))[-1] for batch in batches]
    return list(itertools.accumulate(totals))[-1] + shared


@pytest.mark.parametrize("batches_per_worker", [0, 1_000])  # from which on a cluster's tasks are whole batches
@pytest.mark.parametrize("travels", [False, True])
def test_every_engine_merges_to_the_same_bits(engine, travels, batches_per_worker, monkeypatch):
    if engine.remote:
        monkeypatch.setattr("airprune.engines.cluster.engine._WHOLE_BATCHES", batches_per_worker)
    values = [[value] for value in random_numbers(70)]
    tasks = tuple(Numbers(tuple(numbers)) for numbers in values)
    groups = [Sum(shared=shared, tasks=tasks, travels=travels) for shared in (0.1, 3.0, 1e9)]
    assert engine.reduce(groups) == [sum_by_hand(values, shared) for shared in (0.1, 3.0, 1e9)]
    for group in groups:
        assert group.arrivals == ([task.values for task in tasks] if travels else [])


def test_tasks_are_loaded_only_a_few_ahead_of_the_results(engine):
    log: list[float] = []
    calls = [(1.0, Numbers((float(n),), log=log)) for n in range(200)]
    most = 0
    for count, result in enumerate(engine.calls("total", calls)):
        assert result == [float(count)]
        most = max(most, len(log) - count)
    assert len(log) == 200 and most <= 10 * WORKERS


@pytest.mark.parametrize("engine", ["processes", pytest.param("dask", marks=pytest.mark.slow)], indirect=True)
def test_parts_that_workers_die_of_are_found_and_stood_for_while_others_are_under_way(engine):
    """Merged by the driver in processes, by workers in Dask until the first deaths."""
    tasks = (Numbers((1.0, 2.0, 3.0, 4.0), deadly=(3.0,)), *(Numbers((float(n),)) for n in range(5, 25)))
    group = Sum(shared=1.0, tasks=tasks, travels=not engine.remote)
    (total,) = engine.reduce([group])
    assert total == sum(range(1, 25)) - 3 + 1000 + 1
    if group.travels:
        assert group.arrivals == [(1.0, 2.0, 4.0), *(task.values for task in tasks[1:])]


@pytest.mark.parametrize("engine", ["processes", "dask"], indirect=True)
def test_a_death_ends_the_work_where_nothing_may_be_lost(engine):
    tasks = (Numbers((1.0, 2.0), deadly=(2.0,)),)
    with pytest.raises(WorkFailed, match=r"^no use without them, (signal SIGKILL|a signal or an exit .*)$"):
        engine.reduce([Sum(shared=1.0, tasks=tasks, may_lose=False)])
    assert engine.reduce([Sum(shared=1.0, tasks=(Numbers((1.0,)),))]) == [2.0]  # it is still of use


def test_a_death_is_one_sentence():
    workers_die = pytest.raises(WorkFailed, match=r"^A worker died 3 times on the same task, last by signal SIGKILL;")
    with ENGINES["processes"](Toys(), workers=1) as engine, workers_die:
        list(engine.map("total", 1.0, [Numbers((2.0,), deadly=(2.0,))]))


@pytest.mark.parametrize("name", ["processes", "dask"])
def test_luggage_is_unpacked_before_the_workshop_and_files_are_found(tmp_path, name):
    (tmp_path / "file").write_bytes(b"x")
    factory = Toys(needs=NeedsLuggage(), setup_payload=cloudpickle.dumps(factories.setup_payload), folder=tmp_path)
    with ENGINES[name](factory, workers=1) as engine:
        (answer,) = engine.map("what_was_there", None, [None])
    assert answer[0] == "setup_payload" and "file" in answer[1]
    assert factories.REGISTERED == []  # only in the workers


def test_asking_for_engines_imports_neither_torch_nor_dask():
    script = (
        "import sys, airprune.engines as e; e.engine_named('processes'), e.engine_named('serial');"
        "print([name for name in ('torch', 'distributed', 'dask') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_package_is_one_sentence_that_names_the_extra():
    script = (
        "import sys; sys.modules['distributed'] = None\n"
        "from airprune.engines import engine_named\n"
        "from airprune.errors import UsageError\n"
        "try: engine_named('dask')\n"
        "except UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"The engine dask needs the extra `cluster`: {install_command('cluster')}\n"
