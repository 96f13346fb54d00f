"""When each piece of a payload leaves, so that it takes no more than its share of the air.

A payload of `size` bytes on a share of R bps takes 1.047 · 8 · size / R: besides the payload the link carries headers
of Ethernet, IP and TCP (1514 bytes for 1448) and the records of TLS. Each piece leaves when the bytes before it are
due, as a link of that rate would start on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airprune.errors import InvalidValue

# Bytes on the link per byte of payload.
LINK_OVERHEAD = 1.047
# A piece at a planned rate: short against an upload, long against the timer of an event loop.
_PIECE_S = 0.004
# Below, headers would cost more than LINK_OVERHEAD says.
_LEAST_PIECE_BYTES = 4 * 1448
# A small last piece, since nothing is due after it: whole payloads arrive when they should on fast links too.
_LAST_PIECE_BYTES = 1448


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop`, which leave `due_s` after the first."""

    start: int
    stop: int
    due_s: float


def pieces(size: int, *, chunk_bytes: int, rate_bps: float | None = None) -> Iterator[Piece]:
    """All of a payload in order; without a rate nothing waits."""
    if rate_bps is None:
        for start in range(0, size, chunk_bytes):
            yield Piece(start, min(size, start + chunk_bytes), 0.0)
        return
    if not rate_bps > 0:
        raise InvalidValue("rate_bps", "must be > 0", rate_bps)
    seconds_per_byte = LINK_OVERHEAD * 8 / rate_bps
    step = min(chunk_bytes, max(_LEAST_PIECE_BYTES, round(_PIECE_S / seconds_per_byte)))
    start = 0
    while start < size:
        before_last = size - _LAST_PIECE_BYTES
        stop = min(start + step, before_last) if start < before_last else size
        yield Piece(start, stop, start * seconds_per_byte)
        start = stop
