"""The device process: dials its edge, trains what it is ordered to, sends its update at its bandwidth share.

    device → edge   hello; measured (with probes of the uplink); upload; keys and shares of secure sums
    edge → device   welcome, again for every run; orders; receipts; probes; shares; another edge; goodbye

What it must not forget is in its ledger, saved before each upload; so a device that is killed anywhere and started
again sends the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf.message import Message

from airprune.deployment.checks import MAX_WORDS, check_orders
from airprune.deployment.delivery.fetching import Fetching
from airprune.deployment.delivery.shelf import Shelf
from airprune.deployment.digests import digest_of
from airprune.deployment.edge_state import drop_old
from airprune.deployment.estimates import PROBE_BYTES, PROBES
from airprune.deployment.handshake import (
    RETRY_S,
    dial_parent,
    keep_certificate,
    log_if_new,
    say_hello,
    take_certificate,
)
from airprune.deployment.identity import Node, Parent, Role, save_parents, saved_parents
from airprune.deployment.identity.renewal import RENEW_BEFORE_DAYS, Renewal, with_renewed
from airprune.deployment.ledger import DeviceLedger, Result
from airprune.deployment.memory import give_back_memory
from airprune.deployment.own_data import samples_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.deployment.run_definition import RunDefinition, unexpected
from airprune.deployment.run_signature import check_run
from airprune.deployment.secure.device_sums import DeviceSums, FalseShare, check_hides
from airprune.deployment.secure.signing import Vouchers
from airprune.deployment.strikes import OncePerMinute
from airprune.deployment.training import Trainer, slowed
from airprune.deployment.transport import Limits, Link, LinkLost, Packet, Refused
from airprune.errors import AirpruneError, WorkFailed
from airprune.rounds.wire import broadcast_from_bytes
from airprune.text import plain

_log = logging.getLogger("airprune")


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """Settings of a device process.

    Attributes:
      data: see `own_data.samples_of`.
      patience_s: how long it waits for its home edge before it tries the others.
      mobile: heartbeats for links that come and go: every 5 s, dead after 20 s.
      slowdown: factor by which it computes slower than this machine; see `training.slowed`.
      only_hidden: whether it takes part only where its updates are hidden, see `device_sums.check_hides`: an edge could
        pass on an earlier run's scenario.
      renew_before_days: how long before its certificate expires it gets another.
    """

    data: str | None = None
    patience_s: float = 60.0
    mobile: bool = False
    slowdown: float = 1.0
    only_hidden: bool = False
    renew_before_days: float = RENEW_BEFORE_DAYS

    @property
    def limits(self) -> Limits:
        return Limits(beat_s=5.0, dead_after_s=20.0) if self.mobile else Limits()


class Device:
    """One device of a federation, in a running event loop.

    Args:
      folder: for the ledger.
    """

    def __init__(self, node: Node, folder: Path, settings: DeviceSettings) -> None:
        self.folder, self.settings = folder, settings
        self.renewal = Renewal(with_renewed(node, folder), folder, settings.renew_before_days)
        self.fetching = Fetching(Shelf(node, folder))
        self._offered: pb.ModelOffer | None = None
        self._dialled = self.node
        self._vouchers = Vouchers(self.node)
        self.parents = saved_parents(folder, node)
        self.home: Parent = self.parents[0]
        self.trainer: Trainer | None = None
        self.ledger: DeviceLedger | None = None
        self._welcomed: bytes = b""
        self._measured: pb.Measured | None = None
        self._newest: Packet | None = None
        self._ordered = asyncio.Event()
        self._training = threading.Lock()
        self._last_failure = ""
        self._said = OncePerMinute()
        self._unreachable_since_s = time.monotonic()

    @property
    def node(self) -> Node:
        """The node as it is now: its certificate is renewed in time."""
        return self.renewal.node

    async def run(self) -> str:
        """Serves run after run until its edge says goodbye; returns the words."""
        last = ""
        while True:
            link = await self._reach_an_edge()
            try:
                return await self._serve(link)
            except Refused as refusal:
                if refusal.is_final:
                    raise
                last = log_if_new(str(refusal), last)
                await asyncio.sleep(RETRY_S)
            except LinkLost as lost:
                self._said.info("%s", str(lost), of=self.home.name)
                self._unreachable_since_s = time.monotonic()
            finally:
                await link.close()

    async def _reach_an_edge(self) -> Link:
        """Dials the home edge, and the others only when home has been unreachable for long."""
        last = ""
        while True:
            unreachable_s = time.monotonic() - self._unreachable_since_s
            others = [parent for parent in self.parents if parent.name != self.home.name]
            for parent in [self.home, *(others if unreachable_s > self.settings.patience_s else [])]:
                try:
                    self._dialled = self.node
                    return await dial_parent(self._dialled, parent, self.settings.limits)
                except Refused as refusal:
                    if refusal.is_final:
                        raise
                    last = log_if_new(str(refusal), last)
                except LinkLost as lost:
                    last = log_if_new(str(lost), last)
            await asyncio.sleep(RETRY_S)

    async def _serve(self, link: Link) -> str:
        """Takes part in run after run on one link; returns the goodbye."""
        message = await say_hello(link)
        if message.stays and not message.run:
            _log.info("Connected to %s; waits for a job.", link.name)
        renewing = asyncio.create_task(keep_certificate(self.renewal, link))
        try:
            return await self._follow_runs(link, message)
        finally:
            renewing.cancel()

    async def _follow_runs(self, link: Link, message: Message) -> str:
        self.home = next(parent for parent in self.parents if parent.name == link.name)
        while isinstance(message, pb.Welcome):
            link.limits = replace(link.limits, max_payload_bytes=message.max_payload_bytes)
            self._take_parents(message.parents)
            trainer = await self._joined(link, message) if message.run else None
            if trainer is None:
                self.trainer, self.ledger = None, None
                give_back_memory()
                await self._take_offer(link)
            self._unreachable_since_s = time.monotonic()
            message = await self._follow_run(link, trainer)
        assert isinstance(message, pb.Goodbye)
        return plain(message.reason, MAX_WORDS)

    async def _joined(self, link: Link, welcome: pb.Welcome) -> Trainer | None:
        """Prepares for a run and says so; None if this device cannot take part, and another run may follow."""
        try:
            trainer = await self._prepared(welcome)
            await self._measure(link, trainer)
        except LinkLost:
            raise
        except Exception as error:
            await link.send(pb.Measured(run=welcome.run, trouble=str(error)[:MAX_WORDS] or type(error).__name__))
            if not welcome.stays:
                raise
            _log.error("Cannot take part in run %s: %s", welcome.run, error, exc_info=unexpected(error))
            return None
        _log.info("Serves %s in run %s with %d samples.", link.name, welcome.run, trainer.num_samples)
        return trainer

    async def _follow_run(self, link: Link, trainer: Trainer | None) -> pb.Welcome | pb.Goodbye:
        """Works until there is another run, or no more."""
        self._newest = None
        work = asyncio.create_task(self._work(link))

        def end_link(work: asyncio.Task[None]) -> None:
            if not work.cancelled():
                link.lose("the work has ended")

        work.add_done_callback(end_link)
        try:
            return await self._listen(link, trainer)
        except LinkLost:
            if work.done() and not work.cancelled():
                work.result()
            raise
        finally:
            work.cancel()

    async def _listen(self, link: Link, trainer: Trainer | None) -> pb.Welcome | pb.Goodbye:
        while True:
            packet = await link.receive()
            match packet.message:
                case pb.Orders() if trainer is not None:
                    self._newest = packet
                    self._ordered.set()
                case pb.SecureStep() if trainer is not None and trainer.sums is not None:
                    await self._take_secure_step(link, trainer.sums, packet)
                case pb.Receipt():
                    if packet.message.verdict != "counted":
                        verdict, reason = packet.message.verdict, packet.message.reason
                        self._said.info("Upload %s: %s", verdict[:MAX_WORDS], reason[:MAX_WORDS], of=link.name)
                case pb.Probe() if trainer is not None:
                    await self._measure(link, trainer, min(packet.message.bytes, PROBE_BYTES))
                case pb.Redial():
                    self._move_to(packet.message.edge)
                    raise LinkLost(f"Sent to {plain(packet.message.edge, MAX_WORDS)}.")
                case pb.Welcome():
                    if trainer is None or _run_of(packet.message) != self._welcomed:
                        return packet.message
                    self._take_parents(packet.message.parents)
                case pb.ModelOffer():
                    self._offered = packet.message
                    if trainer is None:
                        await self._take_offer(link)
                case pb.ModelFile():
                    await self.fetching.take_file(link, packet)
                case pb.Certificate():
                    take_certificate(self.renewal, packet.message)
                case pb.Goodbye():
                    return packet.message

    async def _take_secure_step(self, link: Link, sums: DeviceSums, packet: Packet) -> None:
        """Answers a step of a secure sum, or says why it cannot."""
        request = packet.message
        assert isinstance(request, pb.SecureStep)
        try:
            answer = await asyncio.to_thread(sums.answer, request, bytes(packet.payload))
        except WorkFailed as error:
            self._said.info("%s", str(error), of=link.name)
            trouble = pb.SecureStep(session=request.session, step=request.step, trouble=str(error)[:MAX_WORDS])
            if isinstance(error, FalseShare):
                trouble.accused = error.sender
            await link.send(trouble)
            return
        if answer is not None:
            await link.send(*answer)

    async def _take_offer(self, link: Link) -> None:
        """Gets the model that it was offered last; between runs, so that no upload waits behind it."""
        offer, self._offered = self._offered, None
        if offer is not None:
            await self.fetching.take_offer(link, offer)

    async def _work(self, link: Link) -> None:
        """Follows the newest orders; those that waited behind them would miss the deadline anyway."""
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            if self._newest is not None:
                packet, self._newest = self._newest, None
                await self._follow(link, packet)

    def _move_to(self, edge: str) -> None:
        for parent in self.parents:
            if parent.name == edge:
                self.home = parent
                return
        self._said.info("Sent to %s, whose address is not known; stays.", edge[:MAX_WORDS], of=self.home.name)

    def _take_parents(self, parents: Sequence[pb.Parent]) -> None:
        """Keeps the edges that it may dial, home first, where a restart finds them; addresses of the kit hold."""
        own = {parent.name: parent.address for parent in self.node.parents}
        federation = self.node.peer.federation
        found = tuple(Parent(p.name, Role.EDGE, own.get(p.name, p.address), federation) for p in parents)
        if found and found != self.parents:
            self.parents = found
            try:
                save_parents(self.folder, found)
            except OSError as error:
                _log.warning("%s was not written: %s.", self.folder, error.strerror)

    async def _prepared(self, welcome: pb.Welcome) -> Trainer:
        """Returns the trainer of the run, made once, when no training of another run is left; heartbeats go on."""
        received = _run_of(welcome)
        if self.trainer is None or received != self._welcomed:
            trainer, self.ledger = await asyncio.to_thread(self._prepare, welcome)
            self.trainer, self._welcomed, self._measured = trainer, received, None
        return self.trainer

    def _prepare(self, welcome: pb.Welcome) -> tuple[Trainer, DeviceLedger]:
        check_run(welcome, self.node)
        work = RunDefinition.from_welcome(welcome)
        if self.settings.only_hidden:
            check_hides(work)
        with self._training:
            samples = samples_of(self.settings.data, work, welcome.index)
            sums = DeviceSums(lambda: self._dialled, work, self._vouchers) if work.hides else None
            trainer = Trainer(work, welcome.index, samples, slowdown=self.settings.slowdown, sums=sums)
            drop_old(self.folder, "ledger-*.safetensors")
            return trainer, DeviceLedger.load(self._ledger_file(welcome.run), run=welcome.run)

    def _ledger_file(self, run: str) -> Path:
        return self.folder / f"ledger-{run}.safetensors"

    async def _measure(self, link: Link, trainer: Trainer, num_bytes: int = PROBE_BYTES) -> None:
        """Sends how fast it trains, with enough bytes to show how fast its uplink is."""
        if self._measured is None:
            parts = await asyncio.to_thread(trainer.part_seconds)
            seconds = parts[0][0] if parts else await asyncio.to_thread(trainer.seconds_per_sample)
            run = pb.Welcome.FromString(self._welcomed).run
            self._measured = pb.Measured(run=run, seconds_per_sample=seconds, num_samples=trainer.num_samples)
            for step_s, cached_s in parts:
                self._measured.parts.add(seconds=step_s, cached_seconds=cached_s)
            self._measured.kernel, self._measured.machine = trainer.kernel, platform.machine()
        for self._measured.num_more in reversed(range(PROBES)):
            await link.send(self._measured, os.urandom(num_bytes))

    async def _follow(self, link: Link, packet: Packet) -> None:
        """Trains, unless these orders came before, and uploads, unless newer ones have come."""
        assert isinstance(packet.message, pb.Orders)
        orders = packet.message
        key = RoundKey.of(orders)
        upload = pb.Upload(
            run=orders.run,
            global_round=orders.global_round,
            edge_round=orders.edge_round,
            round_index=orders.round_index,
            model_digest=orders.model_digest,
        )
        try:
            result = await asyncio.to_thread(self._result, key, orders, bytes(packet.payload))
        except Exception as error:
            upload.failure = self._failure_sentence(error)
            await link.send(upload)
            return
        if self._newest is not None:
            return
        upload.compute_s = result.compute_s
        await link.send(upload, result.upload, rate_bps=orders.rate_bps or None)

    def _failure_sentence(self, error: Exception) -> str:
        """Returns the failure in one sentence; its traceback is logged once, not in every round."""
        if isinstance(error, OSError):
            sentence = f"{self.folder} was not written: {error.strerror or error}; make room."
        elif isinstance(error, AirpruneError):
            sentence = str(error)
        else:
            sentence = "".join(traceback.format_exception_only(error)).strip()[:2_000]
        if sentence != self._last_failure:
            _log.error("%s", sentence, exc_info=unexpected(error))
        self._last_failure = sentence
        return sentence

    def _result(self, key: RoundKey, orders: pb.Orders, body: bytes) -> Result:
        """Waits for a training that a lost link has left behind: its result may be the one."""
        with self._training:
            trainer, ledger = self.trainer, self.ledger
            if trainer is None or ledger is None or ledger.run != key.run:
                raise WorkFailed(f"Run {key.run} is over on this device.")
            asked = _asked(orders)
            found = ledger.answer_to(key, last_counted=orders.last_counted, asked=asked)
            return found or self._train(trainer, ledger, key, asked, orders, body)

    def _train(
        self, trainer: Trainer, ledger: DeviceLedger, key: RoundKey, asked: str, orders: pb.Orders, body: bytes
    ) -> Result:
        check_orders(orders, trainer.work, trainer.num_samples)
        memory = ledger.memory_after(orders.last_counted)
        if memory is None:
            _log.warning(
                "The persistent state after round %d is lost; training starts from an empty one.", orders.last_counted
            )
            memory = {}
        start_s = time.perf_counter()
        with slowed(self.settings.slowdown):
            made = trainer.upload(orders, broadcast_from_bytes(body), memory)
        compute_s = time.perf_counter() - start_s
        if orders.HasField("local_steps"):  # the rest is planned beside them
            compute_s *= made.steps_share
        result = Result(
            key=key,
            round_index=orders.round_index,
            last_counted=orders.last_counted,
            asked=asked,
            upload=made.data,
            compute_s=compute_s,
            memory=made.memory,
        )
        longer = ledger.with_result(result)
        longer.save(self._ledger_file(key.run))
        if self.ledger is ledger:
            self.ledger = longer
        return result


def _run_of(welcome: pb.Welcome) -> bytes:
    """Returns all of a welcome that defines the run and this device's place in it."""
    run = pb.Welcome()
    run.CopyFrom(welcome)
    for name in ("parents", "signature", "certificate"):  # a restarted cloud signs the same run anew
        run.ClearField(name)
    return run.SerializeToString(deterministic=True)


def _asked(orders: pb.Orders) -> str:
    """Returns the digest of all orders that the result depends on."""
    fixed = pb.Orders(keep=orders.keep, learning_rate=orders.learning_rate, model_digest=orders.model_digest)
    if orders.HasField("code"):
        fixed.code = orders.code
    if orders.HasField("local_steps"):
        fixed.local_steps = orders.local_steps
    fixed.first_trained = orders.first_trained
    if orders.HasField("last_trained"):
        fixed.last_trained = orders.last_trained
    fixed.session = orders.session
    return digest_of(fixed.SerializeToString(deterministic=True)).hex()
