"""The nodes above the edges: they wait for their children, combine their models, Eq. (13), and send the result down.

What travels between them is an update, through the compression of the links' own (`Backhaul`):

    v_parent ← combination of v_parent + Q(v_child − v_parent)

With a weighted mean this is v_parent += Σ share · Q(v_child − v_parent) (Hier-Local-QSGD), at every level of a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from airprune.components.component import ModelShape
from airprune.methods.aggregation import Aggregation
from airprune.methods.compression.base import Compression, Wire, transmit
from airprune.methods.topology import Tree
from airprune.methods.topology.base import RootRound, RootView
from airprune.randomness import rng_for
from airprune.rounds.parts import RECEIVED_BITS
from airprune.rounds.recording import node_record
from airprune.rounds.rollback import Verdict, update_length, verdict_on
from airprune.rounds.sums import add_child
from airprune.wireless.latency import global_round_latency_s

if TYPE_CHECKING:
    from airprune.rounds.experiment import Experiment
    from airprune.rounds.method import Method
    from airprune.rounds.state import RunState
    from airprune.simulation.environment import Environment

Array = np.ndarray


class Linked(Protocol):
    """A run with links above its edges: an `Experiment`, or one whose clients are not ours."""

    @property
    def backhaul(self) -> Backhaul: ...
    @property
    def method(self) -> Method: ...
    @property
    def counts_links(self) -> bool: ...


def middle_rounds(run: Experiment, state: RunState, environment: Environment) -> Iterator[dict[str, Any]]:
    """Nodes between edges and cloud whose children have run all their rounds combine them and send the result down."""
    tree = state.tree
    for level in range(tree.depth - 1, 0, -1):
        if not state.counters[level] or (state.counters[level] < tree.max_rounds(level) and not state.diverged):
            continue
        closing = tree.active(level - 1, state.counters[:level])
        out = environment.out(state)
        models, verdicts = with_last_good(run, state, level, combined(run, state, level, out), out)
        state.models[tree.nodes(level - 1)][closing] = models[closing]
        took_s, bits = latency_s(run, state, level), count_links(run, state, level)
        state.latency_s[level - 1].append(np.where(closing, took_s, np.nan).tolist())
        state.latency_s[level] = []
        state.counters[level] = 0
        state.counters[level - 1] += 1
        send_down(state, level - 1)
        nodes = np.flatnonzero(closing)
        rolled_back = [node for node in nodes.tolist() if verdicts[node].rolled_back]
        yield node_record(state, level - 1, state.counters[level - 1], nodes, took_s[closing], bits, rolled_back)


def latency_s(run: Linked, state: RunState, level: int) -> Array:
    """Time each parent of a level's nodes waits for the slowest child: its rounds, then its link.  [num_parents]

    Where the downlink is charged, the link also carries the model down before the child's first round.
    """
    part = state.tree.levels[level]
    rows = np.array(state.latency_s[level], dtype=np.float64).reshape(-1, part.num_nodes)
    link_s = (run.backhaul.bits + _down_bits(run, level)) / part.rate_bps
    if np.any(link_s > 0.0):
        took_part = ~np.isnan(rows).all(axis=0)
        rows = np.vstack([rows, np.where(took_part, link_s, np.nan)])
    parents = state.tree.nodes(level - 1)
    return np.array([global_round_latency_s(rows[:, part.parent == p]) for p in range(parents.stop - parents.start)])


def _down_bits(run: Linked, level: int) -> float:
    """Bits that a node of a level gets from its parent per round of that; 0 where they are free or nothing is sent."""
    return run.backhaul.down_bits if level > run.method.topology.top else 0.0


def count_links(run: Linked, state: RunState, level: int) -> tuple[float, float] | None:
    """Adds what the links above a level's nodes carried in a round of their parents; returns the bits (up, down).

    None, and nothing added, where the downlink is free or the topology counts them itself.
    """
    if not run.counts_links:
        return None
    rows = np.array(state.latency_s[level], dtype=np.float64).reshape(-1, state.tree.levels[level].num_nodes)
    took_part = int(np.count_nonzero(~np.isnan(rows).all(axis=0))) if level > run.method.topology.top else 0
    up, down = took_part * run.backhaul.bits, took_part * _down_bits(run, level)
    state.totals.backhaul_bits += up + down
    return up, down


def waited_s(state: RunState, took_s: float) -> Array:
    """Returns how long each edge waited in a global round that took so long, after its own edge rounds.  [num_edges]

    In trees deeper than the paper's those since the last round of its parent count.
    """
    rows = np.array(state.latency_s[-1], dtype=np.float64).reshape(-1, state.tree.levels[-1].num_nodes)
    mine_s = np.nansum(rows, axis=0)
    waits = np.isfinite(mine_s)  # an edge with a device that has no rate at all never ends, and waits for no other
    return np.maximum(np.subtract(took_s, mine_s, out=np.zeros_like(mine_s), where=waits), 0.0)


def send_down(state: RunState, level: int) -> None:
    """Gives every node below a level the model of its ancestor there."""
    for below in range(level + 1, state.tree.depth):
        parents = state.models[state.tree.nodes(below - 1)]
        state.models[state.tree.nodes(below)] = parents[state.tree.levels[below].parent]


def combined(run: Experiment, state: RunState, level: int, out: Array | None = None) -> Array:
    """The combined models of all parents of a level's nodes, as links brought them.  [num_parents, num_state]

    Args:
      out: edges that do not count.  [num_edges] bool
    """
    return combine_level(
        run.method.cloud.at_rate(run.learning_rate(state)),
        run.tree,
        state.models,
        level,
        run.station_samples(state),
        run.backhaul,
        run.round_index(state),
        out if level == run.tree.depth - 1 else None,
    )


def with_last_good(
    run: Experiment, state: RunState, level: int, models: Array, out: Array | None = None
) -> tuple[Array, list[Verdict]]:
    """Returns the models of a level's parents, with those that they had where the combined ones explode; verdicts.

    Children are named by their numbers in the level. Where `aggregation.rollback` is none, every verdict is good.

    Args:
      models: as `combined` has them.  [num_parents, num_state]
      out: edges that do not count.  [num_edges] bool
    """
    most, tree = run.scenario.aggregation.rollback, run.tree
    if most is None:
        return models, [Verdict()] * len(models)
    parents, children = state.models[tree.nodes(level - 1)], state.models[tree.nodes(level)]
    kept, verdicts = [], []
    for p, (model, parent) in enumerate(zip(models, parents, strict=True)):
        nodes = np.flatnonzero(tree.levels[level].parent == p)
        if out is not None and level == tree.depth - 1:
            nodes = nodes[~out[nodes]]
        lengths = [update_length(children[node], parent) for node in nodes]
        suspected, rolled_back = verdict_on(update_length(model, parent), lengths, most)
        kept.append(parent if rolled_back else model)
        verdicts.append(Verdict(tuple(nodes[list(suspected)].tolist()), rolled_back))
    return np.stack(kept), verdicts


def combined_now(run: Experiment, state: RunState, top: int = -1) -> Array:
    """Returns the models of a level's nodes as if every level below combined now; −1 is the root.

    Changes nothing.  [num_nodes, num_state]
    """
    return combined_up_to(
        top,
        run.method.cloud.at_rate(run.learning_rate(state)),
        run.tree,
        state.models,
        run.station_samples(state),
        run.backhaul,
        run.round_index(state),
    )


def root_round(run: Experiment, state: RunState) -> RootRound | None:
    """Returns the topology's own round at the root, if it has one."""
    if RECEIVED_BITS not in state.values:
        return None
    view = RootView(
        network=run.network,
        radio=run.radio,
        edge=run.stations.serving(state.values),
        received_bits=state.values[RECEIVED_BITS],
        model_bits=run.backhaul.bits,
        down_bits=run.backhaul.down_bits,
        num_weights=run.shape.num_weights,
        cloud_rate_bps=lambda: run.stations.cloud_rates_bps(run.round_index(state), state.values, state.clock_s),
    )
    return run.method.topology.root(view)


