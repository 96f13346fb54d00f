"""What the nodes above the edges do: combine their children's models, Eq. (13)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from airprune.components.component import ModelShape
from airprune.methods.aggregation import Aggregation
from airprune.methods.topology import Tree
from airprune.rounds.backhaul import Backhaul
from airprune.rounds.sums import add_child

Array = np.ndarray


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
    """What the nodes of a level would have if every level below combined now; changes nothing.  [num_nodes, num_state]

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
