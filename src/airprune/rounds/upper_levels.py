"""The nodes above the edges: what they wait for, combine and send down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.rounds.experiment import Experiment
from airprune.rounds.recording import node_record
from airprune.rounds.state import RunState
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
        combined = run.combined(state, level, environment.out(state))
        state.models[tree.nodes(level - 1)][closing] = combined[closing]
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
