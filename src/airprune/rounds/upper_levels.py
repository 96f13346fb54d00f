"""The nodes above the edges: what they wait for, combine and send down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.methods.topology.base import RootRound, RootView
from airprune.rounds.cloud import combine_level, combined_up_to
from airprune.rounds.experiment import Experiment
from airprune.rounds.parts import RECEIVED_BITS
from airprune.rounds.recording import node_record
from airprune.rounds.state import RunState
from airprune.wireless.channel import full_band_rates
from airprune.wireless.latency import global_round_latency_s

if TYPE_CHECKING:
    from airprune.simulation.environment import Environment

Array = np.ndarray


def middle_rounds(run: Experiment, state: RunState, environment: Environment) -> Iterator[dict[str, Any]]:
    """Nodes between edges and cloud whose children have run all their rounds combine them and send the result down."""
    tree = state.tree
    for level in range(tree.depth - 1, 0, -1):
        if not state.counters[level] or (state.counters[level] < tree.max_rounds(level) and not state.diverged):
            continue
        closing = tree.active(level - 1, state.counters[:level])
        models = combined(run, state, level, environment.out(state))
        state.models[tree.nodes(level - 1)][closing] = models[closing]
        took_s = latency_s(run, state, level)
        state.latency_s[level - 1].append(np.where(closing, took_s, np.nan).tolist())
        state.latency_s[level] = []
        state.counters[level] = 0
        state.counters[level - 1] += 1
        send_down(state, level - 1)
        nodes = np.flatnonzero(closing)
        yield node_record(state, level - 1, state.counters[level - 1], nodes, took_s[closing])


def latency_s(run: Experiment, state: RunState, level: int) -> Array:
    """How long each parent of a level's nodes waits for the slowest child: its rounds, then its link.  [num_parents]"""
    part = state.tree.levels[level]
    rows = np.array(state.latency_s[level], dtype=np.float64).reshape(-1, part.num_nodes)
    link_s = run.backhaul.bits / part.rate_bps
    if np.any(link_s > 0.0):
        took_part = ~np.isnan(rows).all(axis=0)
        rows = np.vstack([rows, np.where(took_part, link_s, np.nan)])
    parents = state.tree.nodes(level - 1)
    return np.array([global_round_latency_s(rows[:, part.parent == p]) for p in range(parents.stop - parents.start)])


def send_down(state: RunState, level: int) -> None:
    """Every node below a level takes the model of its ancestor there."""
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


def combined_now(run: Experiment, state: RunState, top: int = -1) -> Array:
    """What the nodes of a level would have if every level below combined now; −1 is the root.

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
    """What the topology's own round at the root takes, if it has one."""
    if RECEIVED_BITS not in state.values:
        return None
    view = RootView(
        network=run.network,
        radio=run.radio,
        edge=run.stations.serving(state.values),
        received_bits=state.values[RECEIVED_BITS],
        model_bits=run.backhaul.bits,
        num_weights=run.shape.num_weights,
        cloud_rate_bps=lambda: full_band_rates(
            run.network.flat(), run.radio, seed=run.scenario.seed, round_index=run.round_index(state)
        ),
    )
    return run.method.topology.root(view)
