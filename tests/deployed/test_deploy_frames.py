"""The frames of a link, without a link: order, sizes, digests, and whatever a stranger may send."""

import random

import pytest

from airprune.deployment.digests import digest_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport.frames import (
    Assembler,
    BadFrame,
    Limits,
    Packet,
    Sealed,
    chunk_frame,
    chunk_in,
    content_in,
    frame_of,
    frame_with,
)
from support.each import each

LIMITS = Limits(max_payload_bytes=10_000, max_frame_bytes=5_000)
PAYLOAD = random.Random(14).randbytes(9_000)


def chunk(data: bytes) -> pb.Frame:
    return pb.Frame(chunk=pb.Chunk(data=data))


def frames_of(message, payload: bytes, chunk_bytes: int = 2_000) -> list[bytes]:
    """As a peer writes them."""
    parts = [chunk(payload[i : i + chunk_bytes]) for i in range(0, len(payload), chunk_bytes)]
    return [frame.SerializeToString() for frame in (frame_of(message, payload), *parts)]


def fed(frames: list[bytes], limits: Limits = LIMITS) -> list[Packet]:
    assembler = Assembler(limits)
    return [packet for i, data in enumerate(frames) if (packet := assembler.feed(data, float(i)))]


def test_a_payload_is_put_together_around_heartbeats_and_tells_when_it_came():
    start, *chunks = frames_of(pb.Upload(run="r"), PAYLOAD)
    beat = pb.Frame(beat=pb.Beat(number=7)).SerializeToString()
    heartbeat, upload = fed([start, chunks[0], beat, *chunks[1:]])
    assert heartbeat.message == pb.Beat(number=7)
    assert upload.message == pb.Upload(run="r")
    assert upload.payload == PAYLOAD
    assert (upload.first_s, upload.last_s, upload.num_bytes) == (0.0, 6.0, 9_000)


@pytest.mark.parametrize("size", [1, 123, 124, 125, 126, 127, 128, 16_379, 16_383, 16_384, 200_000, 2**21])
def test_chunks_are_written_as_protobuf_does_and_read_as_it_would(size):
    data = random.Random(size).randbytes(size)
    frame = chunk_frame(memoryview(data))
    assert frame == chunk(data).SerializeToString()
    assert chunk_in(frame) == data


@pytest.mark.parametrize(
    "frame",
    [
        chunk(b"").SerializeToString(),
        chunk(b"abc").SerializeToString() * 2,  # protobuf takes the last
        chunk(b"abc").SerializeToString()[:-1],
        chunk(b"abc").SerializeToString() + b"x",
        b"\x1a\x80",
        b"\x1a",
        b"",
        pb.Frame(chunk=pb.Chunk(data=b"abc"), payload=pb.Payload(size=3)).SerializeToString(),
        b"\x1a\x06\x0a\x03abc\x10",  # a field that nobody knows
        b"\x1a" + b"\xff" * 9 + b"\x01" + b"\x0a\x01a",
    ],
)
def test_a_frame_that_is_not_plainly_a_chunk_is_left_to_protobuf(frame):
    assert chunk_in(frame) is None


def test_a_payload_in_one_chunk_is_not_copied():
    start, only = frames_of(pb.Upload(), PAYLOAD[:3_000], chunk_bytes=3_000)
    (packet,) = fed([start, only])
    assert isinstance(packet.payload, memoryview) and packet.payload.obj is only


def whole(message, payload: bytes) -> bytes:
    """In one frame."""
    return frame_with(payload, frame_of(message, payload).SerializeToString())


@pytest.mark.parametrize("size", [1, 127, 128, 16_384, 200_000])
def test_a_frame_with_its_payload_is_what_protobuf_reads(size):
    data = random.Random(size).randbytes(size)
    frame = whole(pb.Orders(run="r"), data)
    read = pb.Frame.FromString(frame)
    assert (read.content, read.orders, read.payload.size) == (data, pb.Orders(run="r"), size)
    content, rest = content_in(frame)
    assert content == data and pb.Frame.FromString(rest).orders == read.orders


