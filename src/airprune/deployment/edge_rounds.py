"""The rounds of an edge: it owns their deadline, adds up what came in time, and reports.

What is due when is decided by `round_machine`; here it meets devices, a clock and a disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from airprune.deployment.bounds import most_samples
from airprune.deployment.checks import MAX_WORDS, trouble_in_upload
from airprune.deployment.digests import Bytes
from airprune.deployment.edge_devices import Devices
from airprune.deployment.edge_state import EdgeDisk, EdgeState
from airprune.deployment.edge_sums import OrderedRound, closed_round, no_sums, outcome_messages, report_of
from airprune.deployment.explosions import (
    REPORT,
    UpdateLength,
    bad_buffers,
    exploding,
    is_left_to_scenario,
    length_of_report,
    length_of_upload,
    moves_in_round,
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
    Opened,
    Outcome,
    OutcomeKind,
    RoundKey,
    SendOrders,
    SendReceipt,
    Tick,
    Verdict,
    step,
    with_discounted,
)
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.secure.opening import Opening
from airprune.deployment.secure.session import SecureSession
from airprune.deployment.transport import Packet, Sealed
from airprune.deployment.uploads import BadUpload
from airprune.rounds.messages import Broadcast, Upload
from airprune.rounds.sums import EdgeResult
from airprune.rounds.wire import broadcast_to_bytes
from airprune.text import plain

Array = np.ndarray
_log = logging.getLogger("airprune")
# An upload of which nothing has come for so long is not waited for.
_STALLED_S = 0.5
# Of uploads that are held decoded until the round closes; more are decoded a second time.
_DECODED_BYTES = 2**26
# Of uploads that are added up within some milliseconds.
_AT_ONCE_BYTES = 2**22


@dataclass(kw_only=True, eq=False)
class OngoingRound:
    """Holds the current round.

    Attributes:
      body: what its devices are sent.
      uploads: of those that may count, their bytes; decoded: the same as they are added up, while that takes little.
      lengths: of their updates; buffers: what they hold beside trained weights; of hidden ones neither is known.
      reported: lengths of the gradients that they report beside, if they do; samples: how many they say they have.
      session: of the secure sum that hides them.
    """

    ordered: OrderedRound
    body: Sealed
    machine: EdgeRound
    uploads: dict[int, Bytes] = field(default_factory=dict)
    decoded: dict[int, Upload] = field(default_factory=dict)
    lengths: dict[int, UpdateLength] = field(default_factory=dict)
    buffers: dict[int, Array] = field(default_factory=dict)
    reported: dict[int, UpdateLength] = field(default_factory=dict)
    samples: dict[int, int] = field(default_factory=dict)
    session: SecureSession | None = None
    closed: asyncio.Future[Close] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def take(self, device: int, payload: Bytes, num_samples: int) -> None:
        """Takes an upload that may count, the first one of a device; raises BadUpload if it is not what was ordered.

        Args:
          num_samples: that the device said it has.
        """
        ordered = self.ordered
        upload, orders = ordered.decoded(device, payload), ordered.orders[device]
        steps = orders.local_steps if orders.HasField("local_steps") else None
        most = most_samples(ordered.work.scenario.train, num_samples, steps)
        if upload.num_samples > most:
            raise BadUpload("num_samples", f"must be at most {most:,}, as ordered", f"{upload.num_samples:,}")
        if device not in self.uploads:
            self.uploads[device] = payload
            model, shape = ordered.broadcast.model, ordered.work.shape
            if self.session is None:
                self.buffers[device] = upload.state[shape.num_parameters :].copy()
                self.lengths[device] = length_of_upload(upload, model, shape, max(steps or 1, 1))
            gradients = ordered.work.method.objective.gradients
            if (length := length_of_report(upload.report, gradients, model, shape)) is not None:
                self.reported[device], self.samples[device] = length, num_samples
            if sum(map(_num_bytes, (upload, *self.decoded.values()))) <= _DECODED_BYTES:
                self.decoded[device] = upload

    def refuse_exploding(self, close: Close) -> tuple[Close, dict[int, str]]:
        """Refuses counted uploads that would blow up the average; returns the round's outcomes, and reasons."""
        work = self.ordered.work
        ok = {outcome.device for outcome in close.outcomes if outcome.fate is OutcomeKind.OK}
        samples = [count for device, count in self.samples.items() if device in ok]
        moves = moves_in_round(work.scenario.train, self.ordered.round.learning_rate, samples)
        reports = {device: length.scaled(moves) for device, length in self.reported.items() if device in ok}
        reasons = exploding(reports, REPORT)
        if not is_left_to_scenario(work.scenario, work.method.edge):
            reasons |= bad_buffers({device: own for device, own in self.buffers.items() if device in ok}, work.shape)
            reasons |= exploding({device: length for device, length in self.lengths.items() if device in ok})
        self.machine, close = with_discounted(self.machine, close, OutcomeKind.REFUSED, reasons)
        return close, reasons

    async def open_sum(self, close: Close) -> tuple[Close, Opening | None, str]:
        """Opens the secure sum, if there is one; returns the round's outcomes, what opens it, or why it stays closed.

        Of a sum that could not be opened, though updates enough are there, none counts.
        """
        if self.session is None:
            return close, None, ""
        arrived = [outcome.device for outcome in close.outcomes if outcome.fate is OutcomeKind.OK]
        opening, reason = await self.session.open(arrived)
        cohort = self.ordered.cohort
        assert cohort is not None
        if opening is None and len(arrived) >= cohort.threshold:
            reasons = dict.fromkeys(arrived, reason)
            self.machine, close = with_discounted(self.machine, close, OutcomeKind.DROPPED, reasons)
        return close, opening, reason


