"""Uploads over a real link, with mutual TLS, from one process to another; timed by the one that sends.

    python -m support.link_uploads receive ADDRESS KIT
    python -m support.link_uploads send ADDRESS KIT

The sender takes orders on standard input, one JSON line each: so many uploads in a row (`count`) of so many `bytes`, at
`pace_bps` (of the link; null: as fast as it goes). It answers with `seconds`, from the first byte to the last receipt,
the idle link's `rtt_s`, and the receiver's [first_s, last_s] of each upload as `spans_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from airprune.deployment.identity import channel_credentials, load_node, make_federation, server_credentials
from airprune.deployment.pacing import payload_rate_bps
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Limits, Link, LinkLost, Server, dial
from support.namespaces import Network

PORT = 4433
LIMITS = Limits(max_payload_bytes=2**22)
_PINGS = 5
WARM_UP_BYTES = 100_000  # the handshake and the first windows


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What the fields are is told above."""

    seconds: float
    rtt_s: float
    spans_s: list[tuple[float, float]]


@contextlib.contextmanager
def uploading(net: Network, sender: str, receiver: str, folder: Path) -> Iterator[Callable[..., Timed]]:
    """A warm link between two nodes, as `upload(num_bytes, pace_bps=None, count=1)`."""
    if not (folder / "kits").exists():
        make_federation(folder / "kits", num_edges=1, devices_per_edge=1)
    with contextlib.ExitStack() as stack:

        def started(node: str, role: str, kit: str) -> subprocess.Popen[str]:
            command = net.inside(node, sys.executable, "-m", "support.link_uploads", role)
            command += [net.address(receiver), str(folder / "kits" / kit)]
            paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = subprocess.Popen(command, env=environment, text=True, **pipes)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        assert started(receiver, "receive", "e0").stdout.readline() == "ready\n"
        client = started(sender, "send", "d0")

        def upload(num_bytes: int, pace_bps: float | None = None, count: int = 1) -> Timed:
            client.stdin.write(json.dumps(dict(bytes=num_bytes, pace_bps=pace_bps, count=count)) + "\n")
            client.stdin.flush()
            return Timed(**json.loads(client.stdout.readline()))

        upload(WARM_UP_BYTES)
        yield upload


async def receive(address: str, kit: str) -> None:
    over = asyncio.Event()

    async def own(link: Link) -> None:
        with contextlib.suppress(LinkLost):
            while True:
                packet = await link.receive()
                await link.send(pb.Receipt(reason=json.dumps([packet.first_s, packet.last_s])))
        over.set()

    credentials = server_credentials(load_node(Path(kit)))
    async with Server(f"{address}:{PORT}", credentials=credentials, on_link=own, limits=LIMITS):
        _say("ready")
        await over.wait()


async def send(address: str, kit: str) -> None:
    node = load_node(Path(kit))
    name = node.parents[0].server_name
    link = await dial(f"{address}:{PORT}", credentials=channel_credentials(node), server_name=name, limits=LIMITS)
    payload = os.urandom(LIMITS.max_payload_bytes)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        pings = [await _upload(link, b"", None, 1) for _ in range(_PINGS)]
        rate_bps = order["pace_bps"] and payload_rate_bps(order["pace_bps"])
        seconds, spans_s = await _upload(link, payload[: order["bytes"]], rate_bps, order["count"])
        _say(json.dumps(dict(seconds=seconds, rtt_s=min(ping[0] for ping in pings), spans_s=spans_s)))
    await link.close()


async def _upload(link: Link, payload: bytes, rate_bps: float | None, count: int) -> tuple[float, list[list[float]]]:
    started_s = time.monotonic()
    for _ in range(count):
        await link.send(pb.Upload(), payload, rate_bps=rate_bps)
    spans_s = [json.loads((await link.receive()).message.reason) for _ in range(count)]
    return time.monotonic() - started_s, spans_s


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run({"receive": receive, "send": send}[sys.argv[1]](*sys.argv[2:]))
