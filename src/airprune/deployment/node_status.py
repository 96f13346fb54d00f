"""Describes edges and devices as the cloud's hub knows them, and says who is missing and why."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airprune.deployment.hub import Hub
from airprune.deployment.identity import Members
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
    """Returns the status of every edge, then of every device; call it in the hub's loop."""
    places, rtts = hub.online_devices(), _rtts_s(hub)
    edges = (_edge_status(hub, name) for name in members.edges)
    devices = (_device_status(hub, name, places, rtts, outcomes) for name in members.all_devices)
    return (*edges, *devices)


def _edge_status(hub: Hub, name: str) -> NodeStatus:
    child, seen_s = hub.edges.get(name), hub.seen_s.get(name)
    return NodeStatus(
        name=name,
        role="edge",
        online=child is not None,
        seen_s_ago=None if seen_s is None else time.monotonic() - seen_s,
        rtt_s=None if child is None else _finite(child.link.rtt_s),
        late=0 if child is None else child.late,
        refused=hub.bad_reports[name] + (0 if child is None else child.refused),
        trouble=hub.trouble_of(name) or None,
    )


def _device_status(
    hub: Hub, name: str, places: Mapping[str, str], rtts: Mapping[str, float], outcomes: Outcomes
) -> NodeStatus:
    return NodeStatus(
        name=name,
        role="device",
        edge=places.get(name),
        online=name in places,
        rtt_s=_finite(rtts.get(name, math.nan)),
        late=outcomes.late[name],
        refused=outcomes.refused[name],
        last_fate=outcomes.last.get(name),
        trouble=hub.trouble_of(name) or None,
    )


def _rtts_s(hub: Hub) -> dict[str, float]:
    names = hub.members.all_devices
    return {names[n]: device.rtt_s for child in hub.edges.values() for n, device in child.devices.items()}


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
