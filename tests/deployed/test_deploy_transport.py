"""Links between real peers on loopback, well-behaved and not."""

import asyncio
import contextlib
import random
import signal
import socket
import statistics
import time
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from airprune.deployment.digests import digest_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Limits, Link, LinkLost, Refused, Remote, Server, dial
from airprune.errors import InvalidValue
from support.certificates import SERVER_NAME, channel_credentials, identity, server_credentials
from support.linked import QUICK, listen_only, raw_child, raw_parent
from support.processes import kill, start_module, wait_for

PAYLOAD = random.Random(14).randbytes(2_000_000)
LARGE = replace(QUICK, dead_after_s=3.0)
HELLO = pb.Frame(hello=pb.Hello(protocol=1))


def run(work) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


@contextlib.asynccontextmanager
async def linked(limits: Limits = LARGE, *, server_credentials=None, child_credentials=None):
    """Both ends of one link: (child's, parent's)."""
    arrived: asyncio.Queue[Link] = asyncio.Queue()
    over = asyncio.Event()

    async def own(link: Link) -> None:
        arrived.put_nowait(link)
        await over.wait()

    name = SERVER_NAME if server_credentials else ""
    async with Server("127.0.0.1:0", credentials=server_credentials, on_link=own, limits=limits) as server:
        address = f"127.0.0.1:{server.port}"
        child = await dial(address, credentials=child_credentials, server_name=name, limits=limits)
        yield child, await arrived.get()
        await child.close()
        over.set()


@contextlib.asynccontextmanager
async def serving(limits: Limits = QUICK):
    """(port, queue of what ended each link); links are read until they end."""
    ends: asyncio.Queue[LinkLost] = asyncio.Queue()

    async def own(link: Link) -> None:
        await listen_only(link)
        ends.put_nowait(await link.wait_lost())

    async with Server("127.0.0.1:0", credentials=None, on_link=own, limits=limits) as server:
        yield server.port, ends


def test_payloads_arrive_whole_in_both_directions_over_mutual_tls():
    async def work():
        authority = identity("authority.test")
        child_id = identity("child.test", authority=authority)
        parent_id = identity(SERVER_NAME, authority=authority)
        credentials = {
            "server_credentials": server_credentials(parent_id, authority),
            "child_credentials": channel_credentials(authority, child_id),
        }
        async with linked(**credentials) as (child, parent):
            assert parent.peer.certificate_pem == child_id.certificate_pem
            for one, other in ((child, parent), (parent, child)):
                sent = asyncio.create_task(one.send(pb.Upload(run="r"), PAYLOAD))
                packet = await other.receive()
                assert await sent > 0
                assert packet.message == pb.Upload(run="r")
                assert packet.payload == PAYLOAD
                assert packet.first_s < packet.last_s
            assert 0 < child.rtt_s < 1

    run(work())


def test_wrong_certificates_are_refused_at_either_side_with_a_sentence_and_others_stay():
    async def work():
        authority, stranger = identity("authority.test"), identity("stranger.test")
        parent_id = identity(SERVER_NAME, authority=authority)
        credentials = server_credentials(parent_id, authority)
        async with Server("127.0.0.1:0", credentials=credentials, on_link=listen_only, limits=QUICK) as server:

            async def call(credentials, name=SERVER_NAME):
                limits = replace(QUICK, dead_after_s=3.0)
                return await dial(f"127.0.0.1:{server.port}", credentials=credentials, server_name=name, limits=limits)

            good = await call(channel_credentials(authority, identity("child.test", authority=authority)))
            child, other = identity("child.test", authority=authority), identity("child.test", authority=stranger)
            for credentials, name, sentence in [
                (channel_credentials(authority), SERVER_NAME, "may not accept this node's certificate"),
                (channel_credentials(authority, other), SERVER_NAME, "may not accept this node's certificate"),
                (channel_credentials(stranger, other), SERVER_NAME, "of another authority"),
                (channel_credentials(authority, child), "else.test", "its certificate is not for else.test"),
            ]:
                with pytest.raises(LinkLost, match=sentence):
                    await call(credentials, name)
            assert not good.is_lost
            await good.close()

    run(work())


