"""A cable with a rate that can be changed while it is in use: a TCP relay that throttles one direction.

async with relay("127.0.0.1:8701", rate_bps=8e6) as cable:
    …dial(f"127.0.0.1:{cable.port}")…
    cable.rate_bps = 4e6
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

# As little as may wait on the way, so that what was sent before a change does not pass at the old rate.
_BUFFER_BYTES = 16_384
_PIECE_BYTES = 4_096


class Cable:
    def __init__(self, rate_bps: float) -> None:
        self.rate_bps = rate_bps
        self.port = 0


@contextlib.asynccontextmanager
async def relay(to: str, *, rate_bps: float) -> AsyncIterator[Cable]:
    """Ends all connections when it is left."""
    cable, tasks = Cable(rate_bps), set[asyncio.Task[None]]()
    loop = asyncio.get_running_loop()
    host, _, port = to.rpartition(":")

    async def up(near: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
        due_s = loop.time()
        while data := await near.read(_PIECE_BYTES):
            due_s = max(due_s, loop.time() - 0.01) + 8 * len(data) / cable.rate_bps
            await asyncio.sleep(due_s - loop.time())
            far.write(data)
            await far.drain()

    async def down(far: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        while data := await far.read(65_536):
            near.write(data)
            await near.drain()

    async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        tasks.add(task)
        try:
            with contextlib.suppress(OSError):
                far, forth = await asyncio.open_connection(host, int(port))
                ways = [asyncio.create_task(up(near, forth)), asyncio.create_task(down(far, back))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
                    forth.close()
        finally:
            back.close()
            tasks.discard(task)

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    server = await asyncio.start_server(serve, sock=listening, limit=_BUFFER_BYTES)
    cable.port = listening.getsockname()[1]
    try:
        yield cable
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
