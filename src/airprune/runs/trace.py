"""`trace_round`: a run up to one edge round, and all that happened in it.

The run is the ordinary one. Only the wanted round goes through `ObservedGroup`: its devices train one by one instead of
at once, which gives the same bits, and their uploads are copied on the way to the sum.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from airprune.checks import whole_number
from airprune.engines.base import Engine
from airprune.rounds.experiment import Experiment
from airprune.rounds.state import RunState
from airprune.rounds.sums import EdgeResult
from airprune.rounds.timing import TimedRound
from airprune.rounds.training.chunks import Started
from airprune.rounds.training.observed import DeviceTrace, ObservedGroup
from airprune.runs.driver import records_of
from airprune.runs.round_trace import RoundTrace
from airprune.scenario import Scenario
from airprune.scenario.scenario import checked_scenario
from airprune.simulation import Environment

Array = np.ndarray
Observed = tuple[int, int, ObservedGroup]


def trace_round(
    scenario: Scenario,
    global_round: int = 1,
    edge_round: int = 1,
    *,
    model: Any = None,
    dataset: Any = None,
    loss: Any = None,
    metric: Any = None,
    train: Any = None,
    optimizer: Any = None,
) -> RoundTrace:
    """Runs a scenario in this process up to one edge round and returns all that is needed to check it.

    Nothing is written; `RoundTrace.save` does so. With the last edge round of a global round, the trace has the cloud's
    average too. All uploads are in memory: 4 or 8 bytes per device and entry of the model.

    Args:
      global_round, edge_round: counted from 1, as in records. In trees with levels between edges and cloud, edge rounds
        are counted on through the whole global round.
      model, dataset, loss, metric, train, optimizer: in place of the scenario's own, as `run` takes them.
    """
    wanted = checked_scenario("trace_round.scenario", scenario)
    whole_number("trace_round.global_round", global_round, at_least=1, at_most=wanted.rounds.global_rounds)
    whole_number("trace_round.edge_round", edge_round, at_least=1)
    here = wanted.with_values({"engine.name": "serial", "engine.scheduler": None, "engine.tls": None})
    given = {"model": model, "dataset": dataset, "loss": loss, "metric": metric, "train": train, "optimizer": optimizer}
    experiment = Experiment.of(here, **given)
    per_global_round = experiment.num_rounds // wanted.rounds.global_rounds
    whole_number("trace_round.edge_round", edge_round, at_least=1, at_most=per_global_round)
    observer = Observer(global_round, edge_round)
    with contextlib.closing(records_of(experiment, None, observer, watch=observer.watch)) as records:
        for record in records:
            if observer.trace is None:
                continue
            if record["kind"] == "global":
                return dataclasses.replace(observer.trace, scenario=wanted, cloud_after=observer.cloud_model)
            if edge_round < per_global_round and not observer.diverged:
                break
    assert observer.trace is not None  # a run that ends before its round raises `Diverged`
    return dataclasses.replace(observer.trace, scenario=wanted)


class Observer(Environment):
    """The simulated environment, which looks at one edge round and changes nothing.

    Attributes:
      trace: the round without the cloud's average, once it has been run.
    """

    def __init__(self, global_round: int, edge_round: int) -> None:
        self._wanted = global_round - 1, edge_round - 1
        self._groups: list[Observed] = []
        self._before: _Before | None = None
        self.trace: RoundTrace | None = None

    @property
    def cloud_model(self) -> Array:
        """w_G as it is now.  [num_state]"""
        assert self._before is not None
        return self._before.state.global_state.copy()

    @property
    def diverged(self) -> bool:
        """True if the traced round is the last edge round of the run for that reason."""
        return self._before is not None and bool(self._before.state.diverged)

    def play(
        self, experiment: Experiment, engine: Engine, state: RunState, timed: TimedRound, groups: Sequence[Started]
    ) -> list[EdgeResult]:
        if (state.global_round, experiment.step_index(state)) == self._wanted:
            self._groups = [(edge, lag, ObservedGroup.of(group)) for edge, lag, group in groups]
            self._before = _Before.of(experiment, state, timed)
            groups = self._groups
        return super().play(experiment, engine, state, timed, groups)

    def watch(self, timed: TimedRound, results: Sequence[EdgeResult]) -> None:
        """Takes the round's outcome; called after every edge round."""
        if self._before is not None and self.trace is None:
            self.trace = _trace(self._before, self._groups, timed, results)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Before:
    """A run just before the devices of the traced round train; `state` is the run's own and goes on."""

    experiment: Experiment
    state: RunState
    global_round: int
    edge_round: int
    learning_rate: float
    edges: Array
    cloud: Array
    memory: Mapping[str, Array]

    @classmethod
    def of(cls, experiment: Experiment, state: RunState, timed: TimedRound) -> _Before:
        return cls(
            experiment=experiment,
            state=state,
            global_round=state.global_round + 1,
            edge_round=experiment.step_index(state) + 1,
            learning_rate=experiment.learning_rate(state),
            edges=state.edge_states.copy(),
            cloud=state.global_state.copy(),
            memory=_memory(state, timed.planned.device),
        )


def _memory(state: RunState, device: Array) -> Mapping[str, Array]:
    return {} if state.store is None else state.store.take(device)


