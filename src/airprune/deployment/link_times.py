"""How long an upload takes on a real link: T_up = RTT + c · 8 · bytes / R.

R is the link's rate as a shaper counts it: frames with their Ethernet headers. An upload's bytes are payload, and
c = WIRE_OVERHEAD is what their way costs:

    frame / payload      a frame of 14 + 1500 bytes carries 1500 − 20 (IP) − 20 (TCP) − 12 (time stamps) = 1448
    TLS 1.3 records      16,384 bytes of plaintext get 5 (header) + 1 (type) + 16 (tag) more

so c = 1514 / 1448 · 16,406 / 16,384 = 1.0470. What gRPC adds (14 bytes in 16 kB) is below 0.1 % and left out. RTT is
there once: half of it until the first byte arrives, half until the sender knows about the last one.
"""

from __future__ import annotations

_FRAME_BYTES, _SEGMENT_BYTES = 14 + 1500, 1500 - 20 - 20 - 12
_RECORD_BYTES, _RECORD_EXTRA_BYTES = 16_384, 5 + 1 + 16

WIRE_OVERHEAD = _FRAME_BYTES / _SEGMENT_BYTES * (1 + _RECORD_EXTRA_BYTES / _RECORD_BYTES)


def upload_s(num_bytes: float, rate_bps: float, rtt_s: float = 0.0) -> float:
    """From the first byte sent until the receipt is there, alone on a warm connection over a link of `rate_bps`."""
    return rtt_s + 8 * num_bytes / payload_rate_bps(rate_bps)


def upload_bytes(seconds: float, rate_bps: float, rtt_s: float = 0.0) -> float:
    """The inverse of `upload_s`: how much payload fits; 0 if not even the round trip does."""
    return max(seconds - rtt_s, 0.0) * payload_rate_bps(rate_bps) / 8


def payload_rate_bps(link_rate_bps: float) -> float:
    """Payload per second on a link of that rate: what to pace at."""
    return link_rate_bps / WIRE_OVERHEAD


def link_rate_bps(payload_rate_bps: float) -> float:
    """The link's rate that payload at that rate fills."""
    return payload_rate_bps * WIRE_OVERHEAD


__all__ = ["WIRE_OVERHEAD", "link_rate_bps", "payload_rate_bps", "upload_bytes", "upload_s"]
