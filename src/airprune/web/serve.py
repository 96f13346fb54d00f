"""A free port, and the server on it until it is stopped.

A signal always ends it: it is given `_GRACE_S` to finish answers and to stop the run at work, then it leaves, whatever
its threads are doing. Python would wait for them, and a plan of a million devices takes a while. A second signal ends
it at once. Nothing is lost: runs are processes of their own, which stop when their server is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from airprune.errors import UsageError, WorkFailed
from airprune.web.app import create_app
from airprune.web.connections import Connection, look_at, max_accepted_at_once
from airprune.web.site import Site

USUAL_PORT = 8765
_PORTS_TRIED = 50
_ANSWERS_S = 1
_GRACE_S = 3.0
_TICKS_PER_LOOK = 10  # of a tenth of a second


def serve(site: Site, *, port: int | None, announce: Callable[[Site], None]) -> None:
    """Serves until interrupted, and does not return. `port` None is the usual one or the next free, 0 any free one."""
    listening = listen(site.host, port)
    site = dataclasses.replace(site, port=listening.getsockname()[1])
    server = server_of(site)
    server.leaves = True
    announce(site)
    with listening:
        server.run(sockets=[listening])


class PageServer(uvicorn.Server):
    """Looks after its connections.

    Attributes:
      leaves: whether a signal ends the process too.
    """

    leaves = False

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        if self.leaves:
            self._told, self._tell = os.pipe()
            os.set_blocking(self._tell, False)
            threading.Thread(target=self._leave_when_told, daemon=True).start()
        super().run(sockets)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_LOOK == 0:
            look_at(self.server_state.connections)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.leaves:
            with contextlib.suppress(BlockingIOError):
                os.write(self._tell, bytes([sig]))  # the only thing that is safe wherever the signal comes

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what is cut off is cut off on purpose
        await super().shutdown(sockets)
        if self.leaves and self._captured_signals:
            _leave(self._captured_signals[0])

    def _leave_when_told(self) -> None:
        (number,) = os.read(self._told, 1)
        select.select([self._told], [], [], _GRACE_S)
        _leave(number)


def _leave(number: int) -> None:
    """Ends the process as the signal would have, without waiting for threads."""
    _, can_be_told, _ = select.select([], [2], [], 0)  # a terminal that nobody reads is not waited for either
    if number == signal.SIGINT and can_be_told:
        with contextlib.suppress(OSError):
            os.write(2, b"stopped.\n")
    if number != signal.SIGINT and threading.current_thread() is threading.main_thread():
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(128 + number)


def server_of(site: Site, *, log_level: str = "error") -> PageServer:
    """A server that is yet to run; its app knows when it is told to stop, and ends the streams that it waits for."""
    app = create_app(site)
    config = uvicorn.Config(
        app,
        http=Connection,
        backlog=max_accepted_at_once(),
        log_level=log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_ANSWERS_S,
        ws="none",
    )
    server = PageServer(config)
    app.state.is_stopping = lambda: server.should_exit
    return server


def listen(host: str, port: int | None) -> socket.socket:
    """A listening socket; None is the usual port or the next free one, 0 any free one."""
    ports = range(USUAL_PORT, USUAL_PORT + _PORTS_TRIED) if port is None else [port]
    for candidate in ports:
        try:
            return _bound(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"--host must be an address of this machine, got {host!r}: {error}.") from error
    taken = f"{ports[0]} to {ports[-1]}" if len(ports) > 1 else str(ports[0])
    raise WorkFailed(f"--port must be free, got {taken}, in use. Use --port 0 for any free one.")


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