def _trace(before: _Before, groups: Sequence[Observed], timed: TimedRound, results: Sequence[EdgeResult]) -> RoundTrace:
    run, state, planned = before.experiment, before.state, timed.planned
    rows = {device: row for row, device in enumerate(planned.device.tolist())}
    devices = {rows[seen.device]: seen for _, _, group in groups for seen in group.devices}
    visited = [batch for row in sorted(devices) for batch in devices[row].minibatches]
    sample = np.unique(np.concatenate(visited)) if visited else np.zeros(0, dtype=np.int64)
    holding = [run.samples[device] for device in rows]
    group_of = np.full(len(rows), -1)
    for number, (_, _, group) in enumerate(groups):
        group_of[[rows[seen.device] for seen in group.devices]] = number
    return RoundTrace(
        scenario=run.scenario,
        global_round=before.global_round,
        edge_round=before.edge_round,
        learning_rate=before.learning_rate,
        deadline_s=planned.deadline_s,
        **_layout(run),
        sample=sample,
        x=run.dataset.train_x[sample],
        y=run.dataset.train_y[sample],
        device=planned.device,
        edge=planned.edge,
        group=group_of,
        outcome=timed.outcome,
        bandwidth_share=planned.share,
        pruning_ratio=timed.ratio,
        kept_weights=planned.keep,
        upload_bits=planned.uplink_bits,
        compute_s=timed.compute_s,
        uplink_s=timed.uplink_s,
        **_uploads(run, devices, len(rows)),
        holding=np.concatenate(holding) if holding else np.zeros(0, dtype=np.int64),
        num_holding=np.array([len(own) for own in holding], dtype=np.int64),
        visited=np.concatenate(visited) if visited else np.zeros(0, dtype=np.int64),
        minibatch_size=np.array([len(batch) for batch in visited], dtype=np.int64),
        num_minibatches=np.array([len(devices[n].minibatches) if n in devices else 0 for n in range(len(rows))]),
        memory_before=before.memory,
        memory_after=_memory(state, planned.device),
        **_groups(run, groups),
        **_edges(before, groups, results),
        cloud_before=before.cloud,
        broadcast=_broadcast(groups),
    )


def _layout(run: Experiment) -> dict[str, Array]:
    parts, shape = run.model.parts, run.shape
    most = max(len(part.shape) for part in parts)
    return {
        "tensor_name": np.array([part.name for part in parts]),
        "tensor_start": np.array([part.start for part in parts]),
        "tensor_shape": np.array([[*part.shape, *[0] * (most - len(part.shape))] for part in parts], dtype=np.int64),
        "is_weight": shape.is_weight,
        "prunable": np.array([shape.prunable.start, shape.prunable.stop]),
    }


def _uploads(run: Experiment, devices: Mapping[int, DeviceTrace], num_rows: int) -> dict[str, Array]:
    """Returns what the devices did, in the rows of the trace."""
    size, dtype = run.shape.num_state, run.model.state_array.dtype
    found: dict[str, Array] = {name: np.full(num_rows, np.nan) for name in ("weight", "loss")}
    for name in ("held", "moves", "sent"):
        found[name] = np.zeros((num_rows, run.shape.prunable_weights), dtype=bool)
    found["upload"] = np.full((num_rows, size), np.nan, dtype=dtype)
    for row, seen in devices.items():
        found["upload"][row] = seen.state
        for name in ("weight", "loss", "held", "moves", "sent"):
            found[name][row] = getattr(seen, name)
    return found


def _groups(run: Experiment, groups: Sequence[Observed]) -> dict[str, Array]:
    size = run.shape.num_state
    received = np.empty((len(groups), size), dtype=run.model.state_array.dtype)
    total, weight = np.zeros((len(groups), size)), np.zeros((len(groups), size))
    for row, (_, _, group) in enumerate(groups):
        received[row] = group.shared.model
        for added in group.sums:
            total[row], weight[row] = added.total, added.weight
    return {
        "group_edge": np.array([edge for edge, _, _ in groups], dtype=np.int64),
        "group_lag": np.array([lag for _, lag, _ in groups], dtype=np.int64),
        "group_received": received,
        "group_sum": total,
        "group_weight": weight,
    }


def _edges(before: _Before, groups: Sequence[Observed], results: Sequence[EdgeResult]) -> dict[str, Array]:
    """Returns the arrays per edge; results are in the order of the edges that receive an upload."""
    run, state = before.experiment, before.state
    combined = np.full_like(before.edges, np.nan)
    kept_by = np.zeros((len(before.edges), run.shape.prunable_weights), dtype=np.int64)
    for edge, result in zip(dict.fromkeys(edge for edge, _, _ in groups), results, strict=True):
        combined[edge], kept_by[edge] = result.combined, result.kept_by
    return {
        "edge_before": before.edges,
        "edge_combined": combined,
        "edge_kept_by": kept_by,
        "edge_after": state.edge_states.copy(),
        "edge_weight": np.asarray(run.method.cloud.weights(run.station_samples(state)), dtype=np.float64),
    }


def _broadcast(groups: Sequence[Observed]) -> dict[str, Array]:
    """Returns what devices receive beside the model, the same at every edge."""
    if not groups:
        return {}
    shared = groups[0][2].shared
    found = {name: array.copy() for name, array in shared.values.items()}
    return found if shared.mask is None else {**found, "mask": shared.mask.copy()}
