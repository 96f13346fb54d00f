"""The edge process: serves its devices, owns the deadline of its rounds, holds its model, reports to the cloud.

After each round it saves its model and its report; so one that is killed anywhere and started again goes on where it
was, and a cloud that asks again for a round that is over gets the same report. Where the report carries the model, it
leaves before that: what an edge has not saved then, the cloud has, or asks for once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from airprune.components.component import Owner
from airprune.deployment.checks import MAX_WORDS, note_trouble
from airprune.deployment.delivery.fetching import Fetching
from airprune.deployment.delivery.shelf import Shelf
from airprune.deployment.edge_devices import Devices
from airprune.deployment.edge_rounds import Rounds
from airprune.deployment.edge_state import EdgeDisk, EdgeState, drop_old
from airprune.deployment.handshake import (
    RETRY_S,
    dial_parent,
    keep_certificate,
    log_if_new,
    say_hello,
    take_certificate,
)
from airprune.deployment.identity import Node, server_credentials
from airprune.deployment.identity.renewal import RENEW_BEFORE_DAYS, Renewal, with_renewed
from airprune.deployment.memory import give_back_memory
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import RunDefinition, unexpected, without_run
from airprune.deployment.run_signature import check_run
from airprune.deployment.transport import Limits, Link, LinkLost, Refused, Server
from airprune.text import plain

_log = logging.getLogger("airprune")
# The orders of all its devices are one frame.
_FROM_CLOUD_BYTES = 2**26
_LOOK_S = 1.0
# One may wait for the disk while the other adds up. Each keeps memory of the allocator for good.
_MAX_THREADS = 2


@dataclass(frozen=True, kw_only=True)
class EdgeSettings:
    """Settings of an edge process.

    Attributes:
      gather_s: how long it waits for selected devices after it has started, or has stood still: they may
        still be dialling.
      keep_uploads: whether its rounds are kept in its folder (see `kept_rounds`), for `airprune deploy verify`.
      limits: of its links.
      renew_before_days: how long before its certificate expires it gets another.
    """

    gather_s: float = 15.0
    keep_uploads: bool = False
    limits: Limits = field(default_factory=Limits)
    renew_before_days: float = RENEW_BEFORE_DAYS


class Edge:
    """One edge of a federation, in a running event loop."""

    def __init__(self, node: Node, folder: Path, settings: EdgeSettings) -> None:
        self.settings = settings
        self.renewal = Renewal(with_renewed(node, folder), folder, settings.renew_before_days)
        self.cloud: Link | None = None
        self.disk = EdgeDisk(folder=folder, keeps_uploads=settings.keep_uploads)
        self.fetching = Fetching(Shelf(node, folder))
        self._offer: pb.ModelOffer | None = None
        self.devices = Devices(node, self._start, self._pass_on, self.fetching.shelf)
        self.rounds = Rounds(
            self.devices,
            self.disk,
            gather_s=settings.gather_s,
            dead_after_s=settings.limits.dead_after_s,
            start=self._start,
            send=self._send,
        )
        self._has_renewed, self._listens_first = False, True
        self._broken = asyncio.Event()
        self._trouble: BaseException | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def node(self) -> Node:
        """The node as it is now: its certificate is renewed in time."""
        return self.renewal.node

    async def run(self) -> str:
        """Serves run after run until the cloud says goodbye; returns its words."""
        reporting = asyncio.create_task(self._report_presence())
        following: asyncio.Task[str] | None = None
        try:
            while True:
                async with await self._server():
                    following = following or asyncio.create_task(self._follow_until_broken())
                    await self._wait_for_end_or_renewal(following)
                    if following.done():
                        reason = following.result()
                        await self.devices.send_all(pb.Goodbye(reason=reason))
                        return reason
        finally:
            own = [reporting, *([] if following is None else [following])]
            for task in (*own, *self._tasks):
                task.cancel()
            await asyncio.gather(*own, return_exceptions=True)

    async def _server(self) -> Server:
        """Returns a server with the present certificate, after the port of the one before it is free."""
        assert self.node.listen is not None
        limits = self.settings.limits
        await asyncio.sleep(0.0 if self._listens_first else RETRY_S)
        self._listens_first = False
        return Server(
            self.node.listen, credentials=server_credentials(self.node), on_link=self._serve_device, limits=limits
        )

    async def _wait_for_end_or_renewal(self, following: asyncio.Task[str]) -> None:
        """Waits until the cloud has said goodbye, or a renewed certificate can be taken into use between runs."""
        while not following.done():
            await asyncio.wait([following], timeout=_LOOK_S)
            if self._has_renewed and not self.devices.run:
                self._has_renewed = False
                return

    async def _serve_device(self, link: Link) -> None:
        await self.devices.serve(link, self.rounds)

    async def _follow_until_broken(self) -> str:
        """Follows the cloud until a round cannot go on: an edge that stayed would keep the cloud waiting for ever."""
        following = asyncio.create_task(self._follow_cloud())
        broken = asyncio.create_task(self._broken.wait())
        try:
            await asyncio.wait([following, broken], return_when=asyncio.FIRST_COMPLETED)
            if self._trouble is not None:
                raise self._trouble
            return following.result()
        finally:
            for task in (following, broken):
                task.cancel()
            await asyncio.gather(following, broken, return_exceptions=True)

    async def _follow_cloud(self) -> str:
        limits, last = replace(self.settings.limits, max_frame_bytes=_FROM_CLOUD_BYTES), ""
        while True:
            try:
                link = await dial_parent(self.node, self.node.parents[0], limits)
                try:
                    return await self._obey(link)
                finally:
                    self.cloud = None
                    await link.close()
            except Refused as refusal:
                if refusal.is_final:
                    raise
                last = log_if_new(str(refusal), last)
            except LinkLost as lost:
                last = log_if_new(str(lost), last)
            await asyncio.sleep(RETRY_S)

    async def _obey(self, link: Link) -> str:
        welcome = await say_hello(link)
        if welcome.stays and not welcome.run:
            _log.info("Connected to %s; waits for a job.", link.name)
        await self._take_welcome(link, welcome)
        self.cloud = link
        self.devices.changed.set()
        renewing = asyncio.create_task(keep_certificate(self.renewal, link))
        try:
            return await self._listen(link)
        finally:
            renewing.cancel()

    async def _listen(self, link: Link) -> str:
        """Does what the cloud says; what goes on to devices goes beside, since one of them may not read."""
        while True:
            packet = await link.receive()
            match packet.message:
                case pb.Welcome():
                    await self._take_welcome(link, packet.message)
                case pb.EdgeRound():
                    if self.rounds.work is not None and packet.message.run == self.devices.run:
                        await self.rounds.take(packet.message, bytes(packet.payload))
                case pb.Denied():
                    await self.devices.deny(packet.message.serials)
                case pb.Redial():
                    self._start(self.devices.send(packet.message.device, packet.message))
                case pb.ModelOffer():
                    self._offer = packet.message
                    if await self.fetching.take_offer(link, packet.message):
                        self._start(self.devices.offer_model(packet.message))
                case pb.ModelFile():
                    if await self.fetching.take_file(link, packet) and self._offer is not None:
                        self._start(self.devices.offer_model(self._offer))
                case pb.Certificate():
                    if packet.message.name:
                        self._start(self.devices.send_to(packet.message.name, packet.message))
                    else:
                        self._has_renewed |= take_certificate(self.renewal, packet.message)
                case pb.Goodbye():
                    return plain(packet.message.reason, MAX_WORDS)

    async def _take_welcome(self, link: Link, welcome: pb.Welcome) -> None:
        """Begins the run of a welcome unless it goes on already, and sends it on to the devices."""
        link.limits = replace(link.limits, max_payload_bytes=welcome.max_payload_bytes)
        if welcome.run != self.devices.run:
            self.rounds.give_up()
            self.rounds.work = None
            give_back_memory()
        if welcome.run and self.rounds.work is None:
            try:
                await asyncio.to_thread(self._prepare, welcome)
            except Exception as error:
                if not welcome.stays:
                    raise
                _log.error("%s cannot take part: %s", self.node.peer.name, error, exc_info=unexpected(error))
                note_trouble(self.devices.troubles, self.node.peer.name, str(error))
                welcome = without_run(welcome)
            else:
                self.rounds.gathers_until_s = time.monotonic() + self.settings.gather_s
                self.devices.troubles.pop(self.node.peer.name, None)
                _log.info("Serves %s in run %s.", link.name, welcome.run)
        await self.devices.take_welcome(welcome)

    def _prepare(self, welcome: pb.Welcome) -> None:
        check_run(welcome, self.node)
        work = RunDefinition.from_welcome(welcome)
        assert work.shape  # built here, not in the first round
        state = EdgeState.load(self.disk.file(welcome.run), run=welcome.run, slots=work.slots(Owner.EDGE))
        self.rounds.work, self.rounds.state = work, state
        drop_old(self.disk.folder, "edge-*.safetensors")

    async def _report_presence(self) -> None:
        """Sends the cloud which devices are online, whenever that has changed."""
        while True:
            await self.devices.changed.wait()
            self.devices.changed.clear()
            if self.cloud is not None:
                with contextlib.suppress(LinkLost):
                    await self.cloud.send(self.devices.presence())
            await asyncio.sleep(0.02)

    async def _send(self, report: pb.EdgeReport, payload: bytes) -> bool:
        """Sends a report; False if the cloud is unreachable, which will then ask for it again."""
        if self.cloud is None:
            return False
        try:
            await self.cloud.send(report, payload)
        except LinkLost:
            return False
        return True

    async def _pass_on(self, message: Message) -> None:
        """Sends the cloud a message of a device; one that comes while it is unreachable is for the device to repeat."""
        if self.cloud is not None:
            with contextlib.suppress(LinkLost):
                await self.cloud.send(message)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._trouble = task.exception()
            self._broken.set()


async def run_edge(node: Node, folder: Path, settings: EdgeSettings) -> str:
    """Runs an edge that has the event loop to itself: its memory does not depend on the number of cores."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="edge"))
    return await Edge(node, folder, settings).run()
