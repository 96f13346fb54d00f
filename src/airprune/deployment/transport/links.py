"""A link as its owner sees it: whole messages in order, until one side ends it or falls silent.

A peer is alive while something of it is received; keep-alive of the layers below answers for a process that is stopped.
Heartbeats therefore travel on the stream itself, between the chunks of payloads, and are read whatever the owner does.
Silence is counted only while this side listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import grpc
from google.protobuf.message import Message

from airprune.deployment.pacing import Pacer, chunks
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport.frames import Assembler, BadFrame, Limits, Packet, Sealed, frame_of, frame_with
from airprune.errors import WorkFailed
from airprune.text import plain

# What gRPC raises when a stream has ended, differently at its two sides.
STREAM_ERRORS = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
# For last words to leave, and for the peer's to be read.
FAREWELL_S = 1.0
# What a chunk may take on a link that has shown to be fast; heartbeats wait behind it.
_CHUNK_S = 0.1
# Of a refusal's words.
MAX_REASON = 1_000
# The least of so many round trips is the link's; more would be slow to notice another route.
_NUM_RTT = 16


class LinkLost(WorkFailed):
    """The link has ended; the sentence says why."""


class Refused(LinkLost):
    """The peer refused this side; `is_final`: trying again is of no use."""

    def __init__(self, sentence: str, *, is_final: bool) -> None:
        super().__init__(sentence)
        self.is_final = is_final


@dataclass(frozen=True)
class Remote:
    """Identifies the other end as far as the connection shows it; `certificate_pem` is the child's, at its parent."""

    address: str
    certificate_pem: bytes = b""


class Stream(Protocol):
    """One side of a gRPC stream of bytes."""

    async def read(self) -> bytes | None:
        """Returns the next frame; None: the peer has ended the stream."""

    async def write(self, data: bytes) -> None: ...

    async def finish(self) -> None:
        """Ends the stream after what was written, and waits until the peer has read it where that is known."""

    def cut(self) -> None:
        """Ends it now, if it has not ended yet."""

    async def release(self) -> None:
        """Gives back what it holds."""


