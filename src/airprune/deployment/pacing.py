"""The time that an upload takes on a real link, T_up = RTT + c · 8 · bytes / R, and sending at a planned rate.

R is the link's rate as a shaper counts it: frames with their Ethernet headers. An upload's bytes are payload, and
c = WIRE_OVERHEAD is the cost of carrying them:

    frame / payload      a frame of 14 + 1500 bytes carries 1500 − 20 (IP) − 20 (TCP) − 12 (time stamps) = 1448
    TLS 1.3 records      16,384 bytes of plaintext get 5 (header) + 1 (type) + 16 (tag) more

so c = 1514 / 1448 · 16,406 / 16,384 = 1.0470. The bytes that gRPC adds (14 in 16 kB) are below 0.1 % and left out. RTT
is there once: half of it until the first byte arrives, half until the sender knows about the last one.

A sender paces at the payload's rate (`payload_rate_bps` of the link's share): neither side sees a header.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from airprune.errors import InvalidValue

_FRAME_BYTES, _SEGMENT_BYTES = 14 + 1500, 1500 - 20 - 20 - 12
_RECORD_BYTES, _RECORD_EXTRA_BYTES = 16_384, 5 + 1 + 16
WIRE_OVERHEAD = _FRAME_BYTES / _SEGMENT_BYTES * (1 + _RECORD_EXTRA_BYTES / _RECORD_BYTES)

# Short against an upload, long against the timer of an event loop; smaller pieces cost headers and CPU.
_CHUNK_S = 0.004
_SMALLEST_CHUNK_BYTES, LARGEST_CHUNK_BYTES = 4 * 1448, 65_536
# A small last chunk, since nothing is due after it: whole payloads arrive when they should on fast links too.
LAST_CHUNK_BYTES = 1448

# How much of a stop a sender may make up for: on a busy machine a sleep takes some milliseconds too long, which is
# more than one chunk's time, and what is not made up for is lost.
_CATCH_UP_S = 0.05


def upload_s(num_bytes: float, rate_bps: float, rtt_s: float = 0.0) -> float:
    """Returns T_up, from the first byte sent until the receipt is there, alone on a warm connection over the link."""
    return rtt_s + 8 * num_bytes / payload_rate_bps(rate_bps)


def payload_rate_bps(link_rate_bps: float) -> float:
    """Returns the payload per second on a link of that rate, to pace at."""
    return link_rate_bps / WIRE_OVERHEAD


def link_rate_bps(payload_rate_bps: float) -> float:
    """Returns the link's rate that payload at that rate fills."""
    return payload_rate_bps * WIRE_OVERHEAD


def chunk_bytes(rate_bps: float) -> int:
    """Returns the number of bytes to send at once so that a paced upload is smooth."""
    return round(min(max(_CHUNK_S * rate_bps / 8, _SMALLEST_CHUNK_BYTES), LARGEST_CHUNK_BYTES))


def chunks(size: int, rate_bps: float | None = None, *, largest: int = LARGEST_CHUNK_BYTES) -> Iterator[slice]:
    """Yields the parts of a payload, in order, to be sent at once; without a rate as large as may be."""
    step = largest if rate_bps is None else min(largest, chunk_bytes(rate_bps))
    before_last = size if rate_bps is None else size - LAST_CHUNK_BYTES
    start = 0
    while start < size:
        stop = min(start + step, before_last) if start < before_last else size
        yield slice(start, stop)
        start = stop


class Pacer:
    """Schedules the chunks of one upload.

    Each has its place in a schedule of absolute times from the first one on, so that a sleep that takes too long is
    made up for by the next and errors do not add up: at no time has more been sent than the rate allows since the
    start, plus the chunk that goes first. On a faster link the last one therefore arrives a chunk's time early. What a
    stop of more than 50 ms left unsent is not made up for, or a burst would take others' shares.
    """

    def __init__(self, rate_bps: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not rate_bps > 0:
            raise InvalidValue("rate_bps", "must be > 0", rate_bps)
        self._rate_bps = rate_bps
        self._clock = clock
        self._due_s: float | None = None

    def delay_s(self, num_bytes: int) -> float:
        """Returns the seconds to wait before the next chunk, which has `num_bytes`, is sent."""
        now_s = self._clock()
        due_s = now_s if self._due_s is None else max(self._due_s, now_s - _CATCH_UP_S)
        self._due_s = due_s + 8 * num_bytes / self._rate_bps
        return max(due_s - now_s, 0.0)


def received_bps(num_bytes: int, first_s: float, last_s: float) -> float:
    """Returns the rate at which `num_bytes` came after the first chunk; infinite if all of them came with it.

    The first chunk itself does not count: when it set out is not known to the receiver.

    Args:
      first_s, last_s: when the first and the last chunk had arrived.
    """
    return 8 * num_bytes / (last_s - first_s) if last_s > first_s else float("inf")