def combine_children(
    aggregation: Aggregation, children: Iterable[Array], samples: Array, previous: Array, shape: ModelShape
) -> Array:
    """One parent's combined model, children in their order.

    Args:
      children: their models as the parent received them.  [num_children] of [num_state]
      samples: that each child stands for.  [num_children]
      previous: what the parent has.  [num_state]
    """
    total = aggregation.Sum.zeros(shape.num_state, shape.prunable)
    for model, weight in zip(children, aggregation.weights(samples).tolist(), strict=True):
        add_child(aggregation, total, model, None, weight, previous)
    return aggregation.finish(total, previous)


def combine_level(
    aggregation: Aggregation,
    tree: Tree,
    models: Array,
    level: int,
    samples: Array,
    backhaul: Backhaul,
    round_index: int,
    out: Array | None = None,
) -> Array:
    """The combined models of all parents of a level's nodes.  [num_parents, num_state]

    Args:
      models: of all nodes.  [num_nodes, num_state]
      samples: of the devices of each station, by the network.  [num_edges]
      backhaul: what the children's models travel through.
      round_index: edge rounds since the start of the run.
      out: nodes of the level that do not count; a parent with no other keeps its model.  [num_nodes] bool
    """
    part = tree.levels[level]
    children, parents = models[tree.nodes(level)], models[tree.nodes(level - 1)]
    counts = tree.samples_below(level, samples)
    combined = []
    for p, parent in enumerate(parents):
        counts_here = part.parent == p if out is None else (part.parent == p) & ~out
        nodes = np.flatnonzero(counts_here).tolist()
        arrived = (backhaul.received(children[node], parent, round_index, level, node) for node in nodes)
        known = combine_children(aggregation, arrived, counts[nodes], parent, backhaul.shape) if nodes else parent
        combined.append(known)
    return np.stack(combined)