class Link:
    """Made by `dial` and by a `Server`; within a running event loop.

    Attributes:
      peer: address and certificate.
      name: of the peer in sentences; its owner may set it when it knows better.
      broken_rule: how the peer broke the protocol; empty if it has not.
    """

    def __init__(self, stream: Stream, peer: Remote, limits: Limits, *, awaits_hello: bool) -> None:
        self.peer = peer
        self.name = peer.address
        self._stream = stream
        self._assembler = Assembler(limits)
        self._lost: LinkLost | None = None
        self._ending: LinkLost | None = None
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()

        self._unread: deque[Packet] = deque()
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()

        self._sending = asyncio.Lock()
        self._chunk_bytes = limits.chunk_bytes
        self._outbox: asyncio.Queue[tuple[Iterable[bytes], asyncio.Future[None]]] = asyncio.Queue()
        self._unwritten: set[asyncio.Future[None]] = set()

        self._heard_s = time.monotonic()
        self._is_listening = True
        self._rtts_s: deque[float] = deque(maxlen=_NUM_RTT)
        self._rtt_known = asyncio.Event()
        self._beat_number = 0
        self._beat_sent_s = 0.0
        self._beat: asyncio.Future[None] | None = None
        self._answer: asyncio.Future[None] | None = None

        self._second, self._small_frames = 0, 0
        self.broken_rule = ""

        self._farewell: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reader = asyncio.create_task(self._read())
        self._writer = asyncio.create_task(self._write())
        self._send_beat()
        self._watch(self._loop.time())
        if awaits_hello:
            self._call_at("hello", self._loop.time() + limits.hello_within_s, self._refuse_late_hello)

    @property
    def limits(self) -> Limits:
        return self._assembler.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._assembler.limits = limits

    @property
    def rtt_s(self) -> float:
        """Least time of the last heartbeats, since one that waits behind a chunk takes longer; nan before the first."""
        return min(self._rtts_s, default=math.nan)

    @property
    def coming(self) -> tuple[Message, float, int] | None:
        """Message, arrival time and bytes so far of the payload on its way; None if there is none."""
        return self._assembler.coming

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    async def wait_lost(self) -> LinkLost:
        """Waits until the link has ended and returns why."""
        await self._ended.wait()
        assert self._lost is not None
        return self._lost

    async def wait_rtt(self) -> float:
        """Waits until the peer has answered a heartbeat and returns the round-trip time."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._rtt_known, self._ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._raise_if_lost()
        return self.rtt_s

    async def send(
        self, message: Message, payload: bytes | memoryview | Sealed = b"", *, rate_bps: float | None = None
    ) -> float:
        """Sends one message and its payload, at most `rate_bps` of payload; seconds that it took.

        One message at a time; who comes meanwhile waits. Giving up in the middle of a payload ends the link. Who sends
        one payload to many peers seals it before.
        """
        sealed = payload if isinstance(payload, Sealed) else Sealed(payload)
        start = frame_of(message, sealed).SerializeToString()
        if len(start) > self.limits.max_frame_bytes:
            kind, most = message.DESCRIPTOR.name, self.limits.max_frame_bytes
            raise WorkFailed(f"{kind} must fit into Limits.max_frame_bytes = {most:,}, got {len(start):,} bytes.")
        async with self._sending:
            start_s = time.monotonic()
            try:
                if rate_bps is not None:
                    await self._send_paced(start, sealed, rate_bps)
                elif sealed.fits_into(self._chunk_bytes, message, start):
                    await self._post([frame_with(sealed.data, start)])
                else:
                    await self._post(itertools.chain([start], sealed.frames(self._chunk_bytes)))
            except asyncio.CancelledError:
                if len(sealed):
                    self.lose("a payload was given up half-way")
                raise
            took_s = time.monotonic() - start_s
            if rate_bps is None and len(sealed) > self.limits.chunk_bytes:
                self._chunk_bytes = self._fitting_chunk_bytes(len(sealed), took_s)
            return took_s

    async def _send_paced(self, start: bytes, sealed: Sealed, rate_bps: float) -> None:
        pacer = Pacer(rate_bps)
        await self._post([start])
        for part in chunks(len(sealed), rate_bps, largest=self.limits.chunk_bytes):
            if wait_s := pacer.delay_s(part.stop - part.start):
                await asyncio.sleep(wait_s)
            await self._post([sealed.frame(part)])

    def _fitting_chunk_bytes(self, num_bytes: int, took_s: float) -> int:
        """Returns the bytes that pass in a moment at the rate of the last payload: few frames where the link is fast.

        Short payloads, which buffers on the way may have swallowed, say nothing about that.
        """
        limits = self.limits
        return int(min(max(_CHUNK_S * num_bytes / max(took_s, 1e-6), limits.chunk_bytes), limits.large_chunk_bytes))

    async def receive(self) -> Packet:
        """Returns the next whole message; raises LinkLost when there will be none."""
        while not self._unread:
            self._raise_if_lost()
            self._arrived.clear()
            await self._arrived.wait()
        self._taken.set()
        return self._unread.popleft()

    async def refuse(self, reason: str, *, is_final: bool = False) -> None:
        """Sends the peer a sentence and ends the link."""
        await self._end(LinkLost(f"{self.name} was refused: {reason}"), pb.Refusal(reason=reason, is_final=is_final))

    async def close(self) -> None:
        """Ends the link after what was sent."""
        await self._end(LinkLost(f"The link to {self.name} was closed here."))

    async def _end(self, why: LinkLost, last_words: Message | None = None) -> None:
        self._ending = self._ending or why  # before the peer can hang up because of it
        try:
            if self._lost is None:
                with contextlib.suppress(TimeoutError, LinkLost):
                    async with asyncio.timeout(FAREWELL_S):
                        if last_words is not None:
                            await self._post([frame_of(last_words).SerializeToString()])
                            if asyncio.current_task() is not self._reader:
                                # Who has read them hangs up. A peer that is writing when the stream ends would not.
                                await asyncio.wait([self._reader])
                        await self._stream.finish()
        finally:
            self._lose(why)
            await self._stream.release()

    def lose(self, why: str) -> None:
        """Ends the link here, e.g. because the connection below has ended."""
        self._lose(LinkLost(f"The link to {self.name} is lost: {why}."))

    # Writing: one task owns the stream's writing side; at most a message, a heartbeat, an answer and a refusal wait.

    def _put(self, frames: Iterable[bytes]) -> asyncio.Future[None]:
        written = self._loop.create_future()
        self._unwritten.add(written)
        written.add_done_callback(self._unwritten.discard)
        self._outbox.put_nowait((frames, written))
        return written

    async def _post(self, frames: Iterable[bytes]) -> None:
        """Waits until the stream has taken them, which is later if the peer does not read."""
        self._raise_if_lost()
        await self._put(frames)

    async def _write(self) -> None:
        try:
            while True:
                await self._write_next(await self._outbox.get())
        except STREAM_ERRORS:
            # The peer's last words may say more than the failed write does.
            await asyncio.wait([self._reader], timeout=FAREWELL_S)
            self.lose("closed by the peer")

    async def _write_next(self, item: tuple[Iterable[bytes], asyncio.Future[None]]) -> None:
        """Writes a message, and between its frames what else waits: heartbeats, as there is one message at a time."""
        frames, written = item
        for frame in frames:
            await self._write_frame(frame)
            while not self._outbox.empty():
                await self._write_next(self._outbox.get_nowait())
        if not written.done():
            written.set_result(None)

    async def _write_frame(self, frame: bytes) -> None:
        """Writes a frame; gives up a peer whose heartbeats come while it reads nothing, which would block the owner."""
        try:
            async with asyncio.timeout(self.limits.unread_within_s):
                await self._stream.write(frame)
        except TimeoutError:
            self.lose(f"it has read nothing for {self.limits.unread_within_s:g} s")
            raise asyncio.CancelledError from None

    # Reading: goes on while the owner is busy, until too much is unread.

    async def _read(self) -> None:
        try:
            while True:
                await self._wait_for_room()
                data = await self._stream.read()
                if data is None:
                    return self.lose("closed by the peer")
                self._heard_s = time.monotonic()
                packet = self._assembler.feed(data, self._heard_s)
                await self._slow_down(len(data))
                if packet is not None:
                    self._take(packet)
        except BadFrame as error:
            self.broken_rule = f"{error}."
            await self.refuse(self.broken_rule)
        except STREAM_ERRORS as error:
            self.lose(_words_of(error))

    async def _slow_down(self, num_bytes: int) -> None:
        """Lets a peer that sends many small frames wait, so that it does not take the time of others."""
        if num_bytes >= self.limits.small_frame_bytes:
            return
        if self._second != (second := int(self._heard_s)):
            self._second, self._small_frames = second, 0
        self._small_frames += 1
        if self._small_frames > self.limits.small_frames_per_s:
            await asyncio.sleep(max(0.0, second + 1 - time.monotonic()))

    def _take(self, packet: Packet) -> None:
        message = packet.message
        if isinstance(message, pb.Beat):
            return self._take_beat(message)
        if isinstance(message, pb.Refusal):
            reason = plain(message.reason, MAX_REASON)
            return self._lose(Refused(f"Refused by {self.name}: {reason}", is_final=message.is_final))
        self._cancel_timer("hello")
        self._unread.append(packet)
        self._arrived.set()
        return None

    def _is_full(self) -> bool:
        unread_bytes, coming_bytes = sum(packet.num_bytes for packet in self._unread), self._assembler.announced_bytes
        is_too_large = coming_bytes > 0 and unread_bytes + coming_bytes > self.limits.max_payload_bytes
        return len(self._unread) >= self.limits.max_unread or (unread_bytes > 0 and is_too_large)

    async def _wait_for_room(self) -> None:
        while self._is_full():
            self._is_listening = False
            self._taken.clear()
            await self._taken.wait()
        if not self._is_listening:
            self._is_listening, self._heard_s = True, time.monotonic()

    # Heartbeats: none is sent while one waits to be written, so that a peer that does not read costs no memory.

    def _send_beat(self) -> None:
        self._call_at("beat", self._loop.time() + self.limits.beat_s, self._send_beat)
        if self._beat is None or self._beat.done():
            self._beat_number += 1
            self._beat_sent_s = time.monotonic()
            self._beat = self._put([pb.Frame(beat=pb.Beat(number=self._beat_number)).SerializeToString()])

    def _take_beat(self, beat: pb.Beat) -> None:
        if not beat.is_answer:
            if self._answer is None or self._answer.done():
                answer = pb.Beat(number=beat.number, is_answer=True)
                self._answer = self._put([pb.Frame(beat=answer).SerializeToString()])
        elif beat.number == self._beat_number:
            self._rtts_s.append(self._heard_s - self._beat_sent_s)
            self._rtt_known.set()

    def _watch(self, due_s: float) -> None:
        now_s = time.monotonic()
        if not self._is_listening or self._loop.time() - due_s > self.limits.beat_s:
            self._heard_s = now_s  # this very process was stopped or busy, and the peer may have spoken all the time
        silent_s = now_s - self._heard_s
        if silent_s >= self.limits.dead_after_s:
            return self.lose(f"silent for {silent_s:.1f} s")
        due_s = self._loop.time() + self.limits.dead_after_s - silent_s
        return self._call_at("watch", due_s, lambda: self._watch(due_s))

    def _refuse_late_hello(self) -> None:
        reason = f"no hello within {self.limits.hello_within_s:g} s."
        self._farewell = asyncio.create_task(self.refuse(reason))

    def _call_at(self, name: str, due_s: float, call: Callable[[], None]) -> None:
        self._timers[name] = self._loop.call_at(due_s, call)

    def _cancel_timer(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()

    # The end: the first reason stays, and that of this side if it was ending the link anyway.

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise self._lost.with_traceback(None)

    def _lose(self, why: LinkLost) -> None:
        if self._lost is not None:
            return
        self._lost = why = self._ending or why
        for name in list(self._timers):
            self._cancel_timer(name)
        here = asyncio.current_task()
        for task in (self._reader, self._writer):
            if task is not here:
                task.cancel()
        for written in list(self._unwritten):
            if not written.done():
                written.set_exception(why)
                written.exception()  # heartbeats are not waited for
        self._arrived.set()
        self._ended.set()
        self._stream.cut()


def _words_of(error: BaseException) -> str:
    """Returns gRPC's reason, which only the dialling side gets."""
    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else None
    return (details or "closed by the peer").rstrip(".")
