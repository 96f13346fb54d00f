"""Federations on loopback over TLS: processes that can be killed, or tasks of one event loop; links that can be cut.

    with Processes(folder, standby_edges=1) as federation:
        federation.start_all()
        federation.start_cloud(run, "deployed", "rounds.global_rounds=3")
        federation.wait_for(lambda: lines_of(run / "inputs.jsonl"), "a round is planned")
        federation.kill("e0")
        federation.start("e0")
        federation.wait("cloud")

All of it ends with the block.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import io
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from airprune.cli import main
from airprune.deployment.cloud import deployed_run
from airprune.deployment.device import Device, DeviceSettings
from airprune.deployment.edge import Edge, EdgeSettings
from airprune.deployment.fleet.service import registry_of
from airprune.deployment.identity import load_members, load_node, make_federation
from airprune.deployment.remote import CloudSettings
from airprune.deployment.status import Status, read_status_file
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from support.lab import own_ports

T = TypeVar("T")
PATIENCE_S = 240.0  # of tests on a busy machine
_AT_MOST_S = 600  # that a process may live, whatever becomes of the tests
_PARENT_DIED = 1  # PR_SET_PDEATHSIG
_PRELOADED = (
    "torch", "grpc", "airprune.results.report", "airprune.cli", "airprune.cli.deploy", "airprune.cli.progress",
    "airprune.deployment.fleet.service", "airprune.deployment.device", "airprune.deployment.edge",
)  # fmt: skip
_PORTS = range(9100, 9290)


class Background:
    """An event loop in a thread."""

    def __enter__(self) -> Background:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.05)  # connections that were cut are closed by the loop

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result(PATIENCE_S)


class Relay:
    """Stands between a child and its parent on TCP; what it does not understand it cannot read, but it can be cut."""

    def __init__(self, background: Background, target: str) -> None:
        self._background = background
        self._target = target.rpartition(":")[::2]
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._is_deaf = False
        self._bytes_until_deaf: float | None = None
        self.num_up_bytes = 0
        self.address = background.call(self._listen())

    async def _listen(self) -> str:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, up_writer}
        self._writers |= ends
        try:
            pumps = [self._pump(reader, up_writer), self._pump(up_reader, writer, is_down=True)]
            tasks = [asyncio.ensure_future(pump) for pump in pumps]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_down: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                self.num_up_bytes += 0 if is_down else len(data)
                if not is_down and self._bytes_until_deaf is not None:
                    self._bytes_until_deaf -= len(data)
                    self._is_deaf = self._bytes_until_deaf <= 0
                if not (is_down and self._is_deaf):
                    writer.write(data)
                    await writer.drain()

    def close(self) -> None:
        self._background.call(self._close())

    async def _close(self) -> None:
        self._server.close()
        await self._cut()

    def cut(self) -> None:
        """Ends what goes through it, and lets nobody in."""
        self._background.call(self._cut())

    async def _cut(self) -> None:
        self._is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def deafen_after(self, num_bytes: float) -> None:
        """When the child has sent so much more, nothing of the parent reaches it any longer."""
        self._bytes_until_deaf = num_bytes

    def restore(self) -> None:
        self._is_cut, self._is_deaf, self._bytes_until_deaf = False, False, None


class _Kits:
    """A federation's kits on free ports, and relays where links are to be cut."""

    def __init__(self, folder: Path, *, num_edges: int = 2, devices_per_edge: int = 3, standby_edges: int = 0) -> None:
        self.folder = folder
        self.kits = folder / "kits"
        make_federation(
            self.kits,
            num_edges=num_edges,
            devices_per_edge=devices_per_edge,
            standby_edges=standby_edges,
            first_port=_free_ports(1 + num_edges + standby_edges),
        )
        self.members = load_members(self.kits / "cloud")
        self.edges, self.devices = list(self.members.edges), list(self.members.all_devices)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Any:
        self.background = self._stack.enter_context(Background())
        self._stack.callback(self.kill_all)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def relay(self, child: str) -> Relay:
        """Between a node and the first whom it dials; put there before the node starts."""
        parent = self.members.dialled_by(child)[0]
        address = self.members.addresses[parent]
        relay = Relay(self.background, address)
        self._stack.callback(relay.close)
        path = self.kits / child / "node.toml"
        path.write_text(path.read_text().replace(f'"{address}"', f'"{relay.address}"'))
        return relay

    def state(self, name: str) -> Path:
        """Where a node keeps what it must not forget."""
        place = self.kits / name / "state"
        place.mkdir(exist_ok=True)
        return place

    def has_averaged(self, edge: str) -> bool:
        return any(self.state(edge).glob("edge-*.safetensors"))

    def has_trained(self, device: str) -> bool:
        return any(self.state(device).glob("ledger-*.safetensors"))

    def kill_all(self) -> None:
        raise NotImplementedError


