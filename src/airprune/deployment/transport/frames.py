"""Checks what may arrive on a link and in which order: bytes in, packets or a refusal out; no I/O and no clock.

Sizes are compared with the limits before memory is taken, and a payload is received into the one buffer that its owner
will read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError, Message

from airprune.deployment.digests import DIGEST_BYTES, digest_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import WorkFailed

# Names of all bodies that a frame may have.
KINDS = tuple(body.name for body in pb.Frame.DESCRIPTOR.oneofs_by_name["body"].fields)
# Payloads up to this size are held a second time, as frames, while they are sent.
_KEPT_BYTES = 2**22
_NEVER_WITH_PAYLOAD = ("beat", "chunk", "refusal")
# Their payloads come after them in any case: how long that takes shows how fast the link is.
_TIMED = ("measured", "upload")
# Their payloads are known by their digests, in orders and records; that of others is for TLS to protect.
_KNOWN_BY_DIGEST = ("orders", "upload")


class BadFrame(WorkFailed):
    """A peer broke the protocol; the sentence says how."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of what a peer may cost, in time and memory.

    Attributes:
      beat_s: time between heartbeats.
      dead_after_s: a peer of whom nothing was received for so long is dead.
      hello_within_s: time to connect, and then to say the first message.
      max_payload_bytes: of the payloads that a link holds, unread or on their way; 0: none is taken.
      chunk_bytes: of a payload per frame; must pass well within `dead_after_s`, since whole frames are what is heard.
      large_chunk_bytes: the same on a link that has shown to be fast, and takes it in a moment.
      max_frame_bytes: of one frame, which holds all of a message, and its payload if that would be one chunk.
      max_unread: messages that wait for their owner; then the peer has to wait.
      max_links: at one server.
      unread_within_s: a peer that has not read a frame for so long is given up.
      small_frames_per_s: frames below `small_frame_bytes` that are read within a second; more have to wait.
    """

    beat_s: float = 1.0
    dead_after_s: float = 3.0
    hello_within_s: float = 5.0
    max_payload_bytes: int = 0
    chunk_bytes: int = 65_536
    large_chunk_bytes: int = 491_520
    max_frame_bytes: int = 524_288
    max_unread: int = 16
    max_links: int = 10_000
    unread_within_s: float = 60.0
    small_frames_per_s: int = 2_000
    small_frame_bytes: int = 1_024


@dataclass(frozen=True)
class Packet:
    """A whole message.

    Attributes:
      message: the body, e.g. an `Upload`.
      payload: read-only; empty if there is none.
      first_s, last_s: when the message and its last chunk arrived, on the receiver's monotonic clock: the payload took
        `last_s - first_s`.
      digest: of the payload, checked; may be empty for messages whose payload is not known by it.
    """

    message: Message
    payload: bytes | memoryview
    first_s: float
    last_s: float
    digest: bytes = b""

    @property
    def num_bytes(self) -> int:
        return len(self.payload)


@dataclass
class _Coming:
    """A message whose payload is on its way; memory is taken with the first chunk."""

    message: Message
    first_s: float
    size: int
    digest: bytes
    num_received: int = 0
    buffer: bytearray = field(default_factory=bytearray)
    hasher: hashlib._Hash = field(default_factory=hashlib.sha256)


class Assembler:
    """Puts messages together from the frames of one peer; its `limits` may be replaced while it works."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._coming: _Coming | None = None

    @property
    def coming(self) -> tuple[Message, float, int] | None:
        """Message, arrival time and bytes so far of the payload on its way; None if there is none."""
        coming = self._coming
        return None if coming is None else (coming.message, coming.first_s, coming.num_received)

    @property
    def announced_bytes(self) -> int:
        """Size of the payload on its way."""
        return self._coming.size if self._coming else 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory taken for the payload on its way."""
        return len(self._coming.buffer) if self._coming else 0

    def feed(self, data: bytes, now_s: float) -> Packet | None:
        """Returns the packet that this frame completes, if it does; heartbeats and refusals are packets too.

        Raises BadFrame: the peer is to be refused, and nothing more of it to be fed.
        """
        if len(data) > self.limits.max_frame_bytes:
            raise BadFrame(f"a frame may have {self.limits.max_frame_bytes:,} bytes, got {len(data):,}")
        if (part := chunk_in(data)) is not None:
            return self._add(part, now_s)
        content, rest = content_in(data)
        try:
            frame = pb.Frame.FromString(rest)
        except DecodeError:
            raise BadFrame("what came is not a frame of this protocol") from None
        content = frame.content or content
        kind = frame.WhichOneof("body")
        if kind is None:
            raise BadFrame("a frame without a message that this version knows")
        if kind in _NEVER_WITH_PAYLOAD and frame.HasField("payload"):
            raise BadFrame(f"a {kind} cannot announce a payload")
        if content and (kind in _TIMED or not frame.HasField("payload")):
            raise BadFrame(f"{kind} came with a payload that it cannot hold or has not announced")
        if kind in ("beat", "refusal"):
            return Packet(getattr(frame, kind), b"", now_s, now_s)
        if kind == "chunk":
            return self._add(frame.chunk.data, now_s)
        if self._coming:
            raise BadFrame(f"{kind} came before the payload of another message was whole")
        message = getattr(frame, kind)
        if not frame.HasField("payload"):
            return Packet(message, b"", now_s, now_s)
        self._announce(kind, message, frame.payload, now_s)
        return self._add(content, now_s, is_all=True) if content else None

    def _announce(self, kind: str, message: Message, payload: pb.Payload, now_s: float) -> None:
        if not 0 < payload.size <= self.limits.max_payload_bytes:
            most = self.limits.max_payload_bytes
            rule = f"between 1 and {most:,} bytes" if most else "no payload yet"
            raise BadFrame(f"{kind} may have {rule}, got {payload.size:,} bytes")
        if len(payload.digest) != DIGEST_BYTES and (payload.digest or kind in _KNOWN_BY_DIGEST):
            raise BadFrame(f"the digest of a payload has {DIGEST_BYTES} bytes, got {len(payload.digest)}")
        self._coming = _Coming(message, now_s, payload.size, payload.digest)

    def _add(self, data: bytes | memoryview, now_s: float, *, is_all: bool = False) -> Packet | None:
        coming = self._coming
        if coming is None:
            raise BadFrame("a chunk came that no message had announced")
        if not data:
            raise BadFrame("an empty chunk")
        end = coming.num_received + len(data)
        if end > coming.size:
            raise BadFrame(f"a payload of {coming.size:,} bytes was announced, got {end:,}")
        if is_all and end < coming.size:
            raise BadFrame(f"a payload of {coming.size:,} bytes was announced, got {end:,} and no chunks can follow")
        if coming.digest:
            coming.hasher.update(data)
        if len(data) == coming.size:
            return self._packet(coming, data, now_s)
        if not coming.buffer:
            coming.buffer = bytearray(coming.size)
        coming.buffer[coming.num_received : end] = data
        coming.num_received = end
        if end < coming.size:
            return None
        return self._packet(coming, memoryview(coming.buffer).toreadonly(), now_s)

    def _packet(self, coming: _Coming, payload: bytes | memoryview, now_s: float) -> Packet:
        self._coming = None
        if coming.digest and coming.hasher.digest()[:DIGEST_BYTES] != coming.digest:
            raise BadFrame("the payload is not the one whose digest was announced")
        return Packet(coming.message, payload, coming.first_s, now_s, coming.digest)


# Payloads are most of what travels, and protobuf copies their bytes several times; these do without. A frame that has
# nothing but a chunk is: tag of Frame.chunk, length, tag of Chunk.data, length, data. One with a whole payload begins
# with it: tag of Frame.content, length, data; protobuf takes fields in any order.
_CHUNK_TAG, _DATA_TAG, _CONTENT_TAG = b"\x1a", b"\x0a", b"\x92\x01"


def chunk_frame(data: bytes | memoryview) -> bytes:
    """Returns `Frame(chunk=Chunk(data=data))` as protobuf writes it."""
    head = _DATA_TAG + _varint(len(data))
    return b"".join([_CHUNK_TAG, _varint(len(head) + len(data)), head, data])


def chunk_in(frame: bytes) -> memoryview | None:
    """Returns the data of such a frame, not copied; None if it is another one, or written in another way."""
    if frame[:1] != _CHUNK_TAG:
        return None
    size, place = _varint_at(frame, 1)
    if place + size != len(frame) or frame[place : place + 1] != _DATA_TAG:
        return None
    size, place = _varint_at(frame, place + 1)
    return memoryview(frame)[place:] if place + size == len(frame) else None


def frame_with(content: bytes | memoryview, frame: bytes) -> bytes:
    """Returns the frame of a message that announces this payload, with the payload in it."""
    return b"".join([_CONTENT_TAG, _varint(len(content)), content, frame])


def content_in(frame: bytes) -> tuple[memoryview | None, bytes]:
    """Returns (the payload, not copied, the other fields) of such a frame; None if it is another one."""
    if frame[:2] != _CONTENT_TAG:
        return None, frame
    size, place = _varint_at(frame, 2)
    end = place + size
    return (memoryview(frame)[place:end], frame[end:]) if end <= len(frame) else (None, frame)


def _varint(number: int) -> bytes:
    """Encodes seven bits a byte, the lowest first; all but the last byte have the eighth bit."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _varint_at(data: bytes, place: int) -> tuple[int, int]:
    """Returns (the number, where it ends), for sizes that a frame can have."""
    number = 0
    for shift, digit in zip(range(0, 35, 7), data[place : place + 5], strict=False):
        number |= (digit & 0x7F) << shift
        place += 1
        if digit < 0x80:
            break
    return number, place