def test_heartbeats_pass_between_the_chunks_of_a_slow_payload():
    async def work():
        async with raw_parent() as (port, frames):
            link = await dial(f"127.0.0.1:{port}", credentials=None, limits=LARGE)
            await link.send(pb.Upload(), PAYLOAD[:100_000], rate_bps=1e6)
            await link.close()
        kinds = [frame.WhichOneof("body") for frame in frames]
        during = kinds[kinds.index("upload") : len(kinds) - kinds[::-1].index("chunk")]
        assert during.count("beat") >= 4  # 0.84 s with a beat every 0.1 s

    run(work())


def test_heartbeats_pass_between_the_chunks_of_a_payload_that_is_not_paced():
    """The stream is slow, as a full one is: what else is to be said does not wait for the whole payload."""

    async def work():
        async with raw_parent() as (port, frames):
            link = await dial(f"127.0.0.1:{port}", credentials=None, limits=LARGE)
            write = link._stream.write

            async def write_slowly(data: bytes) -> None:
                await asyncio.sleep(0.1)
                await write(data)

            link._stream.write = write_slowly
            await link.send(pb.Upload(), PAYLOAD[: 8 * LARGE.chunk_bytes])
            await link.close()
        kinds = [frame.WhichOneof("body") for frame in frames]
        during = kinds[kinds.index("upload") : len(kinds) - kinds[::-1].index("chunk")]
        assert during.count("chunk") == 8 and during.count("beat") >= 3

    run(work())


def test_chunks_grow_on_a_link_that_is_fast_and_shrink_when_it_is_not():
    async def work():
        async with linked() as (child, _):
            limits, size = child.limits, 300_000
            assert child._chunk_bytes == limits.chunk_bytes
            for took_s, expected in [(1e-3, limits.large_chunk_bytes), (0.2, 150_000), (3.0, limits.chunk_bytes)]:
                assert child._fitting_chunk_bytes(size, took_s) == expected
            await child.send(pb.Upload(), PAYLOAD[: limits.chunk_bytes])  # a short one says nothing
            assert child._chunk_bytes == limits.chunk_bytes

    run(work())


def test_a_payload_is_paced_to_its_share_of_the_link():
    async def work():
        size, rate_bps = 300_000, 20e6
        planned_s = 8 * size / rate_bps
        ratios = []
        async with linked() as (child, parent):
            for _ in range(5):
                sent = asyncio.create_task(child.send(pb.Upload(), PAYLOAD[:size], rate_bps=rate_bps))
                packet = await parent.receive()
                assert await sent >= 0.99 * planned_s  # never faster, but for the last piece
                ratios.append((packet.last_s - packet.first_s) / planned_s)
        # A busy machine reads late: the start of one payload, or the end of most.
        assert statistics.median(ratios) >= 0.95
        assert min(ratios) <= 1.05

    run(work())


@contextlib.asynccontextmanager
async def link_to_process(role: str, folder: Path):
    """(a process that dials or serves, this side's link to it)."""
    links: asyncio.Queue[Link] = asyncio.Queue()

    async def own(link: Link) -> None:
        links.put_nowait(link)
        await link.wait_lost()

    async with Server("127.0.0.1:0", credentials=None, on_link=own, limits=QUICK) as server:
        port_file = folder / "port"
        process = start_module("support.linked", role, server.port if role == "dial" else port_file)
        try:
            if role == "serve":
                await asyncio.to_thread(wait_for, port_file.exists, "the parent should listen")
                links.put_nowait(await dial(f"127.0.0.1:{port_file.read_text()}", credentials=None, limits=QUICK))
            link = await links.get()
            yield process, link
            await link.close()
        finally:
            kill(process)


