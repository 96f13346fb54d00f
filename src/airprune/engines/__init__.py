"""Where device work runs. To add an engine, write its file and list it here.

work       what is run: chunks of devices, parts of the test set
base       what an engine must do
serial     in this process
processes  in worker processes on this machine (worker_process is their side)
cluster    `dask`: on the workers of a Dask cluster
"""

from __future__ import annotations

from airprune.engines.base import Engine
from airprune.engines.processes import ProcessesEngine
from airprune.engines.serial import SerialEngine
from airprune.errors import UnknownName, UsageError

ENGINES = ("serial", "processes", "dask")


def engine_named(name: str) -> type[Engine]:
    """The engine's class; refuses one whose packages are not installed."""
    if name == "dask":
        try:
            from airprune.engines.cluster.engine import DaskEngine
        except ModuleNotFoundError as error:
            raise UsageError(
                f"The engine dask needs the package {error.name}; install the extra: pip install 'airprune[cluster]'."
            ) from error
        return DaskEngine
    known: dict[str, type[Engine]] = {"serial": SerialEngine, "processes": ProcessesEngine}
    if name not in known:
        raise UnknownName("Scenario.engine.name", name, ENGINES)
    return known[name]
