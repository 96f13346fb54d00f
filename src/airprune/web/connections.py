"""Connections that cannot be held for nothing: how many there may be, and how long one may do nothing.

- Beyond `max_connections` the one that has been idle longest is closed; if all are at work, the newest.
- One that sends no whole request for `MAX_IDLE_S` is closed: uvicorn's own limit ends with the first byte.
- One that takes nothing of its answer for `MAX_STALL_S` is closed, since the answer is kept for it meanwhile.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 200
MAX_IDLE_S = 15.0
MAX_STALL_S = 30.0


def max_connections() -> int:
    """Fewer where this process may open few files: runs, tables and scripts need some."""
    return max(8, min(MAX_CONNECTIONS, _max_files() // 4))


def max_accepted_at_once() -> int:
    """Connections that are taken before the next look at how many there are."""
    return max(8, min(128, _max_files() // 8))


def _max_files() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**16 if allowed == resource.RLIM_INFINITY else allowed


class Connection(H11Protocol):
    """A connection that knows since when it has done nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._idle_since = self._moved_at = time.monotonic()
        self._num_waiting_bytes = 0

    @property
    def is_idle(self) -> bool:
        """True if no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        others: list[Connection] = [other for other in self.connections if other is not self]  # type: ignore[misc]
        if len(others) >= max_connections():
            idle = [other for other in others if other.is_idle]
            min(idle, key=lambda other: other._idle_since, default=self).drop()

    def on_response_complete(self) -> None:
        self._idle_since = time.monotonic()
        super().on_response_complete()

    def resume_writing(self) -> None:
        self._moved_at = time.monotonic()
        super().resume_writing()

    def drop(self) -> None:
        """At once, whatever is still to be sent."""
        self.connections.discard(self)
        self.transport.abort()

    def look(self, now: float) -> None:
        """Called every second or so."""
        num_waiting_bytes = self.transport.get_write_buffer_size()
        if num_waiting_bytes == 0 or num_waiting_bytes < self._num_waiting_bytes:
            self._moved_at = now
        self._num_waiting_bytes = num_waiting_bytes
        is_stalled = now - self._moved_at > MAX_STALL_S
        is_silent = self.is_idle and num_waiting_bytes == 0 and now - self._idle_since > MAX_IDLE_S
        if is_stalled or is_silent:
            self.drop()


def look_at(connections: Collection[Any]) -> None:
    now = time.monotonic()
    for connection in list(connections):
        connection.look(now)
