"""Executors: where work of any kind runs. To add an engine, write its file and list it here.

base       what an engine must do, and what it is given: factories, tasks, groups
serial     in this process
processes  in worker processes on this machine (worker_process is their side)
cluster    `dask`: on the workers of a Dask cluster
machine    what worker processes need of their machine
children   how they are started and stopped
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.engines.base import Engine
from airprune.engines.machine import workers_here
from airprune.errors import UnknownName, UsageError
from airprune.extras import sentence_for

ENGINES: Registry[type[Engine]] = Registry(
    "engines",
    {
        "serial": "airprune.engines.serial:SerialEngine",
        "processes": "airprune.engines.processes:ProcessesEngine",
        "dask": "airprune.engines.cluster.engine:DaskEngine",
    },
)


def check_engine(name: str, *, workers: int | None, scheduler: str | None) -> None:
    """Refuses an engine that is not there, or that would start too many workers; before anything is made ready for it.

    Those of a cluster that is there already are its own business.
    """
    engine_named(name)
    if name != "serial" and scheduler is None:
        workers_here(workers)


def engine_named(name: str) -> type[Engine]:
    """Returns the engine's class; refuses one whose packages are not installed."""
    if name not in ENGINES:
        raise UnknownName("Scenario.engine.name", name, ENGINES)
    try:
        return ENGINES[name]
    except ModuleNotFoundError as error:
        sentence = sentence_for(error, f"The engine {name}") or f"The engine {name} needs the package {error.name}."
        raise UsageError(sentence) from error