@pytest.mark.parametrize("is_canonical", [False, True])
def test_a_payload_that_comes_with_its_message_is_a_packet_at_once(is_canonical):
    frame = whole(pb.Orders(run="r"), PAYLOAD[:3_000])
    if is_canonical:  # as another implementation would write it: fields in the order of their numbers
        frame = pb.Frame.FromString(frame).SerializeToString(deterministic=True)
    (packet,) = fed([frame])
    assert (packet.message, packet.payload, packet.digest) == (
        pb.Orders(run="r"),
        PAYLOAD[:3_000],
        digest_of(PAYLOAD[:3_000]),
    )
    assert packet.first_s == packet.last_s == 0.0
    assert is_canonical or packet.payload.obj is frame, "not copied"


def test_only_what_is_known_by_its_digest_needs_one():
    (packet,) = fed([whole(pb.EdgeRound(run="r"), b"abcde")])
    assert (packet.payload, packet.digest) == (b"abcde", b"")
    for kind in (pb.Orders(), pb.Upload()):
        assert frame_of(kind, b"abcde").payload.digest == digest_of(b"abcde")


def test_what_is_sent_to_many_is_framed_once_unless_it_is_large():
    small, large = Sealed(PAYLOAD), Sealed(bytes(5_000_000))
    assert small.frames(2_000) is small.frames(2_000)
    assert len(list(small.frames(2_000))) == 5 and len(list(small.frames(10_000))) == 1
    assert iter(large.frames(65_536)) is not large.frames(65_536)  # made one by one
    assert b"".join(bytes(chunk_in(frame)) for frame in large.frames(65_536)) == bytes(5_000_000)


UPLOAD = frames_of(pb.Upload(), PAYLOAD)
ANNOUNCED = pb.Payload(size=5, digest=digest_of(b"abcde"))
HELLO = pb.Frame(hello=pb.Hello(protocol=1))


@each(
    ("frames", "sentence"),
    [
        ([b"\xff\xff"], "not a frame"),
        ([b""], "without a message"),
        ([pb.Frame(payload=ANNOUNCED)], "without a message"),
        ([pb.Frame(payload=ANNOUNCED, beat=pb.Beat())], "a beat cannot announce"),
        ([pb.Frame(payload=ANNOUNCED, refusal=pb.Refusal())], "a refusal cannot announce"),
        ([chunk(b"a")], "no message had announced"),
        ([*UPLOAD, chunk(b"a")], "no message had announced"),
        ([UPLOAD[0], chunk(b"")], "empty chunk"),
        ([UPLOAD[0], HELLO], "hello came before the payload"),
        ([UPLOAD[0], UPLOAD[0]], "upload came before the payload"),
        ([pb.Frame(payload=ANNOUNCED, upload=pb.Upload()), chunk(b"abcdef")], "5 bytes was announced, got 6"),
        ([pb.Frame(payload=ANNOUNCED, upload=pb.Upload()), chunk(b"abcdx")], "digest"),
        ([pb.Frame(payload=pb.Payload(size=5, digest=b"short"), upload=pb.Upload())], "16 bytes, got 5"),
        ([pb.Frame(payload=pb.Payload(size=5, digest=b"short"), edge_round=pb.EdgeRound())], "16 bytes, got 5"),
        ([pb.Frame(payload=pb.Payload(size=5), orders=pb.Orders())], "16 bytes, got 0"),
        ([pb.Frame(orders=pb.Orders(), content=b"abcde")], "cannot hold or has not announced"),
        ([pb.Frame(beat=pb.Beat(), content=b"abcde")], "cannot hold or has not announced"),
        ([pb.Frame(payload=ANNOUNCED, upload=pb.Upload(), content=b"abcde")], "cannot hold or has not announced"),
        ([pb.Frame(payload=ANNOUNCED, orders=pb.Orders(), content=b"abcd")], "got 4 and no chunks can follow"),
        ([pb.Frame(payload=ANNOUNCED, orders=pb.Orders(), content=b"abcdef")], "5 bytes was announced, got 6"),
        ([pb.Frame(payload=ANNOUNCED, orders=pb.Orders(), content=b"abcdx")], "digest"),
        ([UPLOAD[0], whole(pb.Orders(), b"abcde")], "orders came before the payload"),
        ([pb.Frame(payload=pb.Payload(size=0, digest=bytes(16)), upload=pb.Upload())], "between 1 and 10,000"),
        ([pb.Frame(payload=pb.Payload(size=2**63, digest=bytes(16)), upload=pb.Upload())], "between 1 and 10,000"),
        ([pb.Frame(hello=pb.Hello(version="v" * 5_000))], "5,000 bytes"),
    ],
)
def test_what_breaks_the_order_or_a_limit_is_refused_with_its_own_sentence(frames, sentence):
    data = [frame if isinstance(frame, bytes) else frame.SerializeToString() for frame in frames]
    assembler = Assembler(LIMITS)
    for frame in data[:-1]:
        assembler.feed(frame, 0.0)
    with pytest.raises(BadFrame, match=sentence):
        assembler.feed(data[-1], 0.0)