class Processes(_Kits):
    """Every node a process of its own; forked from one that has imported everything, which saves most of the start."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*_PRELOADED, __name__])
        self.processes: dict[str, Any] = {}

    def start(self, name: str, *options: str) -> None:
        role = "edge" if name.startswith("e") else "device"
        self._run(name, "deploy", role, str(self.kits / name), *options)

    def start_all(self, *options: str) -> None:
        """The edges, and the devices with these options."""
        for name in self.edges:
            self.start(name)
        for name in self.devices:
            self.start(name, *options)

    def start_cloud(self, out: Path, *arguments: str, plan_with: str = "network") -> None:
        """Of a scenario with its overrides and options; plans are the simulation's, and nobody is late by accident."""
        options = ("--plan-with", plan_with, "--out", str(out))
        self._run("cloud", "deploy", "cloud", str(self.kits / "cloud"), *arguments, *options)

    def serve(self, *options: str) -> None:
        """The cloud of a fleet that stays."""
        self._run("cloud", "deploy", "serve", str(self.kits / "cloud"), *options)

    def ask(self, *arguments: object) -> str:
        """What a command of `airprune deploy` prints."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = main(["deploy", *map(str, arguments)])
        assert status == 0, arguments
        return printed.getvalue()

    def jobs(self) -> list[dict[str, Any]]:
        return json.loads(self.ask("jobs", self.kits / "cloud", "--json"))

    def job_folder(self, number: int) -> Path:
        (found,) = (self.kits / "cloud/state/runs").glob(f"job-{number:04d}-*")
        return found

    def wait_for_job(self, number: int, state: str = "ended") -> None:
        def is_there() -> bool:
            job = registry_of(self.kits / "cloud/state").job(number)
            assert job.state != "failed" or state == "failed", job.reason
            return job.state == state

        self.wait_for(is_there, f"job {number} has {state}")

    def status(self) -> Status | None:
        return read_status_file(self.kits / "cloud/state/status.json")

    def _run(self, name: str, *arguments: str) -> None:
        process = self._context.Process(target=_node_main, args=(arguments, str(self._log(name))), daemon=True)
        process.start()
        self.processes[name] = process

    def kill(self, name: str) -> None:
        """kill -9."""
        self._signal(name, signal.SIGKILL)
        self.processes[name].join(PATIENCE_S)

    def stop(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: int) -> None:
        os.kill(self.processes[name].pid, number)

    def wait(self, name: str) -> int:
        """Its exit status."""
        self.processes[name].join(PATIENCE_S)
        assert self.processes[name].exitcode is not None, f"{name} does not end:\n{self.log(name)}"
        return self.processes[name].exitcode

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        """Bounded; the sentence and the logs say what did not happen."""
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end_s:
                logs = "".join(f"== {name}\n{self.log(name)}" for name in self.processes)
                raise AssertionError(f"timed out: {what}\n{logs}")
            time.sleep(0.005)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        return self._log(name).read_text() if self._log(name).exists() else ""

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.join()


class Tasks(_Kits):
    """Every edge and device a task of one event loop; the cloud runs in the caller's thread."""

    def __init__(self, folder: Path, *, gather_s: float = 5.0, patience_s: float = 60.0, **options: Any) -> None:
        super().__init__(folder, **options)
        self.gather_s, self.patience_s = gather_s, patience_s
        self.tasks: dict[str, asyncio.Task[str]] = {}

    def start(self, name: str, *, data: str | None = None) -> None:
        """`data`: samples of a device's own."""
        node, state = load_node(self.kits / name), self.state(name)
        if name in self.devices:
            work = Device(node, state, DeviceSettings(patience_s=self.patience_s, data=data)).run()
        else:
            work = self._edge(name)
        self.tasks[name] = self.background.call(_started(work))

    async def _edge(self, name: str) -> str:
        edge = Edge(load_node(self.kits / name), self.state(name), EdgeSettings(gather_s=self.gather_s))
        return await edge.run()

    def start_all(self) -> None:
        for name in (*self.edges, *self.devices):
            self.start(name)

    def kill(self, name: str) -> None:
        """Returns when its port is free again."""
        self.background.call(_ended(self.tasks[name]))

    def run_cloud(
        self, scenario: Scenario, out: Path, settings: CloudSettings, *, resume: bool = False, dataset: Any = None
    ) -> Iterator:
        """The records, as they come."""
        kit = load_node(self.kits / "cloud")
        with (
            deployed_run(kit, scenario, RunFolder(out), settings, resume=resume, dataset=dataset) as records,
            contextlib.closing(records),
        ):
            yield from records

    def kill_all(self) -> None:
        for name in self.tasks:
            self.kill(name)


async def _started(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.create_task(work)


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


class Written:
    """True if any of these files was written since it was made."""

    def __init__(self, folders: list[Path], pattern: str) -> None:
        self._folders, self._pattern = folders, pattern
        self._before = self._times()

    def _times(self) -> dict[Path, int]:
        found = {}
        for folder in self._folders:
            for path in folder.glob(self._pattern):
                found[path] = path.stat().st_mtime_ns
        return found

    def __call__(self) -> bool:
        return self._times() != self._before


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that is being written."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _free_ports(count: int) -> int:
    """The first of so many neighbours on which nobody listens."""
    for _ in range(100):
        first = own_ports() + random.randrange(_PORTS.start, _PORTS.stop - count)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError(f"no {count} neighbouring ports are free in {_PORTS}")


def _node_main(arguments: tuple[str, ...], log: str) -> None:
    ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)
    signal.alarm(_AT_MOST_S)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(descriptor, number)
    sys.exit(main(list(arguments)))
