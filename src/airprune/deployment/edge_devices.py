"""Serves the devices of an edge: admits them, takes their measurements and uploads, and sends them messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from google.protobuf.message import Message

from airprune.deployment.bounds import MOST_LINK_BPS
from airprune.deployment.checks import MAX_NAME, MAX_WORDS, note_trouble, trouble_in_held, trouble_in_measured
from airprune.deployment.delivery.shelf import Shelf
from airprune.deployment.estimates import PROBES, probed_uplink_bps
from airprune.deployment.handshake import NotAdmitted, admit_child
from airprune.deployment.identity import Node, Role
from airprune.deployment.peer_facts import peer_message, with_renewed
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import Event, Joined, Left, RoundKey
from airprune.deployment.strikes import MOST_REQUESTS, Impostors, OncePerMinute, PerMinute, Strikes
from airprune.deployment.transport import Link, LinkLost, Packet, Sealed
from airprune.text import plain

_log = logging.getLogger("airprune")
# More than the probes of a device take that is as fast as it was, and little of a round.
_PROBE_WITHIN_S = 1.0
_ASKS_TOO_OFTEN = f"It may ask for models and certificates {MOST_REQUESTS} times a minute; the rest is not answered."


class Listener(Protocol):
    """Receives what devices do."""

    def feed(self, event: Event) -> None: ...

    def take_upload(self, index: int, upload: pb.Upload, packet: Packet) -> None: ...

    def take_secure_step(self, index: int, message: pb.SecureStep, packet: Packet) -> None: ...


@dataclass(kw_only=True, eq=False)
class Child:
    """A device that is connected.

    Attributes:
      run, index: the run that it is in and its number there; empty and None if it is in none.
      about: its certificate and software.
      home: its edge when it joined.
      measured: what it can do in the run.
      welcomed: what it was sent last of the run.
      vouched: digests of the certificates of other devices that it was sent, for secure sums.
    """

    link: Link
    name: str
    about: pb.Presence.Peer
    home: str
    run: str = ""
    index: int | None = None
    measured: pb.Presence.Device = field(default_factory=pb.Presence.Device)
    welcomed: bytes = b""
    vouched: set[bytes] = field(default_factory=set)
    receipts: set[asyncio.Task[None]] = field(default_factory=set)
    probed_bps: deque[float] = field(default_factory=lambda: deque(maxlen=PROBES))
    probing: asyncio.Future[float] | None = None


class Devices:
    """Holds the links of an edge to its devices, in a running event loop.

    Args:
      start: runs what may go on beside.
      pass_on: sends a device's message to the cloud.
      shelf: delivered models that devices may ask for.

    Attributes:
      welcome: of the run, as the cloud said it; devices wait for `is_known`.
      connected: by name.
      online: those of them that are in the run, by number.
      late, refused: uploads that missed the deadline, and refused peers and uploads, so far.
      troubles: why devices were refused or cannot take part, by name or address, the latest ones.
      strikes: devices that broke the rules of the run.
      changed: set whenever the cloud should be sent anew which devices are online.
    """

    def __init__(
        self,
        node: Node,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        pass_on: Callable[[Message], Awaitable[None]],
        shelf: Shelf,
    ) -> None:
        self.node, self._start, self._pass_on, self._shelf = node, start, pass_on, shelf
        self._offer: pb.ModelOffer | None = None
        self.welcome: pb.Welcome | None = None
        self.denied: frozenset[str] = frozenset()
        self.connected: dict[str, Child] = {}
        self.online: dict[int, Child] = {}
        self.late = self.refused = 0
        self.troubles: dict[str, str] = {}
        self.strikes, self._said, self._asked = Strikes(), OncePerMinute(), PerMinute()
        self.is_known, self.changed = asyncio.Event(), asyncio.Event()
        self._impostors = Impostors(self.troubles, self.connected, self.changed.set)

    @property
    def run(self) -> str:
        """Id of the run; empty if there is none now."""
        return "" if self.welcome is None else self.welcome.run

    @property
    def ready(self) -> frozenset[int]:
        """Devices that are online and have said what they can do."""
        return frozenset(index for index, child in self.online.items() if child.measured.num_samples)

    def presence(self) -> pb.Presence:
        presence = pb.Presence(late=self.late, refused=self.refused, run=self.run, troubles=self.troubles)
        presence.devices.extend(child.measured for _, child in sorted(self.online.items()))
        for name, child in self.connected.items():
            presence.peers[name].CopyFrom(child.about)
        presence.idle.extend(name for name, child in self.connected.items() if child.index is None)
        presence.aside.extend(sorted(self.strikes.aside))
        return presence

    async def take_welcome(self, welcome: pb.Welcome) -> None:
        """Takes the run and the members from now on, and sends each device what has changed for it."""
        if welcome.run != self.run:
            self.strikes.clear()
        self.welcome = welcome
        self.is_known.set()
        for child in list(self.connected.values()):
            if child.name not in welcome.fleet.homes:
                self._start(self._refuse(child.link, f"{child.name} is no longer a member.", is_final=True))
                continue
            self._number(child)
            self._start(self._send_welcome(child))
            home = welcome.fleet.homes[child.name]
            if child.index is None and home != child.home:  # it has moved, and is in no run
                child.home = home
                if home != self.node.peer.name:
                    self._start(self._send(child, pb.Redial(edge=home)))
        await self.deny(welcome.denied)
        self.changed.set()

    def _number(self, child: Child) -> None:
        """Gives a device its number in the run, if it is in it; what it measured for another run is forgotten."""
        assert self.welcome is not None
        self._unnumber(child)
        run = self.welcome.run if child.name in self.welcome.devices else ""
        is_new, child.run = run != child.run, run
        if run:
            child.index = index = self.welcome.devices[child.name]
            self.online[index] = child
            if is_new:
                child.measured = pb.Presence.Device(device=index)

    def _unnumber(self, child: Child) -> None:
        if child.index is not None and self.online.get(child.index) is child:
            del self.online[child.index]
        child.index = None

    def _welcome_of(self, child: Child) -> pb.Welcome:
        """Returns what a device is to know: the run if it is in it, and the edges that it may dial."""
        assert self.welcome is not None
        own, fleet = pb.Welcome(stays=self.welcome.stays), self.welcome.fleet
        if child.index is not None:
            own.CopyFrom(self.welcome)
            own.index = child.index
            for name in ("devices", "denied", "fleet"):
                own.ClearField(name)
        for edge in dict.fromkeys((fleet.homes[child.name], *fleet.standby, *sorted(fleet.addresses))):
            own.parents.add(name=edge, address=fleet.addresses[edge])
        return own

    async def _send_welcome(self, child: Child) -> None:
        own = self._welcome_of(child)
        data = own.SerializeToString(deterministic=True)
        if data != child.welcomed:
            child.welcomed = data
            child.link.limits = replace(child.link.limits, max_payload_bytes=own.max_payload_bytes)
            await self._send(child, own)

    async def serve(self, link: Link, rounds: Listener) -> None:
        hello = (await link.receive()).message
        await self._wait_known(link)
        assert self.welcome is not None
        try:
            peer = admit_child(
                link,
                hello,
                federation=self.node.peer.federation,
                role=Role.DEVICE,
                names=self.welcome.fleet.homes,
                online=self.connected,
                denied=self.denied,
                stays=self.welcome.stays,
            )
        except NotAdmitted as trouble:
            await self._refuse(link, str(trouble), is_final=trouble.is_final)
            if link.name in self.connected:
                self._impostors.note(link.name)
            return None
        if peer.name in self.strikes.aside:
            return await self._refuse(link, self.strikes.sentence(peer.name), is_final=not self.welcome.stays)
        home = self.welcome.fleet.homes[peer.name]
        child = Child(link=link, name=peer.name, about=peer_message(link, hello), home=home)
        self.connected[child.name] = child
        self.troubles.pop(child.name, None)
        self._number(child)
        try:
            await self._send_welcome(child)
            await self._offer_to(child)
            self.changed.set()
            await self._listen(child, rounds)
        finally:
            index = child.index
            del self.connected[child.name]
            self._unnumber(child)
            self.changed.set()
            why = str(await link.wait_lost()) if link.is_lost else "The link was closed."
            if link.broken_rule and not self.strikes.add(child.name, link.broken_rule):
                note_trouble(self.troubles, child.name, link.broken_rule)
            if index is not None:
                rounds.feed(Left(index, time.monotonic(), why))
        return None

    async def _wait_known(self, link: Link) -> None:
        """Waits until the cloud has sent the run's definition, or the device has disconnected."""
        waits = [asyncio.ensure_future(wait) for wait in (self.is_known.wait(), link.wait_lost())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if link.is_lost:
            raise await link.wait_lost()

    async def _refuse(self, link: Link, reason: str, *, is_final: bool = False) -> None:
        self.refused += 1
        note_trouble(self.troubles, link.name, reason)
        self._said.info("Refused %s: %s", link.name, reason, of=link.name)
        with contextlib.suppress(LinkLost):
            await link.refuse(reason, is_final=is_final)
        self.changed.set()

    async def _listen(self, child: Child, rounds: Listener) -> None:
        while True:
            packet = await child.link.receive()
            match packet.message:
                case pb.Measured():
                    if packet.message.run != self.run:  # it was on its way when another run began
                        continue
                    if packet.message.trouble:
                        self._take_trouble(child, packet.message.trouble)
                    elif trouble := trouble_in_measured(packet.message):
                        return await self._refuse_member(child, trouble)
                    elif child.index is not None and (child.probing is not None or not child.measured.num_samples):
                        self._take_measured(child, packet.message, packet, rounds)
                case pb.Upload():
                    if child.index is not None:
                        rounds.take_upload(child.index, packet.message, packet)
                    if child.receipts:  # who does not read them is not read either
                        await asyncio.wait(child.receipts)
                case pb.SecureStep():
                    if child.index is not None:
                        rounds.take_secure_step(child.index, packet.message, packet)
                case pb.ModelHeld() if trouble := trouble_in_held(packet.message):
                    return await self._refuse_member(child, trouble)
                case pb.ModelRequest() | pb.CertificateRequest() | pb.ModelHeld():
                    if self._asked.add(child.name) <= MOST_REQUESTS:
                        await self._answer(child, packet.message)
                    else:
                        note_trouble(self.troubles, child.name, _ASKS_TOO_OFTEN)
                case other:
                    reason = f"A device sends measured, upload and secure steps, got {type(other).__name__}."
                    return await self._refuse_member(child, reason)

    async def _answer(self, child: Child, message: pb.ModelRequest | pb.CertificateRequest | pb.ModelHeld) -> None:
        """Sends a device a model, or passes on what is for the cloud."""
        if isinstance(message, pb.ModelRequest):
            await self._send_model(child, message.digest)
        else:
            message.name = child.name
            await self._pass_on(message)

    async def _refuse_member(self, child: Child, reason: str) -> None:
        """Refuses a device that broke a rule; it may dial again, unless it is set aside now."""
        if self.strikes.add(child.name, reason):
            reason = self.strikes.sentence(child.name)
            await self._refuse(child.link, reason, is_final=self.welcome is not None and not self.welcome.stays)
        else:
            await self._refuse(child.link, reason)

    def strike(self, device: int, reason: str, what: str = "Upload") -> None:
        """Counts an upload, or what else broke a rule: after a few, its device is refused."""
        child = self.online.get(device)
        if child is None:
            return
        note_trouble(self.troubles, child.name, reason)
        self._said.info("%s of %s refused: %s", what, child.name, reason, of=child.name)
        self.changed.set()
        if self.strikes.add(child.name, reason):
            is_final = self.welcome is not None and not self.welcome.stays
            self._start(self._refuse(child.link, self.strikes.sentence(child.name), is_final=is_final))

    def _take_trouble(self, child: Child, words: str) -> None:
        """Notes why a device cannot take part in the run; it stays, and may take part in the next one."""
        self._said.info("%s cannot take part: %s", child.name, words[:MAX_WORDS], of=child.name)
        note_trouble(self.troubles, child.name, words)
        self.changed.set()

    def _take_measured(self, child: Child, message: pb.Measured, packet: Packet, rounds: Listener) -> None:
        """Takes one of a few probes in a row; with the last one, a device that joins is ready."""
        child.probed_bps.append(probed_uplink_bps(packet.num_bytes, packet.first_s, packet.last_s))
        if message.num_more:
            return
        rate_bps = float(np.nanmedian(child.probed_bps)) if np.isfinite(child.probed_bps).any() else math.nan
        rate_bps = min(rate_bps, MOST_LINK_BPS) if math.isfinite(rate_bps) else math.nan
        child.probed_bps.clear()
        has_joined = child.measured.num_samples > 0
        child.measured = pb.Presence.Device(
            device=child.measured.device,
            seconds_per_sample=message.seconds_per_sample,
            uplink_bps=rate_bps,
            rtt_s=child.link.rtt_s,
            num_samples=message.num_samples,
            kernel=plain(message.kernel, MAX_NAME),
            machine=plain(message.machine, MAX_NAME),
            parts=message.parts,
        )
        self.changed.set()
        if child.probing is not None and not child.probing.done():
            child.probing.set_result(rate_bps)
        if not has_joined:
            rounds.feed(Joined(child.measured.device, time.monotonic()))

    async def probe(self, probes: Sequence[pb.Probe]) -> list[pb.Probed]:
        """Probes one device after the other, so that each has the air for itself; returns those that answered."""
        found = []
        for probe in probes:
            child = self.online.get(probe.device)
            if child is None or not child.measured.num_samples:
                continue
            child.probing = asyncio.get_running_loop().create_future()
            with contextlib.suppress(LinkLost, TimeoutError):
                async with asyncio.timeout(_PROBE_WITHIN_S):
                    await child.link.send(probe)
                    found.append(pb.Probed(device=probe.device, uplink_bps=await child.probing))
            child.probing = None
        return found

    async def send(self, device: int, message: Message, payload: Sealed | bytes = b"") -> None:
        """Sends a message to a device if it is online; one that is not gets it again when it joins."""
        child = self.online.get(device)
        if child is not None:
            await self._send(child, message, payload)

    async def _send(self, child: Child, message: Message, payload: Sealed | bytes = b"") -> None:
        with contextlib.suppress(LinkLost):
            await child.link.send(message, payload)

    async def offer_model(self, offer: pb.ModelOffer) -> None:
        """Offers a model, which this edge holds, to the devices that it is for, now and when they join."""
        self._offer = offer
        await asyncio.gather(*(self._offer_to(child) for child in list(self.connected.values())))

    async def _offer_to(self, child: Child) -> None:
        offer = self._offer
        if offer is not None and (not offer.devices or child.name in offer.devices):
            plain = pb.ModelOffer(manifest=offer.manifest, signature=offer.signature, certificate=offer.certificate)
            await self._send(child, plain)

    async def _send_model(self, child: Child, digest: str) -> None:
        version = await asyncio.to_thread(self._shelf.find, digest)
        if version:
            content = await asyncio.to_thread(self._shelf.content, version)
            await self._send(child, pb.ModelFile(digest=digest), content)

    async def send_to(self, name: str, message: Message) -> None:
        """Sends a message to a device by name, in a run or not."""
        if name in self.connected:
            child = self.connected[name]
            if isinstance(message, pb.Certificate):
                child.about = with_renewed(child.about, message)
                self.changed.set()
            await self._send(child, message)

    async def send_all(self, message: Message) -> None:
        for child in list(self.connected.values()):
            await self._send(child, message)

    def count_refusal(self) -> None:
        """Counts a refused upload."""
        self.refused += 1
        self.changed.set()

    def send_receipt(self, device: int, key: RoundKey, verdict: str, reason: str) -> None:
        child = self.online.get(device)
        if child is not None:
            receipt = pb.Receipt(
                run=key.run, global_round=key.global_round, edge_round=key.edge_round, verdict=verdict, reason=reason
            )
            task = self._start(self.send(device, receipt))
            child.receipts.add(task)
            task.add_done_callback(child.receipts.discard)

    async def deny(self, serials: Iterable[str]) -> None:
        self.denied = frozenset(serials)
        for child in list(self.connected.values()):
            if child.about.serial in self.denied:
                reason = f"The certificate {child.about.serial} of {child.name} was revoked."
                await self._refuse(child.link, reason, is_final=True)
