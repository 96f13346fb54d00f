"""Everything that changes during a run: what a checkpoint holds, without knowing what it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot
from airprune.methods.topology import Tree
from airprune.rounds.records import Totals

if TYPE_CHECKING:
    from airprune.rounds.planning_context import PlanningContext
    from airprune.rounds.sums import EdgeResult
    from airprune.rounds.timing import TimedRound
    from airprune.runs.store import DeviceStore

Array = np.ndarray
VALUES = "values/"


@dataclass(eq=False)
class RunState:
    """The state of a run.

    Attributes:
      tree: who averages whom; does not change.
      models: of every node; the root's comes first, the edges' last.  [num_nodes, num_state]
      values: slots of all components but those of devices, by name; with one row per edge where edges own them.
      store: slots of devices; None if no component has any.
      held: which entries some device sent since the last global round; None if not needed.  [num_state] bool
      global_round: the global round to run next.
      counters: rounds that each level has run in the current round of the level above; the last is the edge round to
        run next.
      latency_s: of those rounds, by level: rows with one entry per node; NaN where a node did not take part.
      totals: the simulated clock and what has been spent.
      diverged: why the run ends with this global round, in one sentence; empty for runs that have not diverged.
      stopped: why the run has ended before its last round, in a few words; empty unless it has.
    """

    tree: Tree
    models: Array
    values: dict[str, Array]
    store: DeviceStore | None = None
    held: Array | None = None
    global_round: int = 0
    counters: list[int] = field(default_factory=list)
    latency_s: list[list[list[float]]] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    diverged: str = ""
    stopped: str = ""

    @classmethod
    def initial(
        cls, start: Array, tree: Tree, slots: tuple[Slot, ...], shape: ModelShape, *, tracks_held: bool = False
    ) -> RunState:
        """Returns a state with the same model at every node and every slot as it starts."""
        return cls(
            tree=tree,
            models=np.tile(start, (tree.num_nodes, 1)),
            values={slot.name: _rows(slot, shape) for slot in slots if slot.owner != Owner.DEVICE},
            held=np.zeros(len(start), dtype=bool) if tracks_held else None,
            counters=[0] * tree.depth,
            latency_s=[[] for _ in range(tree.depth)],
        )

    @property
    def global_state(self) -> Array:
        """w_G.  [num_state]"""
        return self.models[0]

    @property
    def edge_states(self) -> Array:
        """w_k of every edge.  [num_edges, num_state]"""
        return self.models[self._edges]

    @cached_property
    def _edges(self) -> slice:
        return self.tree.nodes(self.tree.depth - 1)

    @property
    def clock_s(self) -> float:
        """The simulated time at which the edge round to come begins, by the clock of the slowest edge."""
        passed = [np.nansum(np.array(rows, dtype=np.float64), axis=0).max() for rows in self.latency_s if rows]
        return float(self.totals.time_s + sum(passed))

    @property
    def edge_round(self) -> int:
        return self.counters[-1]

    def close_edge_round(self, timed: TimedRound, results: Sequence[EdgeResult]) -> None:
        """Counts the edge round, keeps how long each edge took, and what was heard of the model."""
        if self.held is not None:
            for result in results:
                self.held |= result.held
        latency_s = np.full(len(self.edge_states), np.nan)
        latency_s[timed.planned.edges] = timed.edge_round_s
        self.latency_s[-1].append(latency_s.tolist())
        self.counters[-1] += 1

    def remove_for_good(self, stays: Array | None, prunable: slice) -> None:
        """Zeroes prunable weights that the method has removed, in the models of all nodes; None removes nothing."""
        if stays is not None:
            self.models[:, prunable] *= stays

    def close_global_round(self) -> None:
        """Counts the global round; what is counted per global round starts again."""
        self.global_round += 1
        self.counters[0] = 0
        self.latency_s[0] = []
        if self.held is not None:
            self.held[:] = False
        self.totals.start_global_round()

    def arrays(self) -> dict[str, Array]:
        held = {} if self.held is None else {"held": self.held}
        return {"models": self.models, **held, **{VALUES + name: array for name, array in self.values.items()}}

    def facts(self) -> dict[str, Any]:
        """The rest, in plain JSON."""
        return {
            "global_round": self.global_round,
            "counters": self.counters,
            "latency_s": [[[None if math.isnan(x) else x for x in row] for row in rows] for rows in self.latency_s],
            "totals": self.totals.as_dict(),
            **({"diverged": self.diverged} if self.diverged else {}),
            **({"stopped": self.stopped} if self.stopped else {}),
        }

    def restored(self, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> RunState:
        """This run's state as a checkpoint has it."""
        rows = [[[math.nan if x is None else x for x in row] for row in level] for level in facts["latency_s"]]
        return RunState(
            tree=self.tree,
            models=arrays["models"],
            values={name: arrays[VALUES + name] for name in self.values},
            store=self.store,
            held=None if self.held is None else arrays["held"],
            global_round=facts["global_round"],
            counters=list(facts["counters"]),
            latency_s=rows,
            totals=Totals(**facts["totals"]),
            diverged=facts.get("diverged", ""),
            stopped=facts.get("stopped", ""),
        )


def _rows(slot: Slot, shape: ModelShape) -> Array:
    row = slot.row(shape)
    return np.tile(row, (shape.num_edges, *[1] * row.ndim)) if slot.owner == Owner.EDGE else row


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """The indices and settings of one edge round, made once and used by all of its steps.

    Attributes:
      global_round: q, from 0.
      counters: rounds that each level of the tree has run in the current round of the level above.
      step: edge rounds since the start of the global round.
      round_index: edge rounds since the start of the run.
      edges: those that run this round, ascending.
      learning_rate: η.
      local_steps: τ_n of every device; None where it is as in every round.  [num_devices]
      context: what the round is planned and timed with.
    """

    global_round: int
    counters: tuple[int, ...]
    step: int
    round_index: int
    edges: Array
    learning_rate: float
    local_steps: Array | None
    context: PlanningContext

    @property
    def starts_global_round(self) -> bool:
        return not any(self.counters)