def test_no_payload_is_taken_before_the_limits_are_raised_and_no_memory_before_its_first_chunk():
    assembler = Assembler(Limits())
    with pytest.raises(BadFrame, match="no payload yet, got 9,000"):
        assembler.feed(UPLOAD[0], 0.0)
    assembler.limits = LIMITS
    assembler.feed(UPLOAD[0], 0.0)
    assert (assembler.announced_bytes, assembler.buffered_bytes) == (9_000, 0)
    assembler.feed(UPLOAD[1], 0.0)
    assert assembler.buffered_bytes == 9_000


def mutated(conversation: list[bytes], rng: random.Random) -> list[bytes]:
    """One to three things wrong: bytes, lengths, order, repetition, or frames of another's making."""
    frames = list(conversation)
    for _ in range(rng.randint(1, 3)):
        i, j = rng.randrange(len(frames)), rng.randrange(len(frames))
        data = bytearray(frames[i])
        match rng.randrange(7):
            case 0:
                data[rng.randrange(len(data) or 1) : 1] = rng.randbytes(1)
            case 1 if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 2:
                del data[rng.randrange(len(data) + 1) :]
            case 3:
                data += rng.randbytes(rng.randint(1, 40))
            case 4:
                frames[i], frames[j] = frames[j], frames[i]
                continue
            case 5:
                frames.insert(j, bytes(data))
                continue
            case _:
                size = rng.choice([0, 1, 8_999, 9_001, 10_001, 2**32, 2**64 - 1])
                lie = pb.Frame(payload=pb.Payload(size=size, digest=rng.randbytes(16)), orders=pb.Orders())
                data = bytearray(lie.SerializeToString())
        frames[i] = bytes(data)
    return frames


def assert_survives(num_frames: int) -> None:
    rng = random.Random(2_024)
    beat = pb.Frame(beat=pb.Beat(number=1)).SerializeToString()
    honest = [
        HELLO.SerializeToString(),
        beat,
        *UPLOAD[:3],
        beat,
        *UPLOAD[3:],
        whole(pb.Orders(), PAYLOAD[:4_000]),
        frame_of(pb.Goodbye()).SerializeToString(),
    ]
    num_fed = num_refused = num_payloads = 0
    while num_fed < num_frames:
        assembler = Assembler(LIMITS)
        for data in mutated(honest, rng):
            num_fed += 1
            try:
                packet = assembler.feed(data, 0.0)
            except BadFrame:
                num_refused += 1
                break
            assert assembler.buffered_bytes <= LIMITS.max_payload_bytes
            if packet and packet.num_bytes:
                num_payloads += 1
                assert packet.payload in (PAYLOAD, PAYLOAD[:4_000])
    assert min(num_refused, num_payloads) > num_frames / 100, "the mutations should reach both ends"


def test_mutated_frames_are_refused_or_harmless_and_memory_stays_bounded():
    assert_survives(5_000)


@pytest.mark.slow
def test_100_000_mutated_frames_are_refused_or_harmless():
    assert_survives(100_000)
