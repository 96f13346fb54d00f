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

from google.protobuf.message import Message

from airprune.deployment.checks import (
    MAX_TROUBLES,
    MAX_WORDS,
    note_trouble,
    trouble_in_held,
    trouble_in_presence,
)
from airprune.deployment.handshake import NotAdmitted, admit_child
from airprune.deployment.hub_edges import (
    Child,
    Order,
    Patience,
    Report,
    SentOrder,
    Unreachable,
    Waiting,
    fleet_message,
    ready_devices,
)
from airprune.deployment.identity import Members, Node, Role, load_denied, load_members, server_credentials
from airprune.deployment.identity.denied import FILE as DENIED_FILE
from airprune.deployment.identity.renewal import Signer
from airprune.deployment.peer_facts import PeerFacts, facts_in, peer_message, with_renewed
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_signature import sign_run
from airprune.deployment.strikes import MOST_REQUESTS, Impostors, OncePerMinute, PerMinute, Strikes
from airprune.deployment.transport import Limits, Link, LinkLost, Sealed, Server
from airprune.errors import AirpruneError
from airprune.text import plain

_log = logging.getLogger("airprune")
# Of rounds in a row that an edge may leave without a report, and how often one may be sent to it again.
_MOST_SILENT_ROUNDS, _MOST_REPEATS = 3, 3
# How often a device that is sent to another edge is waited for without success, in a run.
_MOST_MOVES = 3
# For an edge to read a message.
_SENT_WITHIN_S = 5.0
# Of models between cloud and edges, before they count as stuck.
_LEAST_BYTES_PER_S = 100_000.0
# After the deadline, an edge lets uploads that still come end for as long again. A step of a secure sum may take one.
_DEADLINES, _STEPS_OF_SUMS = 2, 3