class Sealed:
    """A payload to be sent, perhaps to many peers: its digest is made once, and its chunks if it is small.

    Args:
      digest: if it is known.
    """

    def __init__(self, payload: bytes | memoryview, digest: bytes | None = None) -> None:
        self.data = memoryview(payload).cast("B") if len(payload) else memoryview(b"")
        self._digest = digest
        self._frames: dict[int, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self.data)

    @property
    def digest(self) -> bytes:
        self._digest = self._digest or digest_of(self.data)
        return self._digest

    def fits_into(self, chunk_bytes: int, message: Message, start: bytes) -> bool:
        """True if it can go within the frame `start` of its message."""
        return 0 < len(self) <= chunk_bytes - len(start) and _KIND_OF[type(message)] not in _TIMED

    def frame(self, part: slice) -> bytes:
        """Returns the frame of one chunk."""
        return chunk_frame(self.data[part])

    def frames(self, chunk_bytes: int) -> Iterable[bytes]:
        """Returns the frames of all chunks."""
        parts = (slice(start, start + chunk_bytes) for start in range(0, len(self), chunk_bytes))
        if len(self) > _KEPT_BYTES:
            return map(self.frame, parts)
        if chunk_bytes not in self._frames:
            self._frames[chunk_bytes] = [self.frame(part) for part in parts]
        return self._frames[chunk_bytes]


def frame_of(message: Message, payload: bytes | memoryview | Sealed = b"") -> pb.Frame:
    """Returns the frame that starts a message; its payload is to follow in chunks, or to be put into it."""
    frame, kind = pb.Frame(), _KIND_OF[type(message)]
    getattr(frame, kind).MergeFrom(message)
    if len(payload):
        sealed = payload if isinstance(payload, Sealed) else Sealed(payload)
        frame.payload.size = len(sealed)
        if kind in _KNOWN_BY_DIGEST:
            frame.payload.digest = sealed.digest
    return frame


_KIND_OF = {type(getattr(pb.Frame(), kind)): kind for kind in KINDS}
