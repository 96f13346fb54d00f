"""Where device work runs. To add an engine, write its file and list it here.

work       what is run: chunks of devices, parts of the test set
base       what an engine must do
serial     in this process
processes  in worker processes on this machine (worker_process is their side)
"""

from __future__ import annotations

from collections.abc import Callable

from airprune.engines.base import Engine
from airprune.engines.processes import ProcessesEngine
from airprune.engines.serial import SerialEngine
from airprune.errors import UnknownName

ENGINES: dict[str, Callable[..., Engine]] = {"serial": SerialEngine, "processes": ProcessesEngine}


def engine_named(name: str) -> Callable[..., Engine]:
    if name not in ENGINES:
        raise UnknownName("Scenario.engine.name", name, ENGINES)
    return ENGINES[name]