@pytest.mark.parametrize("role", ["dial", "serve"])
@pytest.mark.parametrize(("how", "sentence"), [(signal.SIGSTOP, "silent for"), (signal.SIGKILL, "")])
def test_a_stopped_peer_is_noticed_by_its_silence_and_a_killed_one_at_once(role, how, sentence, tmp_path):
    async def work():
        async with link_to_process(role, tmp_path) as (process, link):
            sending = asyncio.create_task(link.send(pb.Upload(), PAYLOAD, rate_bps=5e6))  # for 3.3 s
            await asyncio.sleep(1.5 * QUICK.dead_after_s)
            assert not link.is_lost, "heartbeats should keep it alive"
            process.send_signal(how)
            start_s = time.monotonic()
            assert sentence in str(await link.wait_lost())
            noticed_s = time.monotonic() - start_s
            with pytest.raises(LinkLost):
                await sending
        if how == signal.SIGSTOP:
            assert QUICK.dead_after_s - QUICK.beat_s <= noticed_s <= QUICK.dead_after_s + 3
        else:
            assert noticed_s < QUICK.dead_after_s

    run(work())


ANNOUNCED = pb.Payload(size=5, digest=digest_of(b"abcde"))


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        ([pb.Frame(upload=pb.Upload(), payload=pb.Payload(size=10**15, digest=bytes(16)))], "1,000,000,000,000,000"),
        ([pb.Frame(upload=pb.Upload(), payload=ANNOUNCED), pb.Frame(chunk=pb.Chunk(data=b"abcdx"))], "digest"),
        ([pb.Frame(upload=pb.Upload(), payload=ANNOUNCED), HELLO], "before the payload"),
        ([], "no hello within 0.3 s"),
    ],
    ids=["oversize", "digest", "order", "late hello"],
)
def test_a_peer_that_breaks_the_protocol_is_told_why_and_others_stay(frames, sentence):
    async def work():
        async with serving(replace(QUICK, hello_within_s=0.3, dead_after_s=3.0)) as (port, ends):
            good = await dial(f"127.0.0.1:{port}", credentials=None, limits=LARGE)
            await good.send(pb.Hello())
            async with raw_child(port) as bad:
                await bad.write(*([HELLO] if frames else []), *frames)
                assert sentence in await bad.refusal()
            assert sentence in str(await ends.get())
            await asyncio.sleep(0.3)
            assert not good.is_lost
            await good.close()

    run(work())