class Rounds:
    """Runs the rounds of one edge, in a running event loop.

    Args:
      gather_s, dead_after_s: see `EdgeSettings` and `Limits`.
      start: runs what may go on beside.
      send: a report, to the cloud; whether it was there.

    Attributes:
      work, state: of the run; None and empty before the cloud has said which.
      gathers_until_s: until when it waits for devices that are still dialling.
    """

    def __init__(
        self,
        devices: Devices,
        disk: EdgeDisk,
        *,
        gather_s: float,
        dead_after_s: float,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        send: Callable[[pb.EdgeReport, bytes], Awaitable[bool]],
    ) -> None:
        self.devices, self.disk = devices, disk
        self.gather_s, self.dead_after_s = gather_s, dead_after_s
        self._start, self._send = start, send
        self.work: RunDefinition | None = None
        self.state = EdgeState()
        self.gathers_until_s = 0.0
        self.current: OngoingRound | None = None
        self.session: SecureSession | None = None
        self.running: tuple[RoundKey, asyncio.Task[None]] | None = None

    async def take(self, message: pb.EdgeRound, payload: bytes) -> None:
        """Starts a round, unless it goes on already or is over."""
        key = RoundKey.of(message)
        if self.running is not None and self.running[0] == key:
            return
        if self.running is not None:
            _log.warning("Gave up %s for %s.", self.running[0], key)
            self.give_up()
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
        self.running = key, self._start(self._run(message, key, arrays, station))

    def give_up(self) -> None:
        """Cancels the current round, if there is one."""
        if self.running is not None:
            self.running[1].cancel()
        self.running = self.current = self.session = None

    async def _run(self, message: pb.EdgeRound, key: RoundKey, arrays: RoundArrays, station: Station) -> None:
        assert self.work is not None
        broadcast = Broadcast(model=station.model, mask=arrays.mask, values=arrays.values)
        body = Sealed(broadcast_to_bytes(broadcast))
        digest = body.digest.hex()
        ordered = OrderedRound(work=self.work, round=message, broadcast=broadcast, model_digest=digest)
        devices = tuple(orders.device for orders in message.orders)
        await self._gather(devices)
        session, outcomes = await self._agreed(ordered, key, devices)
        machine = EdgeRound(
            key=key,
            model_digest=digest,
            selected=devices,
            deadline_s=message.deadline_s,
            grace_s=message.grace_s,
            counted=self.state.counted,
            online=self.devices.ready,
            outcomes=outcomes,
        )
        self.current = current = OngoingRound(ordered=ordered, body=body, machine=machine, session=session)
        self.feed(Opened(time.monotonic()))
        close, exploded = current.refuse_exploding(await self._wait_closed(current))
        for device, reason in exploded.items():
            self.devices.send_receipt(device, key, str(Verdict.REFUSED), reason)
            self.devices.strike(device, reason)
        close, opening, trouble = await current.open_sum(close)
        if trouble:
            _log.warning("%s: the edge keeps its model. %s", key, trouble)
        under_way = self._under_way(current, close)
        outcomes = {outcome.device: outcome for outcome in close.outcomes}
        late = {device for device, outcome in outcomes.items() if outcome.fate is OutcomeKind.LATE}
        probing = asyncio.create_task(
            self.devices.probe([probe for probe in message.probes if probe.device not in late])
        )
        await self._let_end(under_way, within_s=message.deadline_s)
        counted = {d: data for d, data in current.uploads.items() if outcomes[d].fate is OutcomeKind.OK}
        kept = KeptRound(orders=message, arrays=replace(arrays, station=station), uploads=counted, opening=opening)
        result, station = await self._summed(current, counted, outcomes, station, opening)
        self.devices.late += len(late)
        report = report_of(message, model_digest=station.digest, took_s=close.took_s)
        rtt_s = {device: child.link.rtt_s for device, child in self.devices.online.items()}
        exchanged = {} if session is None else session.num_bytes
        report.outcomes.extend(outcome_messages(close.outcomes, rtt_s, under_way, exchanged))
        report.probed.extend(await probing)
        sums = ReportArrays.of(result, None)
        reported = report, sums.to_bytes()
        self.state = state = EdgeState(station=station, report=reported, counted=current.machine.counted_so_far)
        if message.sends_model:  # the cloud has it all, so that it need not wait for the disk
            self.running = self.current = self.session = None
            was_sent = await self._send(report, replace(sums, station=station).to_bytes())
            await (self.disk.save_soon if was_sent else self.disk.save)(state, key, kept)
        else:
            await self.disk.save(state, key, kept)
            self.running = self.current = self.session = None
            await self._send(*reported)

    async def _agreed(
        self, ordered: OrderedRound, key: RoundKey, devices: Sequence[int]
    ) -> tuple[SecureSession | None, dict[int, Outcome]]:
        """Has devices agree on masks, if they hide their updates; returns the outcomes of those that did not."""
        if ordered.cohort is None:
            return None, {}
        self.session = SecureSession(key, ordered.cohort, self.devices, self._start, ordered.round.deadline_s)
        return self.session, await self.session.agree(devices)

    async def _summed(
        self,
        current: OngoingRound,
        counted: Mapping[int, Bytes],
        outcomes: Mapping[int, Outcome],
        station: Station,
        opening: Opening | None,
    ) -> tuple[EdgeResult, Station]:
        """Adds up the uploads beside the event loop, unless that costs more than the sum itself."""
        uploads = {device: current.decoded.get(device, data) for device, data in counted.items()}
        is_short = len(uploads) * station.model.nbytes <= _AT_ONCE_BYTES
        if is_short and opening is None and len(current.decoded) == len(current.uploads):
            return closed_round(current.ordered, uploads, outcomes, station)
        return await asyncio.to_thread(closed_round, current.ordered, uploads, outcomes, station, opening)

    def _under_way(self, current: OngoingRound, close: Close) -> dict[int, pb.Outcome]:
        """Returns what is known of uploads that missed the deadline and are still under way."""
        now_s, found = time.monotonic(), {}
        for outcome in close.outcomes:
            child = self.devices.online.get(outcome.device)
            coming = None if child is None or outcome.fate is not OutcomeKind.LATE else child.link.coming
            if coming is None or not isinstance(upload := coming[0], pb.Upload):
                continue
            if RoundKey.of(upload) == current.machine.key:
                _, first_s, num_bytes = coming
                found[outcome.device] = pb.Outcome(
                    compute_s=upload.compute_s,
                    uplink_s=now_s - first_s,
                    bytes=num_bytes,
                    started_s=current.machine.elapsed_s(first_s),
                )
        return found

    async def _let_end(self, devices: Iterable[int], *, within_s: float) -> None:
        """Waits for uploads that still come after the deadline, so that the next round's do not wait behind them."""
        now_s = time.monotonic()
        end_s = now_s + within_s
        seen = dict.fromkeys(devices, (-1, now_s))  # bytes so far, and since when
        while seen and now_s < end_s:
            for device, (num_bytes, since_s) in list(seen.items()):
                coming = self.devices.online[device].link.coming if device in self.devices.online else None
                if coming is None or now_s - since_s > _STALLED_S:
                    del seen[device]
                elif coming[2] > num_bytes:
                    seen[device] = coming[2], now_s
            await asyncio.sleep(0.02)
            now_s = time.monotonic()

    async def _gather(self, devices: tuple[int, ...]) -> None:
        """Waits for devices that are still dialling, if the edge has just started."""
        while time.monotonic() < self.gathers_until_s and not self.devices.ready >= {*devices}:
            await asyncio.sleep(0.02)

    async def _wait_closed(self, current: OngoingRound) -> Close:
        looked_s = time.monotonic()
        while not current.closed.done():
            if time.monotonic() - looked_s > self.dead_after_s:
                # This process stood still, so that devices took it for dead: they are on their way back.
                current.machine = replace(current.machine, rejoin_s=self.gather_s)
            looked_s, due_s = time.monotonic(), current.machine.next_tick_s
            wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            await asyncio.wait([current.closed], timeout=min(wait_s or 0.0, 0.1) if wait_s is not None else 0.1)
            if not current.closed.done() and due_s is not None and time.monotonic() >= due_s:
                self.feed(Tick(time.monotonic()))
        return current.closed.result()

    def take_upload(self, index: int, upload: pb.Upload, packet: Packet) -> None:
        key = RoundKey(upload.run[:MAX_WORDS], upload.global_round, upload.edge_round)
        if upload.failure:
            return self.feed(Failed(index, key, plain(upload.failure, MAX_WORDS), packet.last_s))
        trouble, current = trouble_in_upload(upload), self.current
        if current is not None and key == current.machine.key and index in current.machine.waited_for:
            is_lie = bool(trouble)
            try:
                current.take(index, packet.payload, self.devices.online[index].measured.num_samples)
            except BadUpload as bad:
                trouble = str(bad)
                is_lie = bad.field != "model"  # an honest device may answer orders that were replaced meanwhile
            if is_lie:
                self.devices.strike(index, trouble)
        self.feed(
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

    def take_secure_step(self, index: int, message: pb.SecureStep, packet: Packet) -> None:
        if self.session is not None:
            self.session.take(index, message, packet)

    def feed(self, event: Event) -> None:
        """Passes an event to the current round; between rounds, uploads are still answered."""
        current = self.current
        if current is None:
            if isinstance(event, Arrived):
                self._answer_after(event)
            return
        current.machine, actions = step(current.machine, event)
        for action in actions:
            self._do(current, action)

    def _answer_after(self, event: Arrived) -> None:
        """Answers an upload between rounds: one that has counted is a duplicate, any other has missed the deadline."""
        is_counted = self.state.counted.get(event.key, {}).get(event.device) == event.digest
        self.devices.late += not is_counted
        self.devices.send_receipt(event.device, event.key, "duplicate" if is_counted else "late", "The round is over.")

    def _do(self, current: OngoingRound, action: Action) -> None:
        match action:
            case SendOrders(device, time_left_s):
                self._start(self._send_orders(current, device, time_left_s))
            case SendReceipt(device, key, verdict, reason):
                if verdict is Verdict.REFUSED:
                    self.devices.count_refusal()
                self.devices.send_receipt(device, key, str(verdict), reason)
            case Close():
                current.closed.set_result(action)

    async def _send_orders(self, current: OngoingRound, device: int, time_left_s: float) -> None:
        if current.session is not None:
            await current.session.send_shares(device)
        await self.devices.send(device, _orders(current, device, time_left_s), current.body)

    async def _send_report(self, *, sends_model: bool) -> None:
        assert self.state.report is not None and self.work is not None
        report, payload = self.state.report
        if sends_model:
            arrays = ReportArrays.from_bytes(payload, self.work.shape)
            payload = replace(arrays, station=self.state.station).to_bytes()
        await self._send(report, payload)


def _orders(current: OngoingRound, device: int, time_left_s: float) -> pb.Orders:
    message = current.ordered.round
    own = current.ordered.orders[device]
    orders = pb.Orders(
        run=message.run,
        global_round=message.global_round,
        edge_round=message.edge_round,
        round_index=message.round_index,
        keep=own.keep,
        learning_rate=message.learning_rate,
        rate_bps=own.rate_bps,
        time_left_s=time_left_s,
        model_digest=current.ordered.model_digest,
        last_counted=own.last_counted,
        max_bytes=own.max_bytes,
        first_trained=own.first_trained,
    )
    if own.HasField("code"):
        orders.code = own.code
    if own.HasField("local_steps"):
        orders.local_steps = own.local_steps
    if own.HasField("last_trained"):
        orders.last_trained = own.last_trained
    if current.session is not None:
        orders.session = current.session.exchange.session
    return orders


def _num_bytes(upload: Upload) -> int:
    """Returns the memory that an upload takes decoded."""
    mask_bytes = 0 if upload.mask is None else upload.mask.nbytes
    return upload.state.nbytes + mask_bytes + sum(array.nbytes for array in upload.report.values())
