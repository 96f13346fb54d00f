"""Algorithm 1: hierarchical federated learning with model pruning, line for line.

Rounds count from 0 in code and from 1 in records. All randomness is addressed by seed, stream, round and device, so a
run that starts from a `State` continues as if it had never stopped.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from airprune.engines.base import MAX_TRIES, Engine
from airprune.experiment import Experiment
from airprune.federation.work import TEST_PART, EdgeAverage, EdgeWork, Failure, TrainChunk, chunks_of
from airprune.latency import global_round_latency_s
from airprune.learning.aggregate import cloud_average
from airprune.learning.optimisers import learning_rate_at
from airprune.records import Totals, edge_record, global_record
from airprune.round_plan import Fate, RoundPlan, plan_round

Array = np.ndarray
_log = logging.getLogger("airprune")


@dataclass(eq=False)
class State:
    """Everything that changes during a run: what a checkpoint holds.

    Attributes:
      global_state: w_G.  [num_state]
      edge_states: w_k.  [num_edges, num_state]
      global_round, edge_round: the round to run next; edge_round = E means that the cloud average comes next.
      edge_latency_s: of the edge rounds of this global round so far; NaN where an edge did not take part.
      totals: the simulated clock and what has been spent.
    """

    global_state: Array
    edge_states: Array
    global_round: int = 0
    edge_round: int = 0
    edge_latency_s: list[list[float]] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)

    @classmethod
    def initial(cls, experiment: Experiment) -> State:
        start = experiment.model.state.numpy().copy()
        return cls(global_state=start, edge_states=np.tile(start, (experiment.network.num_edges, 1)))


def run_rounds(experiment: Experiment, engine: Engine, state: State) -> Iterator[dict[str, Any]]:
    """Runs Algorithm 1 from `state` to the end; yields one record per edge round and per global round.

    `state` is up to date whenever a record is yielded.
    """
    rounds = experiment.scenario.rounds
    edge_rounds = np.array(experiment.scenario.edge_rounds_of)
    reported: set[int] = set()  # devices whose failure the user has read
    while state.global_round < rounds.global_rounds:  # line 2
        if state.edge_round == 0:
            state.edge_states[:] = state.global_state  # line 3
        while state.edge_round < edge_rounds.max():  # line 4
            edges = np.flatnonzero(state.edge_round < edge_rounds)
            yield _edge_round(experiment, engine, state, edges, reported)  # lines 5–15
        yield _global_round(experiment, engine, state)  # line 17


def _edge_round(
    experiment: Experiment, engine: Engine, state: State, edges: Array, reported: set[int]
) -> dict[str, Any]:
    """Plans, trains and averages one edge round of `edges`."""
    plan = plan_round(experiment, global_round=state.global_round, edge_round=state.edge_round, edges=edges)
    present = [edge for edge in plan.edges if plan.takes_part[plan.edge == edge].any()]
    averages = engine.reduce([_work(experiment, state, plan, edge) for edge in present])  # lines 5–15
    for edge, average in zip(present, averages, strict=True):
        state.edge_states[edge] = average.state  # Eq. (12)
    plan = _without_failed(reported, plan, averages)

    latency_s = np.full(experiment.network.num_edges, np.nan)
    latency_s[plan.edges] = plan.edge_latency_s
    state.edge_latency_s.append(latency_s.tolist())
    state.totals.add_round(plan, averages)
    state.edge_round += 1
    record = edge_record(state, plan, averages, _coverage(present, averages))
    if experiment.scenario.rounds.evaluate_every == "edge":
        record |= test_metrics(experiment, engine, _cloud_average(experiment, state))
    return record


def _work(experiment: Experiment, state: State, plan: RoundPlan, edge: int) -> EdgeWork:
    """The work of one edge: the devices that will make it, in runs of a chunk's worth of samples."""
    scenario = experiment.scenario
    positions = np.flatnonzero(plan.takes_part & (plan.edge == edge))
    sizes = experiment.data_sizes
    by_data = scenario.rounds.edge_average == "data"
    learning_rate = learning_rate_at(
        state.global_round,
        base=scenario.train.learning_rate,
        schedule=scenario.train.schedule,
        global_rounds=scenario.rounds.global_rounds,
        step_every=scenario.train.step_every,
        step_factor=scenario.train.step_factor,
    )
    per_device = float(np.mean(sizes)) * scenario.train.local_epochs
    chunks = [
        TrainChunk(
            devices=tuple(plan.device[chunk].tolist()),
            keep=tuple(plan.keep[chunk].tolist()),
            weights=tuple(sizes[plan.device[chunk]].astype(float).tolist() if by_data else [1.0] * len(chunk)),
            learning_rate=learning_rate,
            global_round=state.global_round,
            edge_round=state.edge_round,
        )
        for chunk in chunks_of(positions, per_device)
    ]
    return EdgeWork(
        shared=state.edge_states[edge].copy(),
        tasks=tuple(chunks),
        prunable=experiment.model.prunable,
        drop_failing=scenario.engine.on_device_failure == "drop-device",
    )


