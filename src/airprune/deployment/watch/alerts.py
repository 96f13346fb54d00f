"""Says what an operator should look at: missing and refused members, missed deadlines, certificates about to expire."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from airprune.deployment.fleet.registry import HeldModel, Job
from airprune.deployment.status import NodeStatus, Status
from airprune.deployment.watch.uploads import DeviceUploads
from airprune.text import counted

# A certificate is renewed a month before it expires, where the cloud can do that by itself; after half of it has not,
# an operator should.
EXPIRES_WITHIN_S = 14 * 86_400.0
KINDS = ("cloud", "missing", "refused", "deadline", "certificate", "software", "model", "job")


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One sentence.

    Attributes:
      kind: one of `KINDS`.
      node: whom it is about; None: no single node.
    """

    kind: str
    node: str | None
    words: str


def alerts_of(
    status: Status | None,
    devices: Mapping[str, DeviceUploads],
    *,
    jobs: Sequence[Job],
    held: Sequence[HeldModel],
    now_s: float,
) -> list[Alert]:
    """Returns the alerts of a deployment.

    Args:
      devices: uploads of the run at work or the last one, by name.
      held: what nodes reported of delivered models.
    """
    alerts = [] if status is None else list(_status_alerts(status, now_s))
    for name, uploads in devices.items():
        if uploads.last is not None and uploads.last.fate == "late":
            missed = f"{counted(uploads.fates['late'], 'upload')} of {uploads.fates.total():,}"
            words = f"missed the deadline of its last edge round; {missed} in this run."
            alerts.append(Alert(kind="deadline", node=name, words=words))
    for model in held:
        if model.trouble:
            alerts.append(Alert(kind="model", node=model.name, words=f"did not take the newest model: {model.trouble}"))
    if jobs and jobs[-1].state == "failed":
        alerts.append(Alert(kind="job", node=None, words=f"Job {jobs[-1].number} failed: {jobs[-1].reason}"))
    return sorted(alerts, key=lambda alert: KINDS.index(alert.kind))


def _status_alerts(status: Status, now_s: float) -> Iterator[Alert]:
    if status.is_stale(now_s):
        age = _duration(status.age_s(now_s))
        yield Alert(kind="cloud", node=None, words=f"The cloud does not answer: its last status is {age} old.")
    cloud = next((node for node in status.nodes if node.role == "cloud"), None)
    for node in status.nodes:
        yield from _node_alerts(node, status, None if cloud is None else cloud.software, now_s)


def _node_alerts(node: NodeStatus, status: Status, software: str | None, now_s: float) -> Iterator[Alert]:
    if node.trouble:
        yield Alert(kind="refused", node=node.name, words=node.trouble)
    elif not node.online and status.state != "ended":  # nodes of a run that has ended may leave
        seen = "never seen" if node.seen_s is None else f"last seen {_duration(now_s - node.seen_s)} ago"
        yield Alert(kind="missing", node=node.name, words=f"is not online, {seen}.")
    if node.expires_s is not None and node.expires_s - now_s < EXPIRES_WITHIN_S:
        left_s = node.expires_s - now_s
        words = f"expires in {_duration(left_s)}" if left_s > 0 else f"expired {_duration(-left_s)} ago"
        way_out = f"renew it with `airprune deploy renew` ({node.name})"
        yield Alert(kind="certificate", node=node.name, words=f"has a certificate that {words}; {way_out}.")
    if None not in (node.software, software) and node.software != software:
        yield Alert(kind="software", node=node.name, words="runs other files of airprune than the cloud.")


def _duration(seconds: float) -> str:
    for unit, name in ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute")):
        if seconds >= 2 * unit:
            return counted(math.floor(seconds / unit), name)
    return f"{max(seconds, 0.0):.0f} s"
