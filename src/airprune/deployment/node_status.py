"""Describes edges and devices as the cloud's hub knows them, and says who is missing and why."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from airprune.deployment.hub import Hub
from airprune.deployment.identity import Members, serial_of
from airprune.deployment.identity.peers import expiry_of
from airprune.deployment.peer_facts import PeerFacts, software_digest
from airprune.deployment.status import NodeStatus
from airprune.runs.measured import MeasuredRow

# Of missing devices, how many are named in one sentence.
_MOST_NAMED = 12


@dataclass
class Outcomes:
    """Counts the outcomes of devices in a run, by name."""

    late: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    last: dict[str, str] = field(default_factory=dict)

    def take(self, rows: Iterable[MeasuredRow]) -> None:
        for row in rows:
            if row.name is not None:
                self.last[row.name] = row.fate
                self.late[row.name] += row.fate == "late"
                self.refused[row.name] += row.fate == "refused"


def node_statuses(hub: Hub, members: Members, outcomes: Outcomes) -> tuple[NodeStatus, ...]:
    """Returns the status of the cloud, of every edge, then of every device; call it in the hub's loop."""
    hub.note_connected()
    places, rtts = hub.online_devices(), _rtts_s(hub)
    edges = (_edge_status(hub, name) for name in members.edges)
    homes = [(device, edge) for edge, devices in members.devices.items() for device in devices]
    devices = (_device_status(hub, name, home, places, rtts, outcomes) for name, home in homes)
    return (_cloud_status(hub), *edges, *devices)


def _cloud_status(hub: Hub) -> NodeStatus:
    node = hub.node
    return NodeStatus(
        name=node.peer.name,
        role="cloud",
        online=True,
        seen_s=time.time(),
        software=software_digest(),
        serial=serial_of(node.certificate),
        expires_s=expiry_of(node.certificate),
    )


def _edge_status(hub: Hub, name: str) -> NodeStatus:
    child = hub.edges.get(name)
    return NodeStatus(
        name=name,
        role="edge",
        online=child is not None,
        rtt_s=None if child is None else _finite(child.link.rtt_s),
        late=0 if child is None else child.late,
        refused=hub.bad_reports[name] + (0 if child is None else child.refused),
        trouble=hub.trouble_of(name) or None,
        **_facts(hub, name),
    )


def _device_status(
    hub: Hub, name: str, home: str, places: Mapping[str, str], rtts: Mapping[str, float], outcomes: Outcomes
) -> NodeStatus:
    return NodeStatus(
        name=name,
        role="device",
        edge=places.get(name),
        home=home,
        online=name in places,
        rtt_s=_finite(rtts.get(name, math.nan)),
        late=outcomes.late[name],
        refused=outcomes.refused[name],
        last_fate=outcomes.last.get(name),
        trouble=hub.trouble_of(name) or None,
        **_facts(hub, name),
    )


def _facts(hub: Hub, name: str) -> dict[str, Any]:
    return asdict(hub.known.get(name, PeerFacts()))


def known_from(nodes: Iterable[NodeStatus]) -> dict[str, PeerFacts]:
    """Returns what a status says of nodes, as `Hub.known` holds it: a restarted cloud does not forget it."""
    names = [field.name for field in fields(PeerFacts)]
    return {node.name: PeerFacts(**{name: getattr(node, name) for name in names}) for node in nodes}


def _rtts_s(hub: Hub) -> dict[str, float]:
    names = hub.members.all_devices
    ready = (pair for child in hub.edges.values() for pair in child.devices.items() if pair[1].num_samples)
    return {names[number]: device.rtt_s for number, device in ready}


def missing_sentence(hub: Hub) -> str:
    """Names the devices of the run that are not ready, each with the reason as far as it is known."""
    names, present = hub.members.all_devices, hub.present()
    missing = [name for number, name in enumerate(names) if number not in present]
    homes = {device: edge for edge, devices in hub.members.devices.items() for device in devices}
    shown = [f"{name} ({_reason(hub, name, homes[name])})" for name in missing[:_MOST_NAMED]]
    if len(missing) > _MOST_NAMED:
        shown.append(f"{len(missing) - _MOST_NAMED} more")
    return f"{len(present)} of {len(names)} devices are ready; missing: {', '.join(shown)}." if missing else ""


def _reason(hub: Hub, name: str, home: str) -> str:
    places = hub.online_devices()
    if trouble := hub.trouble_of(name):
        return trouble.removesuffix(".")
    if name in places:
        return f"at {places[name]}, preparing"
    if home not in hub.edges:
        trouble = hub.trouble_of(home).removesuffix(".")
        return f"its edge {home} is " + (f"refused: {trouble}" if trouble else "not connected")
    if trouble := hub.trouble_of(home):
        return f"its edge {home} cannot take part: {trouble.removesuffix('.')}"
    return f"not connected to {home}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
