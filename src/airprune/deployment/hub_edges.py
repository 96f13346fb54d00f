"""Edges as the cloud's hub holds them, and what is sent between the two."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from airprune.deployment.identity import Members
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Link, Sealed

Order = tuple[pb.EdgeRound, bytes]
Report = tuple[pb.EdgeReport, bytes]
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


def fleet_message(members: Members) -> pb.Fleet:
    """Returns the members as edges are sent them."""
    edges = {edge: members.addresses[edge] for edge in members.edges}
    homes = {device: edge for edge, devices in members.devices.items() for device in devices}
    return pb.Fleet(addresses=edges, homes=homes, standby=members.standby)


def ready_devices(child: Child) -> frozenset[int]:
    """Returns the devices of an edge that have said what they can do."""
    return frozenset(device for device, measured in child.devices.items() if measured.num_samples)
