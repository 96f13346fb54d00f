"""The work of an edge round, edge by edge: which devices train from which model, in chunks."""

from __future__ import annotations

import numpy as np

from airprune.methods.aggregation import Aggregation
from airprune.methods.registration import is_own
from airprune.methods.topology.base import HISTORY
from airprune.rounds.experiment import Experiment
from airprune.rounds.messages import Broadcast
from airprune.rounds.place import Place
from airprune.rounds.plan_round import RoundPlan
from airprune.rounds.state import RunState
from airprune.rounds.training.chunks import EdgeGroup, TrainTask, chunks_of

Array = np.ndarray

# A group of devices: its edge, how many rounds ago they began, their work.
Started = tuple[int, int, EdgeGroup]


def groups_of(run: Experiment, at: Place, state: RunState, plan: RoundPlan) -> list[Started]:
    """All devices that will make it, by edge and by when they began, in ascending order."""
    timed, here = plan.timed, plan.timed.takes_part
    pairs = distinct_pairs(timed.opened.edge[here], plan.lag[here])
    return [(edge, began, _group(run, at, state, plan, edge, began)) for edge, began in pairs]


def distinct_pairs(edge: Array, lag: Array) -> list[tuple[int, int]]:
    """Returns every (edge, lag) that occurs once, in ascending order.

    By one integer per pair: where numpy compares rows, it turns Ctrl-C into a TypeError.
    """
    span = int(lag.max(initial=0)) + 1
    return [divmod(key, span) for key in np.unique(edge * span + lag).tolist()]


def _group(run: Experiment, at: Place, state: RunState, plan: RoundPlan, edge: int, started: int) -> EdgeGroup:
    """The work of one edge: the devices that will make it, in runs of a chunk's worth of samples.

    Of devices that began at different times, those that began `started` rounds ago.
    """
    scenario, opened, method = run.scenario, plan.timed.opened, run.method
    positions = np.flatnonzero(plan.timed.takes_part & (opened.edge == edge) & (plan.lag == started))
    received = state.edge_states[edge].copy()
    if started:
        received = state.values[HISTORY][edge, started].astype(received.dtype)
    steps = at.local_steps
    tasks = [
        TrainTask(
            devices=tuple(opened.device[chunk].tolist()),
            keep=tuple(opened.keep[chunk].tolist()),
            weights=tuple(method.edge.weights(run.data_sizes[opened.device[chunk]]).tolist()),
            code=None if opened.code is None else tuple(opened.code[chunk].tolist()),
            group=None if opened.relay is None else tuple(opened.device[opened.relay.head[chunk]].tolist()),
            local_steps=None if steps is None else tuple(steps[opened.device[chunk]].tolist()),
            learning_rate=at.learning_rate,
            global_round=at.global_round,
            edge_round=at.step,
            round_index=at.round_index,
            store=state.store,
        )
        for chunk in chunks_of(positions, run.mean_samples_seen)
    ]
    return EdgeGroup(
        shared=Broadcast(
            model=received,
            mask=opened.mask,
            values={name: state.values[name] for name in method.objective.broadcast},
        ),
        tasks=tuple(tasks),
        travels=state.store is not None or is_own(method.edge),  # whose sums strangers cannot read
        aggregation=method.edge.at_rate(at.learning_rate),
        prunable=run.shape.prunable,
        drop_failing=scenario.engine.on_device_failure == "drop-device",
        store=state.store,
        served_weight=_served_weight(run, state, edge) if method.edge.overrides(Aggregation.absent) else None,
        min_contributors=scenario.aggregation.min_contributors,
    )


def _served_weight(run: Experiment, state: RunState, edge: int) -> float:
    """Σ c_n of all devices of an edge, selected or not."""
    samples = run.data_sizes[run.stations.serving(state.values) == edge]
    return float(run.method.edge.weights(samples).sum())
