"""A cloud, its edges and devices in one process, over mutual TLS on loopback; rounds go on when they are asked for.

Edges and devices live in an event loop of a thread of their own, the cloud in another, as `deployed_run` has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Awaitable, Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import airprune as ap
from airprune.deployment.cloud import deployed_run
from airprune.deployment.device import Device, DeviceSettings
from airprune.deployment.edge import Edge, EdgeSettings
from airprune.deployment.identity import load_members, load_node, make_federation
from airprune.deployment.remote import CloudSettings
from airprune.deployment.status import NodeStatus, read_status
from airprune.runs.layout import RunFolder
from airprune.runs.measured import read_measured
from airprune.scenario import Scenario
from support.processes import wait_for
from support.web_runs import tiny

PATIENT = CloudSettings(measures=False, grace_s=60.0, patience_s=2.0, wait_s=30.0)


class Federation:
    """Nodes by name; `kits` has a kit for each, `out` is the cloud's run folder.

    Attributes:
      records: of the run; the next one is the next round.
    """

    def __init__(
        self,
        folder: Path,
        *,
        first_port: int,
        keep_uploads: bool = False,
        num_edges: int = 2,
        devices_per_edge: int = 2,
        standby_edges: int = 0,
    ) -> None:
        self.kits, self.out = folder / "kits", folder / "run"
        make_federation(
            self.kits,
            num_edges=num_edges,
            devices_per_edge=devices_per_edge,
            standby_edges=standby_edges,
            first_port=free_ports(first_port, 1 + num_edges + standby_edges),
        )
        self.members = load_members(self.kits / "cloud")
        self.keep_uploads = keep_uploads
        self.records: Iterator[dict[str, Any]] = iter(())
        self.edges: dict[str, Edge] = {}
        self._tasks: dict[str, asyncio.Task[str]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def devices(self) -> tuple[str, ...]:
        return self.members.all_devices

    def address(self, name: str) -> str:
        return self.members.addresses[name]

    def start(self, *names: str, kind: Any = None) -> None:
        """`kind`: what to run in place of an `Edge` or a device."""
        for name in names:
            self.call(self._start(name, kind))

    async def _start(self, name: str, kind: Any) -> None:
        self._tasks[name] = asyncio.create_task(self._serve(name, kind))

    async def _serve(self, name: str, kind: Any) -> str:
        node, state = load_node(self.kits / name), self._state(name)
        if name in self.members.edges:
            self.edges[name] = edge = (kind or Edge)(node, state, EdgeSettings(keep_uploads=self.keep_uploads))
            return await edge.run()
        return await (kind or Device)(node, state, DeviceSettings()).run()

    def _state(self, name: str) -> Path:
        folder = self.kits / name / "state"
        folder.mkdir(exist_ok=True)
        return folder

    def end_of(self, name: str, within_s: float = 20.0) -> Any:
        """What a node ended with; raises what it raised."""
        return self.call(asyncio.shield(self._tasks[name]), within_s)

    def call(self, work: Awaitable[Any], within_s: float = 30.0) -> Any:
        """In the loop of edges and devices."""

        async def called() -> Any:
            return await asyncio.wait_for(work, within_s)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result()

    @contextlib.contextmanager
    def running(
        self, scenario: Scenario, settings: CloudSettings = PATIENT, *, resume: bool = False, **changes: Any
    ) -> Iterator[None]:
        """With a cloud; nodes that are to be there from the start must have been started."""
        node, folder = load_node(self.kits / "cloud"), RunFolder(self.out)
        with (
            deployed_run(node, scenario, folder, replace(settings, **changes), resume=resume) as records,
            contextlib.closing(records),
        ):
            self.records = records
            yield

    async def _end(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        ended = [task for task in tasks if task is not asyncio.current_task()]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    def close(self) -> None:
        self.call(self._end(self._tasks.values()))
        self.call(self._end(asyncio.all_tasks(self._loop)))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Lab(Federation):
    """A federation in the middle of a run, beside the same run in simulation."""

    simulated: Generator[dict[str, Any], None, None]

    def play(self) -> dict[str, Any]:
        """One more global round."""
        return next(record for record in self.records if record["kind"] == "global")

    def play_as_simulated(self) -> None:
        """One more global round, which is the simulation's to the last digit: so nobody was disturbed."""
        expected = next(record for record in self.simulated if record["kind"] == "global")
        assert json.dumps(self.play()) == json.dumps(expected)

    @property
    def nodes(self) -> dict[str, NodeStatus]:
        """As the cloud's status has them; nobody before it is written for the first time."""
        found = read_status(RunFolder(self.out))
        return {} if found is None else {node.name: node for node in found.nodes}

    def wait_online(self, *names: str) -> None:
        def are_there() -> bool:
            return {*names} <= {name for name, node in self.nodes.items() if node.online}

        wait_for(are_there, f"{names} should be online", 30)

    def last_fates(self) -> dict[str, str]:
        rows = read_measured(RunFolder(self.out))
        return {str(row.name): row.fate for row in rows if row.round == rows[-1].round}


@contextlib.contextmanager
def lab_in(folder: Path, port: int, *, num_rounds: int, liars: dict[str, Any] | None = None) -> Iterator[Lab]:
    scenario = tiny(rounds__global_rounds=num_rounds, rounds__edge_rounds=1)
    lab = Lab(folder, first_port=port)
    lab.simulated = ap.run(scenario)
    try:
        for name in (*lab.members.edges, *lab.devices):
            lab.start(name, kind=(liars or {}).get(name))
        with lab.running(scenario):
            yield lab
    finally:
        lab.simulated.close()
        lab.close()


@contextlib.contextmanager
def federation(folder: Path, **options: Any) -> Iterator[Federation]:
    made = Federation(folder, **options)
    try:
        yield made
    finally:
        made.close()


def own_ports() -> int:
    """How far the ports of this test process lie from those of the first, so that they never take each other's."""
    return 1_000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def free_ports(first: int, count: int) -> int:
    """The first of so many ports in a row that nobody listens at."""
    first += own_ports()
    for start in range(first, first + 90, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(start, start + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return start
    raise OSError(f"no {count} free ports from {first} on")
