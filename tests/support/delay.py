"""A cable with a delay, for kernels without netem: python -m support.delay NAME NAME SECONDS

Makes two Ethernet interfaces of these names in its network namespace, from where they may be moved; what leaves by one
arrives by the other after the delay. Both go when the process ends, which it does when its standard input closes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_FRAME_BYTES = 2048


def tap(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return descriptor


def main(one: str, other: str, delay_s: str) -> None:
    ends = tap(one), tap(other)
    opposite = dict(zip(ends, reversed(ends), strict=True))
    waiting: deque[tuple[float, int, bytes]] = deque()  # in the order of arrival, which is that of leaving
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        timeout = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
        readable = select.select([*ends, sys.stdin], [], [], timeout)[0]
        if sys.stdin in readable:
            return
        now = time.monotonic()
        waiting.extend((now + float(delay_s), opposite[end], frame) for end in readable for frame in frames(end))
        while waiting and waiting[0][0] <= now:
            _, end, frame = waiting.popleft()
            with contextlib.suppress(OSError):  # an interface that is down loses what is sent to it, as a cable does
                os.write(end, frame)


def frames(end: int) -> list[bytes]:
    """All that have come; an interface that is down has none."""
    found: list[bytes] = []
    with contextlib.suppress(OSError):
        while len(found) < 64:
            found.append(os.read(end, _FRAME_BYTES))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
