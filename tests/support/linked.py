"""Peers of a link: a well-behaved one in a process of its own, and ones that write whatever they like.

python -m support.linked serve PORT_FILE      says its port, and receives
python -m support.linked dial PORT            dials, says hello, and receives
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Limits, Link, LinkLost, Server, dial

METHOD = "/airprune.v1.Airprune/Link"
QUICK = Limits(beat_s=0.1, dead_after_s=0.5, hello_within_s=5.0, max_payload_bytes=4_000_000)


async def listen_only(link: Link) -> None:
    with contextlib.suppress(LinkLost):
        while True:
            await link.receive()


async def serve_until_idle(port_file: str) -> None:
    """One link, then the end."""
    over = asyncio.Event()

    async def own(link: Link) -> None:
        await listen_only(link)
        over.set()

    async with Server("127.0.0.1:0", credentials=None, on_link=own, limits=QUICK) as server:
        Path(port_file).with_suffix(".new").write_text(str(server.port))
        Path(port_file).with_suffix(".new").rename(port_file)
        await asyncio.wait_for(over.wait(), 60)


async def dial_and_listen(port: str) -> None:
    link = await dial(f"127.0.0.1:{port}", credentials=None, limits=QUICK)
    await link.send(pb.Hello(protocol=1))
    await asyncio.wait_for(listen_only(link), 60)
    await link.close()


class RawChild:
    """Dials without a `Link`: sends the frames that it is given and no heartbeats of its own."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._call = channel.stream_stream(METHOD, pb.Frame.SerializeToString, pb.Frame.FromString)()

    async def write(self, *frames: pb.Frame) -> None:
        for frame in frames:
            await self._call.write(frame)

    async def refusal(self) -> str:
        """The reason that the parent gives; "" if it ends the stream without one."""
        while (frame := await self._call.read()) is not grpc.aio.EOF:
            if frame.WhichOneof("body") == "refusal":
                return frame.refusal.reason
        return ""


@contextlib.asynccontextmanager
async def raw_child(port: int) -> AsyncIterator[RawChild]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield RawChild(channel)


@contextlib.asynccontextmanager
async def raw_parent() -> AsyncIterator[tuple[int, list[pb.Frame]]]:
    """(port, frames as they come); answers heartbeats and nothing else."""
    frames: list[pb.Frame] = []

    async def handle(_: object, context: grpc.aio.ServicerContext) -> None:
        while (frame := await context.read()) is not grpc.aio.EOF:
            frames.append(frame)
            if frame.WhichOneof("body") == "beat":
                await context.write(pb.Frame(beat=pb.Beat(number=frame.beat.number, is_answer=True)))

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(handle, pb.Frame.FromString, pb.Frame.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("airprune.v1.Airprune", {"Link": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port, frames
    finally:
        await server.stop(0)


if __name__ == "__main__":
    _, _role, _where = sys.argv
    asyncio.run(serve_until_idle(_where) if _role == "serve" else dial_and_listen(_where))