class HangsUp:
    """A peer that ends the stream as soon as it has been told a refusal."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def read(self) -> bytes | None:
        await self.told.wait()
        return None

    async def write(self, data: bytes) -> None:
        if pb.Frame.FromString(data).HasField("refusal"):
            self.told.set()
            await asyncio.sleep(0.05)  # until it has hung up

    async def finish(self) -> None: ...

    def cut(self) -> None: ...

    async def release(self) -> None: ...


def test_the_reason_of_a_refusal_stays_though_the_peer_hangs_up_before_it_is_written():
    async def work():
        link = Link(HangsUp(), Remote("127.0.0.1:1"), QUICK, awaits_hello=False)
        await link.refuse("you are not expected.")
        assert "was refused: you are not expected." in str(await link.wait_lost())

    run(work())


def test_a_payload_goes_with_its_message_if_it_would_be_one_chunk_unless_it_is_timed():
    async def work():
        async with linked() as (child, parent):
            for message, size, is_at_once in [
                (pb.Orders(), 60_000, True),
                (pb.EdgeReport(), 60_000, True),
                (pb.Upload(), 60_000, False),
                (pb.Measured(), 60_000, False),
                (pb.Orders(), QUICK.chunk_bytes, False),  # with its message it is more
                (pb.Orders(), 200_000, False),
            ]:
                await parent.send(message, PAYLOAD[:size])
                packet = await child.receive()
                assert packet.payload == PAYLOAD[:size]
                assert (packet.first_s == packet.last_s) == is_at_once

    run(work())


def test_compressed_frames_are_refused_before_they_grow():
    """A few bytes of gzip could become any number."""

    async def scenario() -> str:
        heard = []

        async def listen(link: Link) -> None:
            heard.append(await link.receive())

        async with Server("127.0.0.1:0", credentials=None, on_link=listen) as server:
            packed = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", compression=grpc.Compression.Gzip)
            async with packed as channel:
                call = channel.stream_stream("/airprune.v1.Airprune/Link")()
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call.write(pb.Frame(hello=pb.Hello(version="0" * 400_000)).SerializeToString())
                    await asyncio.wait_for(call.read(), 20)
        assert not heard
        return str(refused.value.details())

    assert "is disabled" in asyncio.run(scenario())


def test_a_connection_that_says_nothing_at_all_is_closed():
    async def work():
        async with serving(replace(QUICK, hello_within_s=0.3)) as (port, _):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as silent:

                def read_to_the_end() -> None:
                    with contextlib.suppress(ConnectionResetError):
                        while silent.recv(1000):
                            pass

                await asyncio.wait_for(asyncio.to_thread(read_to_the_end), 3)

    run(work())


def test_a_flood_waits_for_its_reader_and_then_arrives_in_order():
    async def work():
        filler, num_messages = "x" * 20_000, 1_000
        async with linked(replace(QUICK, max_unread=8)) as (child, parent):
            sent = 0

            async def flood() -> None:
                nonlocal sent
                for sent in range(num_messages):
                    await child.send(pb.Receipt(edge_round=sent, reason=filler))

            task = asyncio.create_task(flood())
            await asyncio.sleep(2 * QUICK.dead_after_s)
            assert sent < num_messages / 2, "the sender should have to wait"
            assert not (child.is_lost or parent.is_lost), "waiting is not silence"
            assert [(await parent.receive()).message.edge_round for _ in range(num_messages)] == list(
                range(num_messages)
            )
            await task

    run(work())


def test_a_link_holds_no_more_payload_than_its_limit_and_beats_while_its_owner_is_busy():
    async def work():
        async with linked(replace(QUICK, max_payload_bytes=100_000)) as (child, parent):
            sends = [asyncio.create_task(child.send(pb.Upload(edge_round=i), PAYLOAD[:60_000])) for i in range(3)]
            await asyncio.sleep(2 * QUICK.dead_after_s)
            assert not (child.is_lost or parent.is_lost)
            packets = [await parent.receive() for _ in sends]
            assert [packet.message.edge_round for packet in packets] == [0, 1, 2]
            assert all(packet.payload == PAYLOAD[:60_000] for packet in packets)
            await asyncio.gather(*sends)

    run(work())


def test_a_refusal_reaches_the_peer_in_either_direction_even_in_the_middle_of_a_payload():
    async def work():
        async with linked() as (child, parent):
            sending = asyncio.create_task(child.send(pb.Upload(), PAYLOAD, rate_bps=1e6))
            await asyncio.sleep(0.05)
            await parent.refuse("Revoked.", is_final=True)
            with pytest.raises(Refused, match="Revoked") as told:
                await sending
            assert told.value.is_final
        async with linked() as (child, parent):
            sending = asyncio.create_task(child.send(pb.Upload(), PAYLOAD, rate_bps=1e6))
            await asyncio.sleep(0.05)
            await child.refuse("Another model.")
            with pytest.raises(Refused, match="Another model") as told:
                await parent.receive()
            assert not told.value.is_final
            with pytest.raises(LinkLost):
                await sending

    run(work())


def test_giving_up_a_payload_half_way_ends_the_link_and_a_wrong_rate_does_not():
    async def work():
        async with linked() as (child, parent):
            with pytest.raises(InvalidValue, match="rate_bps must be > 0, got 0"):
                await child.send(pb.Upload(), PAYLOAD, rate_bps=0.0)
            await child.send(pb.Hello())
            assert (await parent.receive()).message == pb.Hello()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(child.send(pb.Upload(), PAYLOAD, rate_bps=1e6), 0.1)
            with pytest.raises(LinkLost, match="given up half-way"):
                await child.receive()
            with pytest.raises(LinkLost, match="closed by the peer"):
                await parent.receive()

    run(work())


def test_what_was_sent_before_closing_still_arrives():
    async def work():
        for child_closes in (True, False):
            async with linked() as (child, parent):
                one, other = (child, parent) if child_closes else (parent, child)
                await one.send(pb.Goodbye(reason="done"), PAYLOAD[:200_000])
                await one.close()
                assert (await other.receive()).message.reason == "done"
                with pytest.raises(LinkLost, match="closed by the peer"):
                    await other.receive()

    run(work())


def test_dialling_where_nobody_answers_does_not_take_long():
    async def work():
        limits = replace(QUICK, hello_within_s=0.3)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            start_s = time.monotonic()
            with pytest.raises(LinkLost, match=r"did not answer within 0\.3 s"):
                await dial(f"127.0.0.1:{port}", credentials=None, limits=limits)
        with pytest.raises(LinkLost, match="No process listens"):
            await dial(f"127.0.0.1:{port}", credentials=None, limits=limits)
        assert time.monotonic() - start_s < 2

    run(work())


def test_more_links_than_allowed_are_refused():
    async def work():
        async with serving(replace(QUICK, max_links=1)) as (port, _):
            first = await dial(f"127.0.0.1:{port}", credentials=None, limits=QUICK)
            await first.send(pb.Hello())
            with pytest.raises(Refused, match="1 links already"):
                second = await dial(f"127.0.0.1:{port}", credentials=None, limits=QUICK)
                await second.receive()
            assert not first.is_lost
            await first.close()

    run(work())


@pytest.mark.parametrize("address", ["0.0.0.0:0", "localhost:5000", "192.168.1.10:5000", "[::1]:5000"])
def test_without_credentials_only_loopback_is_spoken_to(address):
    with pytest.raises(InvalidValue, match=r"127\.0\.0\.1 only"):
        Server(address, credentials=None, on_link=listen_only)
    with pytest.raises(InvalidValue, match=r"127\.0\.0\.1 only"):
        run(dial(address, credentials=None))


def test_nothing_is_left_of_links_that_have_ended():
    def num_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def one_link():
        async with linked() as (child, _):
            await child.send(pb.Hello())

    async def work():
        tasks = asyncio.all_tasks()
        await one_link()  # gRPC opens some files of its own, once
        await asyncio.sleep(0.2)
        before = num_open()
        for _ in range(5):
            await one_link()
        assert asyncio.all_tasks() == tasks
        await asyncio.to_thread(wait_for, lambda: num_open() <= before, "connections should be closed", 2)

    run(work())


def test_a_server_that_is_interrupted_in_its_farewells_stops_all_the_same():
    """Else it would go on listening after its owner, and complain when the loop is gone."""

    async def work():
        async def listen(server: Server) -> None:
            async with server:
                ready.set()
                await asyncio.sleep(60)

        ready = asyncio.Event()
        server = Server("127.0.0.1:0", credentials=None, on_link=listen_only, limits=QUICK)
        task = asyncio.create_task(listen(server))
        await ready.wait()
        stopped, stop = [], server._server.stop

        async def stop_slowly(grace_s: float | None) -> None:
            stopped.append(grace_s)
            await asyncio.sleep(0.0 if grace_s is None else 60.0)
            await stop(grace_s)

        server._server.stop = stop_slowly
        for _ in range(2):  # at work, then in its farewells
            await asyncio.sleep(0.05)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and stopped == [1.0, None]
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", server.port))

    run(work())
