"""Edges as the cloud's hub holds them, and what is sent between the two."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from airprune.deployment.identity import Members
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Link, Sealed

Order = tuple[pb.EdgeRound, bytes]
Report = tuple[pb.EdgeReport, bytes]
# Of waits for an edge in a run over the patience with it; and what a report makes good for.
_MOST_PATIENCE, _MADE_GOOD = 3.0, 0.05
SentOrder = tuple[pb.EdgeRound, Sealed]


@dataclass(kw_only=True, eq=False)
class Child:
    """An edge that is online.

    Attributes:
      about: its certificate and software.
      devices: that it serves in the run, by number.
      idle: names of others that are connected to it.
      troubles: why devices were refused there or cannot take part, by name.
      aside: names of devices that take no part in the rest of the run.
    """

    name: str
    link: Link
    about: pb.Presence.Peer
    devices: dict[int, pb.Presence.Device] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    troubles: dict[str, str] = field(default_factory=dict)
    aside: frozenset[str] = frozenset()
    late: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Unreachable:
    """Remembers an edge that was online: since when it is unreachable, and the devices that it had."""

    since_s: float
    devices: frozenset[int]


@dataclass(eq=False)
class Waiting:
    """A round that an edge was sent, and its report."""

    order: SentOrder
    report: asyncio.Future[Report]
    sending: asyncio.Task[None] | None = None


class Patience:
    """Limits how long a run waits for edges that are away: one that goes again and again is not waited for any longer.

    In all that is three times the cloud's patience; every report makes good for a twentieth of it.
    """

    def __init__(self) -> None:
        self._waited_s: dict[str, float] = {}

    def left_s(self, name: str, patience_s: float) -> float:
        """Returns how long to wait for an edge now."""
        return min(patience_s, max(_MOST_PATIENCE * patience_s - self._waited_s.get(name, 0.0), 0.0))

    def spend(self, name: str, waited_s: float) -> None:
        """Notes that it was waited for."""
        self._waited_s[name] = self._waited_s.get(name, 0.0) + waited_s

    def make_good(self, name: str, patience_s: float) -> None:
        """Notes that it has reported."""
        self._waited_s[name] = max(self._waited_s.get(name, 0.0) - _MADE_GOOD * patience_s, 0.0)


def fleet_message(members: Members) -> pb.Fleet:
    """Returns the members as edges are sent them."""
    edges = {edge: members.addresses[edge] for edge in members.edges}
    homes = {device: edge for edge, devices in members.devices.items() for device in devices}
    return pb.Fleet(addresses=edges, homes=homes, standby=members.standby)


def ready_devices(child: Child) -> frozenset[int]:
    """Returns the devices of an edge that have said what they can do."""
    return frozenset(device for device, measured in child.devices.items() if measured.num_samples)
