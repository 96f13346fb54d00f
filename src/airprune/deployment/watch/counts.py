"""Counts what a deployment has and has done. `/metrics`, `deploy status` and the Deployment page all show this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airprune.deployment.fleet.registry import STATES, Totals
from airprune.deployment.status import ROLES, Status
from airprune.runs.measured import FATES


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The counts of a deployment at one moment.

    Attributes:
      nodes, online: members, and those of them that are online, by role.
      jobs: by state; none for the folder of a single run.
      uploads: by outcome, over all jobs.
      models: deliveries so far; `holders` are the nodes that hold the newest.
      alerts: by kind.
    """

    nodes: Mapping[str, int]
    online: Mapping[str, int]
    jobs: Mapping[str, int]
    edge_rounds: int
    uploads: Mapping[str, int]
    upload_bytes: int
    models: int
    holders: int
    alerts: Mapping[str, int]


def count(
    status: Status | None,
    *,
    job_states: Sequence[str],
    totals: Iterable[Totals],
    held_versions: Sequence[int],
    newest_version: int,
    alert_kinds: Sequence[str],
) -> Counts:
    """Counts; every role, outcome and state is there from the start, so that a rate can be taken of the first one."""
    uploads, edge_rounds, upload_bytes = Counter(dict.fromkeys(FATES, 0)), 0, 0
    for run in totals:
        uploads.update(run.uploads)
        edge_rounds += run.edge_rounds
        upload_bytes += run.upload_bytes
    return Counts(
        nodes={role: 0 if status is None else status.count(role) for role in ROLES[1:]},
        online={role: 0 if status is None else status.online(role) for role in ROLES[1:]},
        jobs={state: job_states.count(state) for state in STATES} if job_states else {},
        edge_rounds=edge_rounds,
        uploads=dict(uploads),
        upload_bytes=upload_bytes,
        models=newest_version,
        holders=0 if not newest_version else sum(version == newest_version for version in held_versions),
        alerts=dict(Counter(alert_kinds)),
    )
