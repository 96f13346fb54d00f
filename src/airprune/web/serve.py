"""A free port, and the server on it until it is stopped."""

from __future__ import annotations

import dataclasses
import errno
import socket
from collections.abc import Callable

import uvicorn

from airprune.errors import UsageError, WorkFailed
from airprune.web.app import create_app
from airprune.web.site import Site

USUAL_PORT = 8765
_PORTS_TRIED = 50


def serve(site: Site, *, port: int | None, announce: Callable[[Site], None]) -> None:
    """Serves until interrupted. `port` None is the usual one or the next free, 0 any free one."""
    listening = listen(site.host, port)
    site = dataclasses.replace(site, port=listening.getsockname()[1])
    server = server_of(site)
    announce(site)
    with listening:
        server.run(sockets=[listening])


def server_of(site: Site, *, log_level: str = "warning") -> uvicorn.Server:
    """A server that is yet to run; its app knows when it is told to stop, and ends the streams that it waits for."""
    app = create_app(site)
    config = uvicorn.Config(
        app, log_level=log_level, access_log=False, server_header=False, timeout_graceful_shutdown=2, ws="none"
    )
    server = uvicorn.Server(config)
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