class Hub:
    """All edges of a federation.

    Attributes:
      fleet: the members now.
      members: those of the run; `fleet` between runs.
      welcome: the definition of the run; one without a run between runs.
      serving: which node is the edge with each number; a standby edge may take the place of one that is unreachable.
      edges: those online, by name.
      known: certificate, software and last connection of every node that was ever connected, by name.
      bad_reports: how many were refused of each edge.
      troubles: why edges were refused, by name or address, the latest ones.
      strikes: edges that broke the rules of the run.
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
        self.known: dict[str, PeerFacts] = {}
        self.refused = 0
        self.bad_reports: Counter[str] = Counter()
        self.troubles: dict[str, str] = {}
        self.strikes, self._said, self._silent = Strikes(), OncePerMinute(), Counter[str]()
        self._asked = PerMinute()
        self._patience, self._stayed = Patience(), Counter[int]()
        self._homes: list[tuple[int, str]] = []
        self._placed: dict[int, str] = {}
        self._waiting: dict[str, Waiting] = {}
        self._unreachable: dict[str, Unreachable] = {}
        self._changed = asyncio.Event()
        self._impostors = Impostors(self.troubles, self.edges, self._notify)
        self._begun_s = time.monotonic()
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
        sign_run(welcome, self.node)
        self.serving = list(serving or (edge for edge in members.edges if edge not in members.standby))
        self.bad_reports.clear()
        self.strikes.clear()
        self._silent.clear()
        self._patience = Patience()
        self._stayed.clear()
        homes = [edge for edge in members.edges if edge not in members.standby]
        self._homes = [(number, edge) for number, edge in enumerate(homes) for _ in members.devices[edge]]
        self._placed = {}
        await self._start_afresh()

    async def end(self) -> None:
        """Lets all nodes wait for the next run."""
        self.members, self.welcome, self.serving = self.fleet, pb.Welcome(stays=self._stays), []
        await self._start_afresh()

    async def _start_afresh(self) -> None:
        self._unreachable.clear()
        self._begun_s = time.monotonic()
        for child in self.edges.values():
            child.devices, child.aside = {}, frozenset()
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
        await self._send(child, welcome)

    async def _send(self, child: Child, message: Message) -> None:
        """Sends an edge a message, and leaves it with its link if the edge does not read: no run waits for that."""
        with contextlib.suppress(LinkLost, TimeoutError):
            async with asyncio.timeout(_SENT_WITHIN_S):
                await child.link.send(message)

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
                stays=self._stays,
            ).name
        except NotAdmitted as trouble:
            await self._refuse(link, str(trouble), is_final=trouble.is_final)
            if link.name in self.edges:
                self._impostors.note(link.name)
            return None
        if name in self.strikes.aside:
            return await self._refuse(link, self.strikes.sentence(name), is_final=not self._stays)
        child = Child(name=name, link=link, about=peer_message(link, hello))
        self.edges[name] = child
        self.known[name] = facts_in(child.about, time.time())
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
            if link.broken_rule and not self.strikes.add(name, link.broken_rule):
                note_trouble(self.troubles, name, link.broken_rule)
            before = self._unreachable[name].devices if name in self._unreachable else frozenset()
            self._unreachable[name] = Unreachable(time.monotonic(), before | ready_devices(child))
            self._notify()
        return None

    async def _refuse(self, link: Link, reason: str, *, is_final: bool = False) -> None:
        self.refused += 1
        note_trouble(self.troubles, link.name, reason)
        self._said.info("Refused %s: %s", link.name, reason, of=link.name)
        await link.refuse(reason, is_final=is_final)

    async def _refuse_member(self, child: Child, reason: str) -> None:
        """Refuses an edge that broke a rule; it may dial again, unless it is set aside now."""
        if self.strikes.add(child.name, reason):
            await self._refuse(child.link, self.strikes.sentence(child.name), is_final=not self._stays)
        else:
            await self._refuse(child.link, reason)

    async def _listen(self, child: Child) -> None:
        while True:
            packet = await child.link.receive()
            match packet.message:
                case pb.Presence():
                    if trouble := self._take_presence(child, packet.message):
                        return await self._refuse_member(child, trouble)
                    self._notify()
                case pb.EdgeReport():
                    self._take_report(child.name, (packet.message, bytes(packet.payload)))
                case pb.ModelRequest():
                    if self._may_ask(child.name):
                        content = await asyncio.to_thread(self._read_model)
                        await child.link.send(pb.ModelFile(digest=packet.message.digest), content)
                case pb.ModelHeld():
                    if trouble := trouble_in_held(packet.message):
                        return await self._refuse_member(child, trouble)
                    await self._note_held(child, packet.message)
                case pb.CertificateRequest():
                    if self._may_ask(packet.message.name or child.name):
                        await child.link.send(await asyncio.to_thread(self._certificate, child, packet.message))
                case other:
                    reason = f"An edge sends presence and reports, got {type(other).__name__}."
                    return await self._refuse_member(child, reason)

    def _may_ask(self, name: str) -> bool:
        """True unless a member has asked for something too often within a minute."""
        return self._asked.add(name) <= MOST_REQUESTS

    async def _note_held(self, child: Child, held: pb.ModelHeld) -> None:
        """Notes which model an edge or one of its devices has; that this could not be written is not their fault."""
        name = held.name or child.name
        if (held.name and held.name not in self.fleet.all_devices) or not self._may_ask(name):
            return
        try:
            await asyncio.to_thread(self.on_held, name, held.version, plain(held.trouble, MAX_WORDS))
        except (AirpruneError, OSError) as error:
            self._said.info("%s", str(error), of=child.name)

    def _take_presence(self, child: Child, presence: pb.Presence) -> str:
        """Takes which devices an edge has; returns why that cannot be. Numbers of another run are left out."""
        if presence.run == self.welcome.run:
            if trouble := trouble_in_presence(presence, self.welcome.num_devices):
                return trouble
            child.devices = {device.device: device for device in presence.devices}
            child.late, child.refused = presence.late, presence.refused
            child.aside = frozenset(presence.aside).intersection(self.members.devices.get(child.name, ()))
        members, now_s = frozenset(self.fleet.all_devices), time.time()
        for name in members.intersection(presence.peers) - self._at_home_elsewhere(child):
            self.known[name] = facts_in(presence.peers[name], now_s)
            self.troubles.pop(name, None)  # whatever it tried here by mistake
        child.idle = members.intersection(presence.idle)
        troubles = sorted(presence.troubles.items())[:MAX_TROUBLES]
        before = child.troubles
        child.troubles = {plain(name, MAX_WORDS): plain(words, MAX_WORDS) for name, words in troubles}
        for name, words in child.troubles.items():
            if before.get(name) != words:
                of = name if name in self.fleet.devices.get(child.name, ()) else child.name
                self._said.info("%s reports of %s: %s", child.name, name, words, of=of)
        return ""

    def _at_home_elsewhere(self, child: Child) -> frozenset[str]:
        """Returns the devices that are connected to their own edge, of which another edge says nothing that counts."""
        names, found = self.members.all_devices if self.welcome.run else (), set[str]()
        for home, other in self.edges.items():
            if other is not child:
                there = other.idle.union(names[number] for number in other.devices)
                found |= there.intersection(self.fleet.devices.get(home, ()))
        return frozenset(found)

    def _certificate(self, child: Child, request: pb.CertificateRequest) -> pb.Certificate:
        """Returns the answer to a request of an edge, or of a device that is connected to it."""
        name = request.name or child.name
        if self.signer is None:
            trouble = "the cloud has no authority (deploy serve --authority); use `airprune deploy renew`."
            return pb.Certificate(name=request.name, trouble=trouble)
        if name != child.name and name not in self.fleet.all_devices:
            return pb.Certificate(name=request.name, trouble=f"{name} is not a member.")
        answer = self.signer.answer(request, name, self.denied)
        self._said.info("The certificate of %s was %s", name, answer.trouble or "renewed.", of=name)
        if name == child.name:
            child.about = with_renewed(child.about, answer)
            self.known[name] = facts_in(child.about, time.time())
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
            await self._refuse_member(self.edges[name], reason)
        else:
            self.strikes.add(name, reason)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def place_of(self, device: int) -> str | None:
        """Returns the name of the edge that a device is connected to; None if it is offline."""
        claims = [name for name, child in self.edges.items() if device in child.devices]
        return next((name for name in claims if self._may_serve(name, device)), claims[0] if claims else None)

    def _may_serve(self, name: str, device: int) -> bool:
        """True if an edge may say that it serves a device: one at home there, sent there, or without its own edge.

        Otherwise any edge could take part in the name of any device. A device that dials another edge while its own
        is there is sent home before a round.
        """
        number, home = self._homes[device]
        own = self.serving[number]
        return name in (home, own, self._placed.get(device)) or own not in self.edges

    def online_devices(self) -> dict[str, str]:
        """Returns the edge of every device that is connected, in the run or not, by name."""
        names = self.members.all_devices if self.welcome.run else ()
        found = {device: edge for edge, child in self.edges.items() for device in child.idle}
        in_run = ((edge, number) for edge, child in self.edges.items() for number in child.devices)
        return found | {names[number]: edge for edge, number in in_run if self._may_serve(edge, number)}

    def note_connected(self) -> None:
        """Notes that the nodes that are connected are so now."""
        now_s = time.time()
        for name in (*self.edges, *self.online_devices()):
            self.known[name] = replace(self.known.get(name, PeerFacts()), seen_s=now_s)

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
            if device in ready_devices(self.edges[name]) and self._may_serve(name, device)
        }

    async def wait_for(self, devices: set[int], within_s: float) -> bool:
        """Waits for these devices; True if all of them came within the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not devices <= self._ready() | self._aside():
                    await self._changed.wait()
        return devices <= self._ready() | self._aside()

    def _aside(self) -> set[int]:
        """Devices that are not waited for, since their own edge has set them aside, or is set aside itself."""
        aside = {name for child in self.edges.values() for name in child.aside}
        aside |= {name for edge in self.strikes.aside for name in self.members.devices.get(edge, ())}
        return {number for number, name in enumerate(self.members.all_devices) if name in aside} if aside else set()

    def _ready(self) -> set[int]:
        """Devices that some edge says are ready, wherever they are."""
        return {device for child in self.edges.values() for device in ready_devices(child)}

    async def settle(self, patience_s: float, gather_s: float) -> None:
        """Waits for edges that went a short time ago, then for the devices that they had: a restart costs only time.

        Args:
          patience_s: since an edge went, for itself and its devices.
          gather_s: at least so long for its devices.
        """
        for name in self.serving:
            left = self._unreachable.get(name)
            if left is None:
                continue
            began_s, within_s = time.monotonic(), self._patience.left_s(name, patience_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left.since_s + within_s - began_s):
                    while name not in self.edges:
                        await self._changed.wait()
            if name in self.edges:
                within_s = max(min(gather_s, within_s), left.since_s + within_s - time.monotonic())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(within_s):
                        while not left.devices <= self._ready() | self._aside():
                            await self._changed.wait()
                if self._unreachable.get(name) is left:
                    del self._unreachable[name]
            self._patience.spend(name, time.monotonic() - began_s)

    async def run_round(self, orders: Mapping[int, Order], patience_s: float) -> dict[int, Report | None]:
        """Sends each edge its round and waits for the reports.

        None for an edge that is unreachable for too long, or has not reported in time.
        """
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
        within_reach_s = self._patience.left_s(name, patience_s)
        try:
            if name in self.edges:
                waiting.sending = asyncio.create_task(self._send_order(self.edges[name].link, order))
            deadlines = _DEADLINES + (_STEPS_OF_SUMS if order[0].cohort else 0)
            within_s = deadlines * order[0].deadline_s + order[0].grace_s + patience_s
            within_s += len(order[1]) / _LEAST_BYTES_PER_S
            ends_s, away_since_s, num_sent = time.monotonic() + within_s, None, 1
            while not waiting.report.done():
                now_s = time.monotonic()
                if name not in self.edges:
                    away_since_s = now_s if away_since_s is None else away_since_s
                    if now_s - away_since_s > within_reach_s:
                        self._patience.spend(name, now_s - away_since_s)
                        return None
                elif away_since_s is not None and num_sent <= _MOST_REPEATS:  # it was sent its round again
                    self._patience.spend(name, now_s - away_since_s)
                    ends_s, away_since_s, num_sent = now_s + within_s, None, num_sent + 1
                    within_reach_s = self._patience.left_s(name, patience_s)
                elif now_s > ends_s and not self._is_coming(name, now_s):
                    await self._give_up(name, within_s)
                    return None
                await asyncio.wait([waiting.report], timeout=0.2)
            self._silent[name] = 0
            self._patience.make_good(name, patience_s)
            return waiting.report.result()
        finally:
            if waiting.sending is not None:
                waiting.sending.cancel()
            del self._waiting[name]

    def _is_coming(self, name: str, now_s: float) -> bool:
        """True if a report is on its way, and not too slowly."""
        coming = self.edges[name].link.coming
        if coming is None or not isinstance(coming[0], pb.EdgeReport):
            return False
        _, first_s, num_bytes = coming
        return num_bytes >= _LEAST_BYTES_PER_S * (now_s - first_s - 1.0)

    async def _send_order(self, link: Link, order: SentOrder) -> None:
        with contextlib.suppress(LinkLost):
            await link.send(*order)

    async def _give_up(self, name: str, within_s: float) -> None:
        """Goes on without an edge that is connected and does not report; after a few rounds, for the whole run."""
        reason = f"It must report within {within_s:.3g} s of its orders, and has not."
        note_trouble(self.troubles, name, reason)
        _log.warning("%s: %s", name, reason)
        self._silent[name] += 1
        if self._silent[name] >= _MOST_SILENT_ROUNDS:
            self.strikes.set_aside(name, reason)
            if name in self.edges:
                await self._refuse(self.edges[name].link, self.strikes.sentence(name), is_final=not self._stays)

    async def offer_model(self, offer: pb.ModelOffer, read: Callable[[], bytes]) -> None:
        """Offers a model to all edges, now and when they join; `read` returns its file."""
        self._offer, self._read_model = offer, read
        for child in list(self.edges.values()):
            await self._send(child, offer)

    async def place(self, wanted: Mapping[int, int], within_s: float) -> None:
        """Hands each device that is elsewhere over to the edge with its number, if both are there."""
        self._placed = {device: self.serving[edge] for device, edge in wanted.items()}
        places = {device: self.place_of(device) for child in self.edges.values() for device in child.devices}
        moves = [(d, edge) for d, edge in wanted.items() if places.get(d, self.serving[edge]) != self.serving[edge]]
        await asyncio.gather(*(self._move(device, edge, within_s) for device, edge in moves))

    async def _move(self, device: int, edge: int, within_s: float) -> None:
        place, wanted = self.place_of(device), self.serving[edge]
        if place is None or place == wanted or wanted not in self.edges:
            return
        within_s = within_s if self._stayed[device] < _MOST_MOVES else 0.0
        try:
            async with asyncio.timeout(within_s):
                await self.edges[place].link.send(pb.Redial(device=device, edge=wanted))
                while self.place_of(device) != wanted or device not in self.present():
                    await self._changed.wait()
            self._stayed[device] = 0
        except LinkLost:
            pass
        except TimeoutError:
            self._stayed[device] += 1
            if self._stayed[device] == _MOST_MOVES:
                name, reason = self.members.all_devices[device], f"It was sent from {place} to {wanted}, and stays."
                note_trouble(self.troubles, name, reason)
                _log.warning("%s is not waited for any longer: %s", name, reason)

    async def take_standby(self, patience_s: float = 0.0) -> list[tuple[str, str]]:
        """Puts standby edges in place of those unreachable for so long; returns (replaced, standby) for each."""
        free = [name for name in self.members.standby if name in self.edges and name not in self.serving]
        changes = []
        for number, name in enumerate(self.serving):
            left = self._unreachable.get(name)
            away_s = time.monotonic() - (self._begun_s if left is None else left.since_s)
            if name not in self.edges and free and away_s >= patience_s:
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
                if child.about.serial in denied:
                    reason = f"The certificate {child.about.serial} of {child.name} was revoked."
                    await self._refuse(child.link, reason, is_final=True)
                else:
                    await self._send(child, pb.Denied(serials=sorted(denied)))

    async def say_goodbye(self, reason: str) -> None:
        for child in list(self.edges.values()):
            await self._send(child, pb.Goodbye(reason=reason))
