"""The edge process: serves its devices, owns the deadline of its rounds, holds its model, reports to the cloud.

After each round it saves its model and its report; so one that is killed anywhere and started again goes on where it
was, and a cloud that asks again for a round that is over gets the same report.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from airprune import __version__
from airprune.components import Owner
from airprune.deployment.checking import MAX_WORDS, trouble_in_measured, trouble_in_upload
from airprune.deployment.edge_disk import EdgeDisk
from airprune.deployment.edge_reports import no_sums, report_of, told_outcomes
from airprune.deployment.edge_state import EdgeState, key_of
from airprune.deployment.edge_sums import Asked, closed_round
from airprune.deployment.estimates import probed_uplink_bps
from airprune.deployment.groundwork import PROTOCOL, Groundwork, check_versions
from airprune.deployment.identity import (
    Denied,
    Node,
    Role,
    Stranger,
    admit,
    channel_credentials,
    serial_of,
    server_credentials,
)
from airprune.deployment.kept_rounds import KeptRound
from airprune.deployment.packing import ReportArrays, RoundArrays, Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import (
    Action,
    Arrived,
    Close,
    EdgeRound,
    Event,
    Failed,
    Fate,
    Joined,
    Left,
    Opened,
    Outcome,
    RoundKey,
    SendOrders,
    SendReceipt,
    Tick,
    Verdict,
    step,
)
from airprune.deployment.transport import Limits, Link, LinkLost, Packet, Refused, Sealed, Server, dial
from airprune.deployment.uploads import BadUpload, Bytes
from airprune.errors import WorkFailed
from airprune.federation.messages import Broadcast, Upload
from airprune.federation.wire import broadcast_to_bytes
from airprune.learning.chunks import EdgeResult
from airprune.scenario import Scenario

_log = logging.getLogger("airprune")
Array = np.ndarray
_RETRY_S = 0.5
# More than the probes of a device take that is as fast as it was, and little of a round.
_PROBE_WITHIN_S = 1.0
# An upload of which nothing has come for so long is not waited for.
_STALLED_S = 0.5
# The orders of all its devices are one frame.
_FROM_CLOUD_BYTES = 2**26
# Of uploads that are held decoded until the round closes; more are decoded a second time.
_DECODED_BYTES = 2**26
# Of uploads that are added up within some milliseconds.
_AT_ONCE_BYTES = 2**22


@dataclass(frozen=True, kw_only=True)
class EdgeSettings:
    """How an edge process behaves.

    Attributes:
      gather_s: how long it waits for the devices that it is to ask after it has come, or has stood still: they may
        still be dialling.
      keep_uploads: whether its rounds are kept in its folder (see `kept_rounds`), for `airprune deploy verify`.
      limits: of its links.
    """

    gather_s: float = 15.0
    keep_uploads: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(kw_only=True, eq=False)
class _Child:
    """A device that is online."""

    link: Link
    name: str
    serial: str
    measured: pb.Presence.Device
    receipts: set[asyncio.Task[None]] = field(default_factory=set)
    probed_bps: list[float] = field(default_factory=list)
    probing: asyncio.Future[float] | None = None


@dataclass(kw_only=True, eq=False)
class _Round:
    """The round that goes on.

    Attributes:
      body: what its devices are sent.
      uploads: of those that may count, their bytes; decoded: the same as they are added up, while that takes little.
    """

    asked: Asked
    body: Sealed
    machine: EdgeRound
    uploads: dict[int, Bytes] = field(default_factory=dict)
    decoded: dict[int, Upload] = field(default_factory=dict)
    closed: asyncio.Future[Close] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def take(self, device: int, payload: Bytes) -> None:
        """An upload that may count; BadUpload if it is not what was asked for. The first one stays."""
        upload = self.asked.decoded(device, payload)
        if device not in self.uploads:
            self.uploads[device] = payload
            if self.decoded_bytes + upload.state.nbytes <= _DECODED_BYTES:
                self.decoded[device] = upload

    @property
    def decoded_bytes(self) -> int:
        return sum(upload.state.nbytes for upload in self.decoded.values())


class Edge:
    """One edge of a federation, in a running event loop."""

    def __init__(self, node: Node, folder: Path, settings: EdgeSettings) -> None:
        self.node, self.settings = node, settings
        self.disk = EdgeDisk(folder=folder, keeps_uploads=settings.keep_uploads)
        self.gathers_until_s = 0.0
        self.work: Groundwork | None = None
        self.welcome: pb.Welcome | None = None
        self.denied = Denied()
        self.state = EdgeState()
        self.cloud: Link | None = None
        self.children: dict[int, _Child] = {}
        self.round: _Round | None = None
        self.playing: tuple[RoundKey, asyncio.Task[None]] | None = None
        self.late = self.refused = 0
        self._is_known = asyncio.Event()
        self._changed = asyncio.Event()
        self._broken = asyncio.Event()
        self._trouble: BaseException | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> str:
        """Serves until the run has ended; returns the goodbye."""
        assert self.node.listen is not None
        credentials = server_credentials(self.node)
        limits = self.settings.limits
        async with Server(self.node.listen, credentials=credentials, on_link=self._serve_device, limits=limits):
            telling = asyncio.create_task(self._tell_presence())
            try:
                reason = await self._follow_until_broken()
                for child in list(self.children.values()):
                    with contextlib.suppress(LinkLost):
                        await child.link.send(pb.Goodbye(reason=reason))
                return reason
            finally:
                telling.cancel()
                for task in list(self._tasks):
                    task.cancel()

    # The cloud

    async def _follow_until_broken(self) -> str:
        """An edge whose round cannot go on must not stay: the cloud would wait for its report for ever."""
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
        parent, last = self.node.parents[0], ""
        while True:
            try:
                link = await dial(
                    parent.address,
                    credentials=channel_credentials(self.node),
                    server_name=parent.server_name,
                    limits=replace(self.settings.limits, max_frame_bytes=_FROM_CLOUD_BYTES),
                )
                link.name = parent.name
                try:
                    return await self._obey(link)
                finally:
                    self.cloud = None
                    await link.close()
            except Refused as refusal:
                if refusal.is_final:
                    raise
                last = self._tell(str(refusal), last)
            except LinkLost as lost:
                last = self._tell(str(lost), last)
            await asyncio.sleep(_RETRY_S)

    def _tell(self, sentence: str, last: str) -> str:
        if sentence != last:
            _log.info("%s", sentence)
        return sentence

    async def _obey(self, link: Link) -> str:
        await link.send(pb.Hello(protocol=PROTOCOL, version=__version__))
        welcome = (await link.receive()).message
        if not isinstance(welcome, pb.Welcome):
            raise WorkFailed(f"{link.name} must answer a hello with a welcome, got {type(welcome).__name__}.")
        link.limits = replace(link.limits, max_payload_bytes=welcome.max_payload_bytes)
        is_new_run = self.welcome is None or self.welcome.run != welcome.run
        if is_new_run:
            await self._end_run()
        await asyncio.to_thread(self._take_welcome, welcome)
        self.cloud = link
        if is_new_run:
            self.gathers_until_s = time.monotonic() + self.settings.gather_s
        self._is_known.set()
        self._changed.set()
        _log.info("Serves %s in run %s.", link.name, welcome.run)
        while True:
            packet = await link.receive()
            match packet.message:
                case pb.EdgeRound():
                    await self._take_round(packet.message, bytes(packet.payload))
                case pb.Denied():
                    await self._deny(packet.message.serials)
                case pb.Redial():
                    await self._send_away(packet.message)
                case pb.Goodbye():
                    return packet.message.reason

    async def _end_run(self) -> None:
        """Before another run: its devices dial again, since they were prepared for the old one."""
        self._is_known.clear()
        self._give_up()
        for child in list(self.children.values()):
            await child.link.refuse("Another run begins; dial again.")

    def _take_welcome(self, welcome: pb.Welcome) -> None:
        self.denied = Denied(frozenset(welcome.denied))
        if self.welcome is not None and self.welcome.run == welcome.run:
            self.welcome = welcome
            return
        work = Groundwork(
            scenario=Scenario.from_text(welcome.scenario, source="the scenario of the cloud"),
            input_shape=tuple(welcome.input_shape),
            num_classes=welcome.num_classes,
            num_devices=welcome.num_devices,
            num_edges=welcome.num_edges,
        )
        assert work.shape  # built here, not in the first round
        self.work, self.welcome = work, welcome
        self.state = EdgeState.load(self.disk.file(welcome.run), run=welcome.run, slots=work.slots(Owner.EDGE))

    async def _deny(self, serials: Any) -> None:
        self.denied = Denied(frozenset(serials))
        for child in list(self.children.values()):
            if self.denied.holds(child.serial):
                self.refused += 1
                await child.link.refuse(f"The certificate {child.serial} of {child.name} was revoked.", is_final=True)

    async def _send_away(self, message: pb.Redial) -> None:
        child = self.children.get(message.device)
        if child is not None:
            with contextlib.suppress(LinkLost):
                await child.link.send(message)

    async def _tell_presence(self) -> None:
        """Whenever something has changed, and the cloud is there to be told."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self.cloud is not None:
                presence = pb.Presence(late=self.late, refused=self.refused)
                presence.devices.extend(child.measured for _, child in sorted(self.children.items()))
                with contextlib.suppress(LinkLost):
                    await self.cloud.send(presence)
            await asyncio.sleep(0.02)

    # Devices

    async def _serve_device(self, link: Link) -> None:
        hello = (await link.receive()).message
        await self._wait_known(link)
        welcome = self.welcome
        assert welcome is not None and self.work is not None
        try:
            peer = admit(
                link.peer.certificate_pem,
                federation=self.node.peer.federation,
                role=Role.DEVICE,
                names=welcome.devices,
                denied=self.denied,
            )
        except Stranger as stranger:
            return await self._refuse(link, str(stranger), is_final=True)
        link.name = peer.name
        if not isinstance(hello, pb.Hello):
            return await self._refuse(link, f"The first message must be a hello, got {type(hello).__name__}.")
        if trouble := check_versions(hello.protocol, hello.version):
            return await self._refuse(link, trouble, is_final=True)
        index = welcome.devices[peer.name]
        if index in self.children:
            return await self._refuse(link, f"{peer.name} is connected already; each identity has one connection.")
        child = _Child(
            link=link,
            name=peer.name,
            serial=serial_of(link.peer.certificate_pem),
            measured=pb.Presence.Device(device=index),
        )
        self.children[index] = child
        try:
            own = pb.Welcome()
            own.CopyFrom(welcome)
            own.index = index
            own.ClearField("devices")
            own.ClearField("denied")
            link.limits = replace(link.limits, max_payload_bytes=welcome.max_payload_bytes)
            await link.send(own)
            await self._listen(child, index)
        finally:
            del self.children[index]
            self._changed.set()
            why = str(await link.wait_lost()) if link.is_lost else "The link was closed."
            self._feed(Left(index, time.monotonic(), why))
        return None

    async def _wait_known(self, link: Link) -> None:
        """Until the cloud has said what is run, or the device has gone."""
        waits = [asyncio.ensure_future(wait) for wait in (self._is_known.wait(), link.wait_lost())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if link.is_lost:
            raise await link.wait_lost()

    async def _refuse(self, link: Link, reason: str, *, is_final: bool = False) -> None:
        self.refused += 1
        self._changed.set()
        _log.info("Refused %s: %s", link.name, reason)
        await link.refuse(reason, is_final=is_final)

    async def _listen(self, child: _Child, index: int) -> None:
        while True:
            packet = await child.link.receive()
            match packet.message:
                case pb.Measured():
                    if trouble := trouble_in_measured(packet.message):
                        return await self._refuse(child.link, trouble)
                    self._take_measured(child, packet.message, packet)
                case pb.Upload():
                    self._take_upload(child, index, packet.message, packet)
                    if child.receipts:  # who does not read them is not read either
                        await asyncio.wait(child.receipts)
                case other:
                    reason = f"A device sends measured and upload, got {type(other).__name__}."
                    return await self._refuse(child.link, reason)

    def _take_measured(self, child: _Child, message: pb.Measured, packet: Packet) -> None:
        """The last of a few probes in a row tells: a device that joins is there, one that was probed has answered."""
        child.probed_bps.append(probed_uplink_bps(packet.num_bytes, packet.first_s, packet.last_s))
        if message.num_more:
            return
        rate_bps = float(np.nanmedian(child.probed_bps)) if np.isfinite(child.probed_bps).any() else math.nan
        child.probed_bps.clear()
        has_joined = child.measured.num_samples > 0
        child.measured = pb.Presence.Device(
            device=child.measured.device,
            seconds_per_sample=message.seconds_per_sample,
            uplink_bps=rate_bps,
            rtt_s=child.link.rtt_s,
            num_samples=message.num_samples,
            kernel=message.kernel[:MAX_WORDS],
            machine=message.machine[:MAX_WORDS],
        )
        self._changed.set()
        if child.probing is not None and not child.probing.done():
            child.probing.set_result(rate_bps)
        if not has_joined:
            self._feed(Joined(child.measured.device, time.monotonic()))

    async def _probe(self, probes: Sequence[pb.Probe]) -> list[pb.Probed]:
        """One device after the other, so that each has the air for itself; those that do not answer are left out."""
        found = []
        for probe in probes:
            child = self.children.get(probe.device)
            if child is None or not child.measured.num_samples:
                continue
            child.probing = asyncio.get_running_loop().create_future()
            with contextlib.suppress(LinkLost, TimeoutError):
                async with asyncio.timeout(_PROBE_WITHIN_S):
                    await child.link.send(probe)
                    found.append(pb.Probed(device=probe.device, uplink_bps=await child.probing))
            child.probing = None
        return found

    def _take_upload(self, child: _Child, index: int, upload: pb.Upload, packet: Packet) -> None:
        key = RoundKey(upload.run[:MAX_WORDS], upload.global_round, upload.edge_round)
        if upload.failure:
            return self._feed(Failed(index, key, upload.failure[:MAX_WORDS], packet.last_s))
        trouble, current = trouble_in_upload(upload), self.round
        if current is not None and key == current.machine.key and index in current.machine.waited_for:
            try:
                current.take(index, packet.payload)
            except BadUpload as bad:
                trouble = str(bad)
        self._feed(
            Arrived(
                device=index,
                key=key,
                model_digest=upload.model_digest[:MAX_WORDS],
                digest=packet.digest.hex(),
                at_s=packet.last_s,
                compute_s=0.0 if trouble else upload.compute_s,
                uplink_s=packet.last_s - packet.first_s,
                num_bytes=packet.num_bytes,
                trouble=trouble,
            )
        )
        return None

    # Rounds

    async def _take_round(self, message: pb.EdgeRound, payload: bytes) -> None:
        """Starts a round, unless it goes on already or is over."""
        key = key_of(message)
        if self.playing is not None and self.playing[0] == key:
            return
        if self.playing is not None:
            _log.warning("%s is given up for %s.", self.playing[0], key)
            self._give_up()
        if self.state.has_reported(key):
            await self._send_report(sends_model=message.sends_model)
            return
        arrays = RoundArrays.from_bytes(payload)
        station = arrays.station or self.state.station
        if station is None or station.digest != message.model_digest:
            trouble = "It does not hold the model that the round starts from."
            await self._send(report_of(message, trouble=trouble), b"")
            return
        self.state = replace(self.state, station=station)
        if not message.orders:
            assert self.work is not None
            report = report_of(message, model_digest=message.model_digest)
            await self._send(report, no_sums(self.work.shape, station).to_bytes())
            return
        self.playing = key, self._start(self._play(message, key, arrays, station))

    def _give_up(self) -> None:
        """What the round that goes on was for is not wanted any more."""
        if self.playing is not None:
            self.playing[1].cancel()
        self.playing = self.round = None

    async def _play(self, message: pb.EdgeRound, key: RoundKey, arrays: RoundArrays, station: Station) -> None:
        assert self.work is not None
        broadcast = Broadcast(model=station.model, mask=arrays.told, values=arrays.values)
        body = Sealed(broadcast_to_bytes(broadcast))
        digest = body.digest.hex()
        asked = Asked(work=self.work, round=message, broadcast=broadcast, model_digest=digest)
        devices = tuple(orders.device for orders in message.orders)
        await self._gather(devices)
        machine = EdgeRound(
            key=key,
            model_digest=digest,
            asked=devices,
            deadline_s=message.deadline_s,
            grace_s=message.grace_s,
            counted=self.state.counted,
            online=self._ready,
        )
        self.round = current = _Round(asked=asked, body=body, machine=machine)
        self._feed(Opened(time.monotonic()))
        close = await self._wait_closed(current)
        under_way = self._under_way(current, close)
        outcomes = {outcome.device: outcome for outcome in close.outcomes}
        late = {device for device, outcome in outcomes.items() if outcome.fate is Fate.LATE}
        probing = asyncio.create_task(self._probe([probe for probe in message.probes if probe.device not in late]))
        await self._let_end(under_way, within_s=message.deadline_s)
        counted = {d: data for d, data in current.uploads.items() if outcomes[d].fate is Fate.OK}
        kept = KeptRound(orders=message, arrays=replace(arrays, station=station), uploads=counted)
        result, station = await self._summed(current, counted, outcomes, station)
        self.late += len(late)
        report = report_of(message, model_digest=station.digest, took_s=close.took_s)
        rtt_s = {device: child.link.rtt_s for device, child in self.children.items()}
        report.outcomes.extend(told_outcomes(close.outcomes, rtt_s, under_way))
        report.probed.extend(await probing)
        sums = ReportArrays.of(result, None)
        reported = report, sums.to_bytes()
        self.state = state = EdgeState(station=station, report=reported, counted=current.machine.counted_so_far)
        if message.sends_model:  # the cloud has it all, so that it need not wait for the disk
            self.playing = self.round = None
            await self._send(report, replace(sums, station=station).to_bytes())
            await self.disk.save_soon(state, key, kept)
        else:
            await self.disk.save(state, key, kept)
            self.playing = self.round = None
            await self._send(*reported)

    async def _summed(
        self, current: _Round, counted: Mapping[int, Bytes], outcomes: Mapping[int, Outcome], station: Station
    ) -> tuple[EdgeResult, Station]:
        """Beside the event loop, unless that costs more than the sum itself."""
        uploads = {device: current.decoded.get(device, data) for device, data in counted.items()}
        if len(uploads) * station.model.nbytes <= _AT_ONCE_BYTES and len(current.decoded) == len(current.uploads):
            return closed_round(current.asked, uploads, outcomes, station)
        return await asyncio.to_thread(closed_round, current.asked, uploads, outcomes, station)

    def _under_way(self, current: _Round, close: Close) -> dict[int, pb.Outcome]:
        """What is known of late uploads of which not all has come."""
        now_s, found = time.monotonic(), {}
        for outcome in close.outcomes:
            child = self.children.get(outcome.device)
            coming = None if child is None or outcome.fate is not Fate.LATE else child.link.coming
            if coming is None or not isinstance(upload := coming[0], pb.Upload):
                continue
            if RoundKey(upload.run, upload.global_round, upload.edge_round) == current.machine.key:
                _, first_s, num_bytes = coming
                found[outcome.device] = pb.Outcome(
                    compute_s=upload.compute_s,
                    uplink_s=now_s - first_s,
                    bytes=num_bytes,
                    started_s=current.machine.elapsed_s(first_s),
                )
        return found

    async def _let_end(self, devices: Iterable[int], *, within_s: float) -> None:
        """Waits for late uploads that still come: behind them, those of the next round would be late as well."""
        now_s = time.monotonic()
        end_s = now_s + within_s
        seen = dict.fromkeys(devices, (-1, now_s))  # bytes so far, and since when
        while seen and now_s < end_s:
            for device, (num_bytes, since_s) in list(seen.items()):
                coming = self.children[device].link.coming if device in self.children else None
                if coming is None or now_s - since_s > _STALLED_S:
                    del seen[device]
                elif coming[2] > num_bytes:
                    seen[device] = coming[2], now_s
            await asyncio.sleep(0.02)
            now_s = time.monotonic()

    async def _gather(self, devices: tuple[int, ...]) -> None:
        """An edge that has just come waits for its devices, which are still dialling."""
        while time.monotonic() < self.gathers_until_s and not self._ready >= {*devices}:
            await asyncio.sleep(0.02)

    @property
    def _ready(self) -> frozenset[int]:
        """Devices that are online and have said what they can do."""
        return frozenset(index for index, child in self.children.items() if child.measured.num_samples)

    async def _wait_closed(self, current: _Round) -> Close:
        looked_s = time.monotonic()
        while not current.closed.done():
            if time.monotonic() - looked_s > self.settings.limits.dead_after_s:
                # This process stood still, so that devices took it for dead: they are on their way back.
                current.machine = replace(current.machine, rejoin_s=self.settings.gather_s)
            looked_s, due_s = time.monotonic(), current.machine.next_tick_s
            wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            await asyncio.wait([current.closed], timeout=min(wait_s or 0.0, 0.1) if wait_s is not None else 0.1)
            if not current.closed.done() and due_s is not None and time.monotonic() >= due_s:
                self._feed(Tick(time.monotonic()))
        return current.closed.result()

    def _feed(self, event: Event) -> None:
        """To the round that goes on; one that is over is still asked about uploads."""
        current = self.round
        if current is None:
            if isinstance(event, Arrived):
                self._answer_after(event)
            return
        current.machine, actions = step(current.machine, event)
        for action in actions:
            self._do(current, action)

    def _answer_after(self, event: Arrived) -> None:
        """Between rounds: what was counted is a duplicate, all else is late."""
        is_counted = self.state.counted.get(event.key, {}).get(event.device) == event.digest
        self.late += not is_counted
        self._send_receipt(event.device, event.key, "duplicate" if is_counted else "late", "The round is over.")

    def _do(self, current: _Round, action: Action) -> None:
        match action:
            case SendOrders(device, time_left_s):
                self._start(self._order(current, device, time_left_s))
            case SendReceipt(device, key, verdict, reason):
                if verdict is Verdict.REFUSED:
                    self.refused += 1
                    self._changed.set()
                self._send_receipt(device, key, str(verdict), reason)
            case Close():
                current.closed.set_result(action)

    async def _order(self, current: _Round, device: int, time_left_s: float) -> None:
        message = current.asked.round
        own = current.asked.orders[device]
        orders = pb.Orders(
            run=message.run,
            global_round=message.global_round,
            edge_round=message.edge_round,
            round_index=message.round_index,
            keep=own.keep,
            learning_rate=message.learning_rate,
            rate_bps=own.rate_bps,
            time_left_s=time_left_s,
            model_digest=current.asked.model_digest,
            last_counted=own.last_counted,
            max_bytes=own.max_bytes,
        )
        if own.HasField("code"):
            orders.code = own.code
        child = self.children.get(device)
        if child is not None:
            with contextlib.suppress(LinkLost):
                await child.link.send(orders, current.body)

    def _send_receipt(self, device: int, key: RoundKey, verdict: str, reason: str) -> None:
        child = self.children.get(device)
        if child is not None:
            receipt = pb.Receipt(
                run=key.run, global_round=key.global_round, edge_round=key.edge_round, verdict=verdict, reason=reason
            )
            task = self._start(_sent(child.link, receipt))
            child.receipts.add(task)
            task.add_done_callback(child.receipts.discard)

    async def _send_report(self, *, sends_model: bool) -> None:
        assert self.state.report is not None and self.work is not None
        report, payload = self.state.report
        if sends_model:
            arrays = ReportArrays.from_bytes(payload, self.work.shape)
            payload = replace(arrays, station=self.state.station).to_bytes()
        await self._send(report, payload)

    async def _send(self, report: pb.EdgeReport, payload: bytes) -> None:
        """If the cloud is away, it will ask again."""
        if self.cloud is not None:
            with contextlib.suppress(LinkLost):
                await self.cloud.send(report, payload)

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


async def _sent(link: Link, message: pb.Receipt) -> None:
    with contextlib.suppress(LinkLost):
        await link.send(message)
