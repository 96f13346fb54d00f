"""What the links of a deployment cost beside the work, measured on this machine.

    .venv/bin/python benchmarks/deployment.py

A round without compute: a parent sends 200 kB to each of three children, all processes of their own, and each answers
with 200 kB. Over links with mutual TLS; over plain asyncio streams without TLS, heartbeats, digests or limits; and as a
copy of the same bytes within one process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from airprune.deployment.identity import channel_credentials, load_node, make_federation, server_credentials
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Limits, Link, LinkLost, Server, dial

NUM_CHILDREN = 3
LIMITS = Limits(max_payload_bytes=10_000_000)
WARM_UP = 10
PATIENCE_S = 30


@contextlib.contextmanager
def children(*arguments: Sequence[object]) -> Iterator[None]:
    """This file as one process for each of the `arguments`; they end with their connection."""
    processes = [subprocess.Popen([sys.executable, __file__, *map(str, each)]) for each in arguments]
    try:
        yield
    finally:
        for process in processes:
            process.wait(PATIENCE_S)


async def median_s(rounds: int, one_round: Callable[[], Awaitable[object]]) -> float:
    seconds = []
    for _ in range(WARM_UP + rounds):
        start_s = time.monotonic()
        await one_round()
        seconds.append(time.monotonic() - start_s)
    return statistics.median(seconds[WARM_UP:])


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
    options = parser.parse_args()
    if options.child:
        asyncio.run(answer_over_link(options.child, options.port))
    elif options.port:
        asyncio.run(answer_over_plain_stream(options.port, options.bytes))
    else:
        measure(options.rounds, options.bytes)
