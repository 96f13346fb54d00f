"""An edge that serves for months: jobs and connections leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tools.growth import memory_bytes

from airprune.deployment.edge import EdgeSettings, run_edge
from airprune.deployment.edge_devices import Child
from airprune.deployment.handshake import dial_parent, say_hello
from airprune.deployment.hub import Hub
from airprune.deployment.identity import load_members, load_node, make_federation
from airprune.deployment.memory import give_back_memory
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.transport import Limits, Link
from airprune.methods.registration import code_used_by
from airprune.scenario import Scenario
from support.lab import free_ports

FIRST_PORT = 9_560
HELD = (Link, Child, RunDefinition, asyncio.Task)


@contextlib.asynccontextmanager
async def edge_of(folder: Path) -> AsyncIterator[Hub]:
    """A cloud's hub with one edge that has come online; its two devices have not."""
    make_federation(folder, num_edges=1, devices_per_edge=2, first_port=free_ports(FIRST_PORT, 2))
    hub = Hub(load_node(folder / "cloud"), load_members(folder / "cloud"), Limits(), stays=True)
    async with hub.server():
        edge = asyncio.create_task(run_edge(load_node(folder / "e0"), folder, EdgeSettings()))
        try:
            await until(lambda: "e0" in hub.edges)
            yield hub
        finally:
            edge.cancel()
            await asyncio.gather(edge, return_exceptions=True)


async def until(condition) -> None:
    async with asyncio.timeout(60.0):
        while not condition():
            await asyncio.sleep(0.01)


async def serve_jobs(hub: Hub, folder: Path, count: int, scenario: Scenario) -> None:
    """Jobs that begin and end, each with a device that joins, takes the job and hangs up."""
    work = RunDefinition(scenario=scenario, input_shape=(1, 28, 28), num_classes=10, num_devices=2, num_edges=1)
    packages = code_used_by(scenario)
    device = load_node(folder / "d0")
    for number in range(count):
        job = pb.Welcome(run=f"{number:08x}", scenario=scenario.to_toml(), packages=packages, **work.facts)
        await hub.begin(job, hub.fleet)
        link = await dial_parent(device, device.parents[0], Limits())
        welcome = await say_hello(link)
        while welcome.run != job.run:
            welcome = (await link.receive()).message
        await link.close()
        await until(lambda: not hub.online_devices())
        await hub.end()


def held() -> Counter[str]:
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if type(one) in HELD)


def test_jobs_and_connections_leave_no_object_behind(tmp_path):
    async def count() -> tuple[Counter[str], Counter[str]]:
        scenario = Scenario.preset("deployed")
        async with edge_of(tmp_path) as hub:
            await serve_jobs(hub, tmp_path, 2, scenario)
            await asyncio.sleep(0.2)
            before = held()
            await serve_jobs(hub, tmp_path, 8, scenario)
            await until(lambda: held() <= before)
            return before, held()

    before, after = asyncio.run(count())
    assert before["Link"] and after <= before


def test_an_edge_works_in_two_threads_whatever_comes_at_once(tmp_path):
    """Each thread that ever worked keeps a part of the heap, so an edge would grow until it has one for each core."""

    def work() -> str:
        time.sleep(0.05)
        return threading.current_thread().name

    async def names() -> set[str]:
        async with edge_of(tmp_path):
            return set(await asyncio.gather(*(asyncio.to_thread(work) for _ in range(8))))

    assert len(asyncio.run(names())) <= 2


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_memory_that_is_free_after_a_run_goes_back_to_the_system():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    blocks = [libc.malloc(60_000) for _ in range(1_000)]
    for block in blocks:
        ctypes.memset(block, 1, 60_000)
    last = libc.malloc(60_000)  # as long as it is in use, glibc keeps all that is before it
    for block in blocks:
        libc.free(block)
    before = memory_bytes(os.getpid())
    give_back_memory()
    assert before - memory_bytes(os.getpid()) > 40e6
    libc.free(last)