def _without_failed(reported: set[int], plan: RoundPlan, averages: list[EdgeAverage]) -> RoundPlan:
    """The plan as it came out: devices whose training failed for good are in no average."""
    failures = [failure for average in averages for failure in average.failures]
    if not failures:
        return plan
    failed = np.isin(plan.device, [failure.device for failure in failures])
    _report(reported, failures)
    return dataclasses.replace(
        plan,
        fate=np.where(failed, Fate.FAILED.value, plan.fate),
        uploaded_bits=np.where(failed, 0.0, plan.uploaded_bits),
    )


def _report(reported: set[int], failures: list[Failure]) -> None:
    """Each device's trouble once, where Python's logging sends it: by default to stderr."""
    for failure in failures:
        if failure.device not in reported:
            reported.add(failure.device)
            _log.error("Device %d failed %d times and is left out:\n%s", failure.device, MAX_TRIES, failure.trouble)


def _coverage(present: list[int], averages: list[EdgeAverage]) -> list[dict[str, Any]]:
    """How many devices kept each prunable weight, edge by edge: Γ of the paper."""
    return [
        {"edge": int(edge), "min_count": average.coverage.min_count, "num_uncovered": average.coverage.num_uncovered}
        for edge, average in zip(present, averages, strict=True)
    ]


def _global_round(experiment: Experiment, engine: Engine, state: State) -> dict[str, Any]:
    """Line 17: the cloud averages the edges, Eq. (13), and judges the result."""
    state.global_state = _cloud_average(experiment, state)
    latency_s = global_round_latency_s(state.edge_latency_s)
    state.totals.time_s += latency_s
    metrics = {}
    if experiment.scenario.rounds.evaluate_every != "never":
        metrics = test_metrics(experiment, engine, state.global_state)
    if experiment.scenario.diagnostics.gradients:
        metrics["gradient_sq"] = _gradient_sq(experiment, engine, state.global_state)
    record = global_record(state, latency_s, metrics)
    state.global_round += 1
    state.edge_round = 0
    state.edge_latency_s = []
    state.totals.start_global_round()
    return record


def _cloud_average(experiment: Experiment, state: State) -> Array:
    sizes = None
    if experiment.scenario.rounds.cloud_average == "data":
        sizes = np.bincount(experiment.network.edge, experiment.data_sizes, minlength=experiment.network.num_edges)
    return cloud_average(state.edge_states, sizes)


def test_metrics(experiment: Experiment, engine: Engine, model_state: Array) -> dict[str, float]:
    """Loss and accuracy on the test set, its parts judged in parallel and added in order."""
    size = len(experiment.dataset.test_y)
    parts = list(engine.map("evaluate", model_state, range(0, size, TEST_PART)))
    return {
        "test_loss": sum(loss for loss, _ in parts) / size,
        "test_accuracy": sum(correct for _, correct in parts) / size,
    }


def _gradient_sq(experiment: Experiment, engine: Engine, model_state: Array) -> float:
    """‖∇F(w_q)‖², F being the mean loss on the test set; the left side of Eq. (22), before 1/W."""
    size = len(experiment.dataset.test_y)
    parts = engine.map("test_gradient", model_state, range(0, size, TEST_PART))
    gradient = sum(parts) / size
    return float(np.square(gradient).sum())
