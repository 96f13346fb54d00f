"""Calls of an app's ClientApp, in this process or in the workers of an engine."""

from __future__ import annotations

import importlib
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune.engines.base import WorkerFactory
from airprune.errors import trouble_of
from airprune.flower.app import identify, load, sources, switch_off_telemetry
from airprune.flower.counting import CALL, Counted
from airprune.randomness import rng_for


@dataclass(frozen=True, kw_only=True)
class Call:
    """One message to one client.

    Attributes:
      exchange: which one it belongs to, for the seed of the call.
      state: `Context.state` of the client.
    """

    device: int
    exchange: int
    message: Any
    state: Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a call.

    Attributes:
      content: of the reply; None if the client raised an error, which `trouble` has.
      state: `Context.state` after the call.
      cpu_s: CPU time of the call, all threads.
      counts: what the app has counted.
    """

    content: Any
    state: Any
    cpu_s: float
    counts: tuple[Counted, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class ClientFactory(WorkerFactory):
    """Makes a worker that calls the ClientApp `name`, which it imports: it cannot be pickled."""

    name: str
    folder: Path | None
    config: Mapping[str, Any]
    num_clients: int
    seed: int
    setup_payload: bytes | None = None
    way_out: str = "resume the run (--resume)"

    def open(self, folder: Path | None) -> ClientWorker:
        found = self.folder if folder is None else folder
        assert found is not None
        return ClientWorker(self, found)


class ClientWorker:
    """Calls a ClientApp; everything that a client keeps comes with the call and goes back with the answer."""

    def __init__(self, factory: ClientFactory, folder: Path) -> None:
        switch_off_telemetry()
        self._factory = factory
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))  # for what the app imports later
        self._app = load(factory.name, folder, "ClientApp")
        if "torch" not in sys.modules and mentions_torch(folder):  # imported in the first call, it would not be seeded
            importlib.import_module("torch")
        identify()

    def call(self, shared: Any, task: Call) -> Answer:
        """Returns the answer to one message; an error of the client is one, too."""
        from flwr.app import Context

        factory = self._factory
        context = Context(
            run_id=1,
            node_id=node_of(task.device),
            node_config={"partition-id": task.device, "num-partitions": factory.num_clients},
            state=task.state,
            run_config=dict(factory.config),
        )
        counts: list[Counted] = []
        token = CALL.set(counts)
        began = time.process_time()
        try:
            seed_all(factory.seed, task.exchange, task.device)
            began = time.process_time()
            reply = self._app(task.message, context)
            cpu_s = time.process_time() - began
            if reply.has_error():
                return Answer(content=None, state=context.state, cpu_s=cpu_s, trouble=str(reply.error.reason))
            return Answer(content=reply.content, state=context.state, cpu_s=cpu_s, counts=tuple(counts))
        except Exception as error:
            cpu_s = time.process_time() - began
            return Answer(content=None, state=context.state, cpu_s=cpu_s, trouble=trouble_of(error))
        finally:
            CALL.reset(token)


def mentions_torch(folder: Path) -> bool:
    """True if a Python file of an app's folder imports torch."""
    return any(b"import torch" in path.read_bytes() or b"from torch" in path.read_bytes() for path in sources(folder))


def node_of(device: int) -> int:
    """Returns the number of a device's node in Flower, where 0 and 1 are taken."""
    return device + 2


def device_of(node: int) -> int:
    """Returns the device of a node."""
    return node - 2


def seed_all(seed: int, *address: int) -> None:
    """Seeds the global random numbers of Python, numpy and torch, which apps use.

    So a call's result depends neither on the worker that makes it nor on calls before it.
    """
    number = int(rng_for(seed, "flower", *address).integers(2**32))
    random.seed(number)
    legacy = np.random  # whose global numbers apps use
    legacy.seed(number)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(number)


@contextmanager
def kept_randomness() -> Iterator[None]:
    """Restores the global random numbers afterwards: clients in this process do not move those of the server."""
    torch: Any = sys.modules.get("torch")
    legacy = np.random
    before = random.getstate(), legacy.get_state(), None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        legacy.set_state(before[1])
        if torch is not None:
            torch.set_rng_state(before[2])