def combined_up_to(
    top: int, aggregation: Aggregation, tree: Tree, models: Array, samples: Array, backhaul: Backhaul, round_index: int
) -> Array:
    """Returns the models of a level's nodes if all levels below combined now; changes nothing.  [num_nodes, num_state]

    Args:
      top: number of the level; −1 is the root.
    """
    if top == tree.depth - 1:
        return models[tree.nodes(top)]
    if top == tree.depth - 2:
        return combine_level(aggregation, tree, models, tree.depth - 1, samples, backhaul, round_index)
    models = models.copy()
    for level in range(tree.depth - 1, top, -1):
        combined = combine_level(aggregation, tree, models, level, samples, backhaul, round_index)
        models[tree.nodes(level - 1)] = combined
    return models[tree.nodes(top)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Backhaul:
    """The code of the links above the edges; without memory, whatever its options say.

    Attributes:
      extra_bits: that travel beside the model, e.g. control variates.
      sends_down: whether models on their way down are charged.
    """

    compression: Compression
    wire: Wire
    shape: ModelShape
    seed: int
    extra_bits: float = 0.0
    sends_down: bool = False

    @cached_property
    def bits(self) -> float:
        """Bits of a whole model on one link."""
        return float(self.compression.message_bits(self.wire, self.shape.num_weights)) + self.extra_bits

    @cached_property
    def down_bits(self) -> float:
        """Bits of a whole model on its way down, where that is charged: uncompressed, as a child gets it."""
        return self.shape.num_weights * self.wire.value_bits + self.extra_bits if self.sends_down else 0.0

    def received(self, child: Array, parent: Array, *address: int) -> Array:
        """A child's model as its parent decodes it.  [num_state]

        Args:
          parent: the model that both know.  [num_state]
          address: of the randomness: round, level, node.
        """
        if self.compression.exact(self.wire):
            return child
        index = self._weight_index
        base = parent[index].astype(np.float64)
        rng = rng_for(self.seed, "backhaul", *address)
        update = child[index].astype(np.float64) - base
        decoded, _, _ = transmit(self.compression, self.wire, update, self._starts, None, rng)
        arrived = child.copy()
        arrived[index] = (base + decoded).astype(child.dtype)
        return arrived

    @cached_property
    def _weight_index(self) -> Array:
        return np.flatnonzero(self.shape.is_weight)

    @cached_property
    def _starts(self) -> Array:
        stops = [tensor.stop for tensor in self.shape.tensors if tensor.counted]
        return np.concatenate([[0], np.searchsorted(self._weight_index, stops)])
