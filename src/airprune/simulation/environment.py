"""The environment of a run: which devices are there, what edges do with their orders, which uploads arrive.

`Environment` is the simulated one. A deployment has another, with real edges; a replay, one that repeats what happened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from airprune.components.component import Owner
from airprune.engines.base import Engine
from airprune.methods.selection.base import Candidates
from airprune.rounds import driver
from airprune.rounds.edge import close_round
from airprune.rounds.experiment import Experiment
from airprune.rounds.state import RunState
from airprune.rounds.sums import EdgeResult, Failure, mean_of_parts
from airprune.rounds.timing import TimedRound
from airprune.rounds.training.chunks import EdgeGroup, Started, TrainTask

Array = np.ndarray


class Environment:
    """The simulated network of a scenario; edges live in the run's state.

    Attributes:
      keeps_memory: whether the driver keeps the devices' memory; else they do so themselves.
    """

    keeps_memory = True

    def check(self, experiment: Experiment) -> None:
        """Refuses an experiment that it is not for, before anything is written."""

    def values(self, experiment: Experiment) -> dict[str, Array]:
        """Returns the initial values that it keeps in the run's state; reserved names begin with `world/`."""
        return {}

    def candidates(
        self, experiment: Experiment, state: RunState, candidates: Candidates, cpu_hz: Array
    ) -> tuple[Candidates, Array]:
        """Returns the candidates of this edge round and their clocks, given those of the network."""
        return candidates, cpu_hz

    def lost(self, round_index: int) -> Mapping[int, str]:
        """Returns planned devices whose uploads will not count, with the `DeviceOutcome` of each."""
        return {}

    def play(
        self, experiment: Experiment, engine: Engine, state: RunState, timed: TimedRound, groups: Sequence[Started]
    ) -> list[EdgeResult]:
        """Lines 5–15 of Algorithm 1: devices train, Eq. (12), and their edges move; results in the order of edges."""
        lost = self.lost(experiment.round_index(state))
        parts = engine.reduce([without(group, lost) if lost else group for *_, group in groups])
        found: dict[int, list[tuple[int, EdgeResult]]] = {}
        starts: dict[int, list[Array]] = {}
        for (edge, lag, group), part in zip(groups, parts, strict=True):
            found.setdefault(edge, []).append((lag, part))
            starts.setdefault(edge, []).append(group.shared.model)
        results = []
        for edge, of_edge in found.items():
            weights = experiment.method.topology.part_weights(
                np.array([lag for lag, _ in of_edge]), np.array([len(part.statistics.device) for _, part in of_edge])
            )
            result = mean_of_parts(of_edge, state.edge_states[edge], starts[edge], weights)
            _move_edge(experiment, state, edge, result)
            left_out = [Failure(device, "", fate) for device, fate in lost.items() if device in _devices(groups, edge)]
            results.append(dataclasses.replace(result, failures=(*result.failures, *left_out)))
        return results

    def out(self, state: RunState) -> Array | None:
        """Edges whose models do not count in this global round; None if all count.  [num_edges] bool"""
        return None


def without(group: EdgeGroup, devices: Mapping[int, str]) -> EdgeGroup:
    """A group without the work of some devices; the others stay in their chunks, so that sums keep their order."""
    tasks: list[TrainTask] = []
    for task in group.tasks:
        gone = [part for part in task.parts() if part.devices[0] in devices]
        tasks.append(task.without(gone) if gone else task)
    return dataclasses.replace(group, tasks=tuple(tasks))


def _devices(groups: Sequence[Started], edge: int) -> set[int]:
    return {device for at, _, group in groups if at == edge for task in group.tasks for device in task.devices}


def _move_edge(experiment: Experiment, state: RunState, edge: int, result: EdgeResult) -> None:
    """The edge's own step to its average."""
    names = experiment.slot_names(Owner.EDGE)
    own = {name: state.values[name][edge] for name in names}
    step = experiment.method.edge_step
    state.edge_states[edge], own = close_round(
        step,
        "edge_step",
        state.edge_states[edge],
        result.combined,
        result.held,
        own,
        num_parameters=experiment.shape.num_parameters,
    )
    for name, array in own.items():
        state.values[name][edge] = array


def run_rounds(
    experiment: Experiment,
    engine: Engine,
    state: RunState,
    *,
    watch: driver.Watch | None = None,
    environment: Environment | None = None,
) -> Iterator[driver.Record]:
    """Algorithm 1 (`rounds.driver`) in an environment, by default the simulated one."""
    environment = Environment() if environment is None else environment
    return driver.run_rounds(experiment, engine, state, environment, watch=watch)
