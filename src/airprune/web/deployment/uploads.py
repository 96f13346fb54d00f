"""The uploads of a run as they are drawn: at most `MAX_POINTS`, evenly thinned; and the last edge rounds."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

from airprune.deployment.watch.uploads import UploadsFile
from airprune.runs.measured import MeasuredRow
from airprune.web.runs.thinning import Thinned

MAX_POINTS = 2_000
MAX_ROUNDS = 200
POINT_COLUMNS = (
    "round", "name", "fate",
    "arrived_s", "deadline_s", "planned_compute_s", "compute_s", "planned_uplink_s", "uplink_s",
)  # fmt: skip


@dataclass
class Round:
    """An edge round: its deadline, the last arrival, and outcomes."""

    global_round: int
    edge_round: int
    deadline_s: float | None = None
    last_s: float | None = None
    fates: Counter[str] = field(default_factory=Counter)


class DrawnUploads(UploadsFile):
    """Keeps what charts and the table of rounds need.

    Attributes:
      points: uploads, in the order of `POINT_COLUMNS`.
      rounds: the last ones, by number.
    """

    def clear(self) -> None:
        super().clear()
        self.points: Thinned[tuple[Any, ...]] = Thinned(MAX_POINTS)
        self.rounds: OrderedDict[int, Round] = OrderedDict()

    def note(self, row: MeasuredRow, name: str, fate: str) -> None:
        self.points.append((row.round, name, fate, *(getattr(row, column) for column in POINT_COLUMNS[3:])))
        about = self.rounds.setdefault(row.round, Round(row.global_round, row.edge_round))
        about.fates[fate] += 1
        if row.deadline_s is not None:
            about.deadline_s = max(row.deadline_s, about.deadline_s or 0.0)
        if row.arrived_s is not None:
            about.last_s = max(row.arrived_s, about.last_s or 0.0)
        while len(self.rounds) > MAX_ROUNDS:
            self.rounds.popitem(last=False)
