"""What the links of a deployment cost beside the work, measured on this machine.

    .venv/bin/python benchmarks/deployment.py [--devices 100 --edges 4 --per-process 25]

A whole federation, with the real cloud's hub, edges and links, mutual TLS, and light devices that follow the protocol
but do not train: the time of an edge round in which the cloud sends its model to all edges and these to all devices,
all answer with 200 kB and the cloud has the edges' models; then memory and CPU of the processes.

Without `--devices`, links alone: a parent sends 200 kB to each of three children, all processes of their own, and each
answers with 200 kB. Over links with mutual TLS; over plain asyncio streams without TLS, heartbeats, digests or limits;
and as a copy of the same bytes within one process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from airprune import __version__
from airprune.deployment.hub import Hub
from airprune.deployment.identity import (
    Node,
    channel_credentials,
    load_members,
    load_node,
    make_federation,
    server_credentials,
)
from airprune.deployment.packing import RoundArrays, Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import PROTOCOL, RunDefinition, state_digest
from airprune.deployment.transport import Limits, Link, LinkLost, Server, dial
from airprune.deployment.uploads import upload_to_bytes
from airprune.rounds.messages import Upload
from airprune.rounds.wire import broadcast_from_bytes, upload_size
from airprune.scenario import Scenario

NUM_CHILDREN = 3
LIMITS = Limits(max_payload_bytes=10_000_000)
WARM_UP = 10
PATIENCE_S = 30
FIRST_PORT = 9_550


@contextlib.contextmanager
def children(*arguments: Sequence[object]) -> Iterator[None]:
    """This file as one process for each of the `arguments`; they end with their connection."""
    processes = [subprocess.Popen([sys.executable, __file__, *map(str, each)]) for each in arguments]
    try:
        yield
    finally:
        for process in processes:
            process.wait(PATIENCE_S)


async def median_s(rounds: int, one_round: Callable[[], Awaitable[object]], warm_up: int = WARM_UP) -> float:
    seconds = []
    for _ in range(warm_up + rounds):
        start_s = time.monotonic()
        await one_round()
        seconds.append(time.monotonic() - start_s)
    return statistics.median(seconds[warm_up:])


async def over_links(rounds: int, payload: bytes, folder: Path) -> float:
    _, edge, *devices = map(load_node, make_federation(folder, num_edges=1, devices_per_edge=NUM_CHILDREN))
    arrived: asyncio.Queue[Link] = asyncio.Queue()
    over = asyncio.Event()

    async def own(link: Link) -> None:
        await link.receive()
        arrived.put_nowait(link)
        await over.wait()

    async def exchange(link: Link) -> None:
        await link.send(pb.Orders(run="benchmark"), payload)
        assert (await link.receive()).num_bytes == len(payload)

    credentials = server_credentials(edge)
    async with Server("127.0.0.1:0", credentials=credentials, on_link=own, limits=LIMITS) as server:
        with children(*(["--child", device.folder, "--port", server.port] for device in devices)):
            links = [await asyncio.wait_for(arrived.get(), PATIENCE_S) for _ in devices]
            result = await median_s(rounds, lambda: asyncio.gather(*map(exchange, links)))
            over.set()
            await asyncio.gather(*(link.wait_lost() for link in links))
    return result


async def answer_over_link(kit: Path, port: int) -> None:
    node = load_node(kit)
    server_name = node.parents[0].server_name
    link = await dial(
        f"127.0.0.1:{port}", credentials=channel_credentials(node), server_name=server_name, limits=LIMITS
    )
    await link.send(pb.Hello(protocol=1))
    with contextlib.suppress(LinkLost):
        while True:
            orders = await link.receive()
            await link.send(pb.Upload(run="benchmark"), orders.payload)
    await link.close()


async def over_plain_streams(rounds: int, payload: bytes) -> float:
    arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def own(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.put_nowait((reader, writer))

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(payload)
        await writer.drain()
        await reader.readexactly(len(payload))

    async with await asyncio.start_server(own, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with children(*[["--port", port, "--bytes", len(payload)]] * NUM_CHILDREN):
            streams = [await asyncio.wait_for(arrived.get(), PATIENCE_S) for _ in range(NUM_CHILDREN)]
            result = await median_s(rounds, lambda: asyncio.gather(*(exchange(*stream) for stream in streams)))
            for _, writer in streams:
                writer.close()
                await writer.wait_closed()
    return result


async def answer_over_plain_stream(port: int, num_bytes: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            writer.write(await reader.readexactly(num_bytes))
            await writer.drain()
    writer.close()


async def by_copying(rounds: int, payload: bytes) -> float:
    async def copy() -> None:
        for _ in range(2 * NUM_CHILDREN):
            bytearray(payload)

    return await median_s(rounds, copy)


def groundwork(num_devices: int, num_edges: int) -> RunDefinition:
    """Of a model of 200 kB, whose weights travel as they are: an upload has 200 kB too."""
    chosen = {"model.name": "mlp", "network.num_edges": num_edges, "plan.bits_per_weight": 32}
    scenario = Scenario().with_values(chosen)
    return RunDefinition(
        scenario=scenario, input_shape=(784,), num_classes=10, num_devices=num_devices, num_edges=num_edges
    )


async def over_federation(rounds: int, num_devices: int, num_edges: int, per_process: int, folder: Path) -> None:
    """Prints what a round takes."""
    sizes = [len(part) for part in np.array_split(np.arange(num_devices), num_edges)]
    kits = make_federation(folder, num_edges=num_edges, devices_per_edge=sizes, first_port=FIRST_PORT)
    node, work = load_node(kits[0]), groundwork(num_devices, num_edges)
    welcome = pb.Welcome(
        run="benchmark",
        scenario=work.scenario.to_toml(),
        input_shape=work.input_shape,
        num_classes=work.num_classes,
        max_payload_bytes=work.max_payload_bytes,
        num_devices=num_devices,
        num_edges=num_edges,
    )
    hub = Hub(node, load_members(node.folder), Limits())
    await hub.begin(welcome, hub.fleet)
    edges, devices = kits[1 : 1 + num_edges], kits[1 + num_edges :]
    commands = [[sys.executable, "-m", "airprune", "deploy", "edge", str(kit)] for kit in edges]
    for start in range(0, num_devices, per_process):
        commands.append([sys.executable, __file__, "--light", *map(str, devices[start : start + per_process])])
    async with hub.server():
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes = [subprocess.Popen(command, **silent) for command in commands]
        try:
            assert await hub.wait_for(set(range(num_devices)), 20 * PATIENCE_S), "not all nodes came"
            await _time_rounds(
                hub,
                work,
                rounds,
                sizes,
                {process.pid: command for process, command in zip(processes, commands, strict=True)},
            )
            await hub.say_goodbye("The benchmark is over.")
            for process in processes[:num_edges]:
                await asyncio.to_thread(process.wait, PATIENCE_S)
        finally:
            for process in processes:
                process.kill()
                process.wait()


async def _time_rounds(
    hub: Hub, work: RunDefinition, rounds: int, sizes: list[int], commands: dict[int, list[str]]
) -> None:
    model = np.zeros(work.shape.num_state, dtype=work.codec.state_dtype)
    payload = RoundArrays(station=Station(model=model), mask=None).to_bytes()
    digest, keep = state_digest(model, {}), work.shape.prunable_weights
    most = upload_size(work.codec, work.shape.fixed_weights + keep, code=None, has_mask=True)
    first = np.cumsum([0, *sizes])
    number, took_s = itertools.count(), []

    async def one_round() -> None:
        place = next(number)
        orders = {}
        for edge, size in enumerate(sizes):
            message = pb.EdgeRound(run="benchmark", global_round=place, round_index=place, deadline_s=60.0)
            message.model_digest, message.sends_model, message.learning_rate = digest, True, 0.1
            message.chunk_sizes.append(size)
            for device in range(first[edge], first[edge + 1]):
                message.orders.add(device=device, keep=keep, weight=1 / size, max_bytes=most, last_counted=-1)
            orders[edge] = message, payload
        reports = await hub.run_round(orders, PATIENCE_S)
        assert all(one is not None and {o.fate for o in one[0].outcomes} == {"ok"} for one in reports.values())
        took_s.append(max(one[0].took_s for one in reports.values()))

    for _ in range(WARM_UP):
        await one_round()
    pids = [os.getpid(), *commands]
    before_s = np.array([_cpu_s(pid) for pid in pids])
    whole_s = await median_s(rounds, one_round, warm_up=0)
    cpu_s = (np.array([_cpu_s(pid) for pid in pids]) - before_s) / rounds
    kinds = ["cloud"] + ["edge" if "edge" in command else "devices" for command in commands.values()]
    print(f"1 cloud, {len(sizes)} edges, {sum(sizes)} devices, 200 kB there and back, median of {rounds} rounds:")
    print(f"from orders of the cloud to reports {1e3 * whole_s:8.2f} ms")
    print(f"of it the devices' part at edges    {1e3 * statistics.median(took_s[WARM_UP:]):8.2f} ms")
    for kind in ("cloud", "edge", "devices"):
        chosen = [number for number, one in enumerate(kinds) if one == kind]
        memory_mb, cpu_ms = max(_memory_mb(pids[number]) for number in chosen), 1e3 * cpu_s[chosen].mean()
        print(f"{kind:<8} × {len(chosen):<3} CPU {cpu_ms:7.2f} ms a round, RSS {memory_mb:6.0f} MB, each")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3


async def be_light_devices(kits: Sequence[Path]) -> None:
    await asyncio.gather(*(be_light_device(load_node(kit)) for kit in kits))


async def be_light_device(node: Node) -> None:
    """Follows the protocol and answers with the model as it came, until it is told goodbye."""
    parent = node.parents[0]
    while True:
        with contextlib.suppress(LinkLost):
            link = await dial(parent.address, credentials=channel_credentials(node), server_name=parent.server_name)
            return await _answer_orders(link)
        await asyncio.sleep(0.5)


async def _answer_orders(link: Link) -> None:
    await link.send(pb.Hello(protocol=PROTOCOL, version=__version__))
    welcome = (await link.receive()).message
    link.limits = dataclasses.replace(link.limits, max_payload_bytes=welcome.max_payload_bytes)
    work = _groundwork_of(welcome.num_devices, welcome.num_edges)
    await link.send(pb.Measured(run=welcome.run, seconds_per_sample=1e-3, num_samples=10), bytes(1000))
    while True:
        packet = await link.receive()
        match packet.message:
            case pb.Orders():
                orders = packet.message
                upload = pb.Upload(run=orders.run, global_round=orders.global_round, edge_round=orders.edge_round)
                upload.round_index, upload.model_digest = orders.round_index, orders.model_digest
                await link.send(upload, _prepared(work, orders.model_digest, packet.payload))
            case pb.Goodbye():
                return await link.close()


@functools.cache
def _groundwork_of(num_devices: int, num_edges: int) -> RunDefinition:
    return groundwork(num_devices, num_edges)


_prepared_of: dict[str, bytes] = {}


def _prepared(work: RunDefinition, digest: str, body: bytes) -> bytes:
    """Made once: the model is the same in all rounds."""
    if digest not in _prepared_of:
        model = broadcast_from_bytes(bytes(body)).model
        values = dict.fromkeys(Upload._fields, 0.0)
        values |= {
            "state": model,
            "mask": None,
            "message": None,
            "report": {},
            "memory": {},
            "num_samples": 10,
            "num_kept": None,
        }
        _prepared_of[digest] = upload_to_bytes(
            Upload(**values), work.codec, model_digest=bytes.fromhex(digest), shared_mask=None
        )
    return _prepared_of[digest]


def measure(rounds: int, num_bytes: int) -> None:
    payload = random.Random(1).randbytes(num_bytes)
    with tempfile.TemporaryDirectory() as folder:
        links_s = asyncio.run(over_links(rounds, payload, Path(folder) / "federation"))
    plain_s = asyncio.run(over_plain_streams(rounds, payload))
    copy_s = asyncio.run(by_copying(rounds, payload))
    print(f"1 parent, {NUM_CHILDREN} children, {num_bytes / 1e3:g} kB there and back, median of {rounds} rounds:")
    print(f"links with mutual TLS  {1e3 * links_s:8.2f} ms")
    print(f"plain asyncio streams  {1e3 * plain_s:8.2f} ms   links / plain: {links_s / plain_s:.1f}")
    print(f"copies in one process  {1e3 * copy_s:8.2f} ms   links / copies: {links_s / copy_s:.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=200_000)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--light", type=Path, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--devices", type=int, help="of a whole federation, without training")
    parser.add_argument("--edges", type=int, default=2)
    parser.add_argument("--per-process", type=int, default=1, help="devices in a process")
    options = parser.parse_args()
    if options.child:
        asyncio.run(answer_over_link(options.child, options.port))
    elif options.port:
        asyncio.run(answer_over_plain_stream(options.port, options.bytes))
    elif options.light:
        asyncio.run(be_light_devices(options.light))
    elif options.devices:
        with tempfile.TemporaryDirectory() as place:
            federation = Path(place) / "federation"
            asyncio.run(
                over_federation(options.rounds, options.devices, options.edges, options.per_process, federation)
            )
    else:
        measure(options.rounds, options.bytes)
