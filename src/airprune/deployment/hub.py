"""Holds the cloud's links to its edges: sends rounds out and takes reports in. Lives in an event loop.

It outlives runs: `begin` sends every edge the definition of a run, `end` that there is none now. Members may come and
go meanwhile; a run keeps to those that it has begun with.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from airprune.deployment.checks import MAX_WORDS, note_trouble, trouble_in_presence
from airprune.deployment.handshake import NotAdmitted, admit_child
from airprune.deployment.hub_edges import (
    Child,
    Order,
    Report,
    SentOrder,
    Unreachable,
    Waiting,
    fleet_message,
    ready_devices,
)
from airprune.deployment.identity import Members, Node, Role, load_denied, load_members, serial_of, server_credentials
from airprune.deployment.identity.denied import FILE as DENIED_FILE
from airprune.deployment.identity.renewal import Signer
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Limits, Link, LinkLost, Sealed, Server
from airprune.text import printable

_log = logging.getLogger("airprune")


class Hub:
    """All edges of a federation.

    Attributes:
      fleet: the members now.
      members: those of the run; `fleet` between runs.
      welcome: the definition of the run; one without a run between runs.
      serving: which node is the edge with each number; a standby edge may take the place of one that is unreachable.
      edges: those online, by name.
      bad_reports: how many were refused of each edge.
      troubles: why edges were refused, by name or address, the latest ones.
      signer: renews certificates; without one requests are answered with the reason.
      on_held: called with name, version and trouble when a node has taken a delivered model, or has not.
    """

    def __init__(self, node: Node, fleet: Members, limits: Limits, *, stays: bool = False) -> None:
        self.node, self.fleet, self.limits = node, fleet, limits
        self._stays = stays
        self.signer: Signer | None = None
        self.on_held: Callable[[str, int, str], None] = lambda name, version, trouble: None
        self._offer: pb.ModelOffer | None = None
        self._read_model: Callable[[], bytes] = bytes
        self.members, self.welcome, self.serving = fleet, pb.Welcome(stays=stays), list[str]()
        self.edges: dict[str, Child] = {}
        self.seen_s: dict[str, float] = {}
        self.refused = 0
        self.bad_reports: Counter[str] = Counter()
        self.troubles: dict[str, str] = {}
        self._waiting: dict[str, Waiting] = {}
        self._unreachable: dict[str, Unreachable] = {}
        self._changed = asyncio.Event()
        self.denied = load_denied(self._denied_file)

    @property
    def _denied_file(self) -> Path:
        return self.node.folder / DENIED_FILE

    def server(self) -> Server:
        assert self.node.listen is not None
        return Server(
            self.node.listen,
            credentials=server_credentials(self.node),
            on_link=self._serve,
            limits=self.limits,
        )

    async def begin(self, welcome: pb.Welcome, members: Members, serving: Sequence[str] | None = None) -> None:
        """Sends the definition of a run to all edges, now and when they join."""
        self.members, self.welcome = members, welcome
        self.welcome.stays = self._stays
        self.serving = list(serving or (edge for edge in members.edges if edge not in members.standby))
        self.bad_reports.clear()
        await self._start_afresh()

    async def end(self) -> None:
        """Lets all nodes wait for the next run."""
        self.members, self.welcome, self.serving = self.fleet, pb.Welcome(stays=self._stays), []
        await self._start_afresh()

    async def _start_afresh(self) -> None:
        self._unreachable.clear()
        for child in self.edges.values():
            child.devices = {}
        await self._welcome_all()

    async def _welcome_all(self) -> None:
        await asyncio.gather(*(self._welcome(child) for child in list(self.edges.values())))

    async def _welcome(self, child: Child) -> None:
        welcome = pb.Welcome()
        welcome.CopyFrom(self.welcome)
        if welcome.run:
            welcome.devices.update({device: n for n, device in enumerate(self.members.all_devices)})
        if child.name in self.members.edges:
            welcome.index = self.members.edges.index(child.name)
        welcome.denied.extend(sorted(self.denied))
        welcome.fleet.CopyFrom(fleet_message(self.fleet))
        child.link.limits = replace(child.link.limits, max_payload_bytes=self.welcome.max_payload_bytes)
        with contextlib.suppress(LinkLost):
            await child.link.send(welcome)

    async def _serve(self, link: Link) -> None:
        hello = (await link.receive()).message
        try:
            name = admit_child(
                link,
                hello,
                federation=self.node.peer.federation,
                role=Role.EDGE,
                names=self.fleet.edges,
                online=self.edges,
                denied=self.denied,
            ).name
        except NotAdmitted as trouble:
            return await self._refuse(link, str(trouble), is_final=trouble.is_final)
        child = Child(name=name, link=link, serial=serial_of(link.peer.certificate_pem))
        self.edges[name] = child
        try:
            await self._welcome(child)
            self.troubles.pop(name, None)
            if self._offer is not None:
                await link.send(self._offer)
            self._notify()
            if name in self._waiting:
                await link.send(*self._waiting[name].order)
            await self._listen(child)
        finally:
            del self.edges[name]
            before = self._unreachable[name].devices if name in self._unreachable else frozenset()
            self._unreachable[name] = Unreachable(time.monotonic(), before | ready_devices(child))
            self._notify()
        return None

    async def _refuse(self, link: Link, reason: str, *, is_final: bool = False) -> None:
        self.refused += 1
        note_trouble(self.troubles, link.name, reason)
        _log.info("Refused %s: %s", link.name, reason)
        await link.refuse(reason, is_final=is_final)

    async def _listen(self, child: Child) -> None:
        while True:
            packet = await child.link.receive()
            self.seen_s[child.name] = time.monotonic()
            match packet.message:
                case pb.Presence():
                    if trouble := self._take_presence(child, packet.message):
                        return await self._refuse(child.link, trouble)
                    self._notify()
                case pb.EdgeReport():
                    self._take_report(child.name, (packet.message, bytes(packet.payload)))
                case pb.ModelRequest():
                    content = await asyncio.to_thread(self._read_model)
                    await child.link.send(pb.ModelFile(digest=packet.message.digest), content)
                case pb.ModelHeld():
                    held = packet.message
                    if not held.name or held.name in self.fleet.all_devices:
                        trouble = printable(held.trouble[:MAX_WORDS])
                        await asyncio.to_thread(self.on_held, held.name or child.name, held.version, trouble)
                case pb.CertificateRequest():
                    await child.link.send(await asyncio.to_thread(self._certificate, child, packet.message))
                case other:
                    reason = f"An edge sends presence and reports, got {type(other).__name__}."
                    return await self._refuse(child.link, reason)

    def _take_presence(self, child: Child, presence: pb.Presence) -> str:
        """Takes which devices an edge has; returns why that cannot be. Numbers of another run are left out."""
        if presence.run == self.welcome.run:
            if trouble := trouble_in_presence(presence, self.welcome.num_devices):
                return trouble
            child.devices = {device.device: device for device in presence.devices}
            child.late, child.refused = presence.late, presence.refused
        child.idle = frozenset(presence.idle).intersection(self.fleet.all_devices)
        child.troubles = {name: printable(words[:MAX_WORDS]) for name, words in presence.troubles.items()}
        return ""

    def _certificate(self, child: Child, request: pb.CertificateRequest) -> pb.Certificate:
        """Returns the answer to a request of an edge, or of a device that is connected to it."""
        name = request.name or child.name
        if self.signer is None:
            trouble = "the cloud has no authority (deploy serve --authority); use `airprune deploy renew`."
            return pb.Certificate(name=request.name, trouble=trouble)
        if name != child.name and name not in self.fleet.all_devices:
            return pb.Certificate(name=request.name, trouble=f"{name} is not a member.")
        answer = self.signer.answer(request, name, self.denied)
        _log.info("The certificate of %s was %s", name, answer.trouble or "renewed.")
        return answer

    def _take_report(self, name: str, report: Report) -> None:
        waiting = self._waiting.get(name)
        if waiting is None or waiting.report.done():
            return
        ordered = waiting.order[0]
        got = report[0]
        if (got.run, got.global_round, got.edge_round) == (ordered.run, ordered.global_round, ordered.edge_round):
            waiting.report.set_result(report)

    async def refuse_report(self, name: str, reason: str) -> None:
        """Refuses an edge whose report cannot be."""
        self.bad_reports[name] += 1
        if name in self.edges:
            await self._refuse(self.edges[name].link, reason)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def place_of(self, device: int) -> str | None:
        """Returns the name of the edge that a device is connected to; None if it is offline."""
        return next((name for name, child in self.edges.items() if device in child.devices), None)

    def online_devices(self) -> dict[str, str]:
        """Returns the edge of every device that is connected, in the run or not, by name."""
        names = self.members.all_devices if self.welcome.run else ()
        found = {device: edge for edge, child in self.edges.items() for device in child.idle}
        return found | {names[number]: edge for edge, child in self.edges.items() for number in child.devices}

    def trouble_of(self, name: str) -> str:
        """Returns why a member is not online or cannot take part, as far as that is known; empty if it is not."""
        found = (child.troubles.get(name) for child in self.edges.values())
        return next(filter(None, (self.troubles.get(name), *found)), "")

    def present(self) -> dict[int, tuple[int, pb.Presence.Device]]:
        """Returns (number of its edge, what was measured) for every device that an edge of the network serves."""
        return {
            device: (number, measured)
            for number, name in enumerate(self.serving)
            if name in self.edges
            for device, measured in self.edges[name].devices.items()
            if device in ready_devices(self.edges[name])
        }

    async def wait_for(self, devices: set[int], within_s: float) -> bool:
        """Waits for these devices; True if all of them came within the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not devices <= self.present().keys():
                    await self._changed.wait()
        return devices <= self.present().keys()

    async def settle(self, patience_s: float, gather_s: float) -> None:
        """Waits for edges that went a short time ago, then for the devices that they had: a restart costs only time."""
        for name in self.serving:
            left = self._unreachable.get(name)
            if left is None:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left.since_s + patience_s - time.monotonic()):
                    while name not in self.edges:
                        await self._changed.wait()
            if name in self.edges:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(gather_s):
                        while not left.devices <= {d for child in self.edges.values() for d in ready_devices(child)}:
                            await self._changed.wait()
                if self._unreachable.get(name) is left:
                    del self._unreachable[name]

    async def run_round(self, orders: Mapping[int, Order], patience_s: float) -> dict[int, Report | None]:
        """Sends each edge its round and waits for the reports; None for an edge that is unreachable for too long."""
        numbers = list(orders)
        payloads: list[Sealed] = []  # edges are mostly sent the same
        for _, payload in orders.values():
            same = next((one for one in payloads if one.data.obj == payload), None)
            payloads.append(same or Sealed(payload))
        reports = await asyncio.gather(
            *(
                self._run_round(self.serving[n], (orders[n][0], sealed), patience_s)
                for n, sealed in zip(numbers, payloads, strict=True)
            )
        )
        return dict(zip(numbers, reports, strict=True))

    async def _run_round(self, name: str, order: SentOrder, patience_s: float) -> Report | None:
        waiting = Waiting(order, asyncio.get_running_loop().create_future())
        self._waiting[name] = waiting
        try:
            if name in self.edges:
                with contextlib.suppress(LinkLost):
                    await self.edges[name].link.send(*order)
            away_since_s = None
            while not waiting.report.done():
                if name in self.edges:
                    away_since_s = None
                else:
                    now_s = time.monotonic()
                    away_since_s = now_s if away_since_s is None else away_since_s
                    if now_s - away_since_s > patience_s:
                        return None
                await asyncio.wait([waiting.report], timeout=0.2)
            return waiting.report.result()
        finally:
            del self._waiting[name]

    async def offer_model(self, offer: pb.ModelOffer, read: Callable[[], bytes]) -> None:
        """Offers a model to all edges, now and when they join; `read` returns its file."""
        self._offer, self._read_model = offer, read
        for child in list(self.edges.values()):
            with contextlib.suppress(LinkLost):
                await child.link.send(offer)

    async def place(self, wanted: Mapping[int, int], within_s: float) -> None:
        """Hands each device that is elsewhere over to the edge with its number, if both are there."""
        places = {device: name for name, child in self.edges.items() for device in child.devices}
        moves = [(d, edge) for d, edge in wanted.items() if places.get(d, self.serving[edge]) != self.serving[edge]]
        await asyncio.gather(*(self._move(device, edge, within_s) for device, edge in moves))

    async def _move(self, device: int, edge: int, within_s: float) -> None:
        place, wanted = self.place_of(device), self.serving[edge]
        if place is None or place == wanted or wanted not in self.edges:
            return
        with contextlib.suppress(LinkLost):
            await self.edges[place].link.send(pb.Redial(device=device, edge=wanted))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.place_of(device) != wanted or device not in self.present():
                    await self._changed.wait()

    async def take_standby(self) -> list[tuple[str, str]]:
        """Puts standby edges in place of unreachable ones; returns (replaced, standby) for each."""
        free = [name for name in self.members.standby if name in self.edges and name not in self.serving]
        changes = []
        for number, name in enumerate(self.serving):
            if name not in self.edges and free:
                self.serving[number] = standby = free.pop(0)
                if name in self._unreachable:
                    self._unreachable[standby] = self._unreachable.pop(name)
                changes.append((name, standby))
        return changes

    async def refresh_fleet(self) -> None:
        """Reads the members again and sends them to the edges if they have changed."""
        fleet = load_members(self.node.folder)
        if fleet == self.fleet:
            return
        self.fleet = fleet
        if not self.welcome.run:
            self.members = fleet
        for child in list(self.edges.values()):
            if child.name not in fleet.devices:
                with contextlib.suppress(LinkLost):
                    await self._refuse(child.link, f"{child.name} is no longer a member.", is_final=True)
        await self._welcome_all()

    async def refresh_denied(self) -> None:
        """Reads the deny list again and sends it to the edges if it has changed."""
        denied = load_denied(self._denied_file)
        if denied == self.denied:
            return
        self.denied = denied
        for child in list(self.edges.values()):
            with contextlib.suppress(LinkLost):
                if child.serial in denied:
                    reason = f"The certificate {child.serial} of {child.name} was revoked."
                    await self._refuse(child.link, reason, is_final=True)
                else:
                    await child.link.send(pb.Denied(serials=sorted(denied)))

    async def say_goodbye(self, reason: str) -> None:
        for child in list(self.edges.values()):
            with contextlib.suppress(LinkLost):
                await child.link.send(pb.Goodbye(reason=reason))
