"""A round's devices in chunks, and how their sums become an edge's model.

A chunk is a fixed run of devices of one edge, decided by the scenario alone. Its sum is taken in device order where the
chunk is trained; chunks are merged in order into groups, and groups into the edge's sum. So every engine, with any
number of workers, adds the same numbers in the same order and ends in the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.engines.base import MAX_TRIES, Died, Group, Task
from airprune.errors import WorkFailed
from airprune.methods.aggregation import Aggregation
from airprune.methods.aggregation.cohort import Cohort
from airprune.methods.registration import is_own
from airprune.methods.topology.base import HISTORY
from airprune.rounds.cohorts import cohort_of
from airprune.rounds.messages import Broadcast
from airprune.rounds.optimisers import gradients_in_update
from airprune.rounds.sums import ChunkSum, DeviceStatistics, EdgeResult, Failure, finish_sum, merge_sums

if TYPE_CHECKING:
    from airprune.rounds.experiment import Experiment
    from airprune.rounds.plan_round import RoundPlan
    from airprune.rounds.state import Place, RunState
    from airprune.runs.store import DeviceStore

Array = np.ndarray
# A chunk trains about this many samples: a tenth of a second, long against the cost of handing it out.
CHUNK_SAMPLES = 500
MAX_CHUNK_DEVICES = 64
# A group of devices: its edge, how many rounds ago they began, their work.
Started = tuple[int, int, "EdgeGroup"]


def chunks_of(devices: Array, samples_per_device: float) -> list[Array]:
    """Consecutive runs of an edge's devices, as many as make a chunk's worth of samples."""
    size = int(np.clip(round(CHUNK_SAMPLES / max(samples_per_device, 1.0)), 1, MAX_CHUNK_DEVICES))
    return [devices[start : start + size] for start in range(0, len(devices), size)]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainTask(Task):
    """The training of some devices of one edge in one edge round.

    Attributes:
      weights: c_n of each in the edge's average.
      code: the compression level that each sends with, if the planner has chosen.
      local_steps: after which each stops, where that is not as in every round.
      first_trained: the lowest layer that each trains; None: all train the whole model.
      last_trained: the highest one; None: the top for all.
      work: ‖a_n‖₁ of each, see `gradients_in_update`, where the edge's aggregation counts by it.
      group: the device that uploads for each, if some upload for others: what each group has sent is then reported.
      time_left_s: until the deadline, as planned, for training loops.
      measured: whether the lengths of updates are measured, for `rollback`.
      cohort: the devices of the edge whose updates reach it as one sum, where they do.
      store: where the devices' memory is; stays with the driver.
      memory: their slots, read just before the task is handed out.  Each [num_devices, …]
    """

    devices: tuple[int, ...]
    keep: tuple[int, ...]
    weights: tuple[float, ...]
    learning_rate: float
    global_round: int
    edge_round: int
    round_index: int
    code: tuple[int, ...] | None = None
    local_steps: tuple[int, ...] | None = None
    first_trained: tuple[int, ...] | None = None
    last_trained: tuple[int, ...] | None = None
    work: tuple[float, ...] | None = None
    group: tuple[int, ...] | None = None
    time_left_s: float | None = None
    measured: bool = False
    cohort: Cohort | None = None
    store: DeviceStore | None = None
    memory: Mapping[str, Array] = field(default_factory=dict)

    def loaded(self) -> TrainTask:
        if self.store is None:
            return self
        return replace(self, store=None, memory=self.store.take(self.devices))

    def parts(self) -> Sequence[TrainTask]:
        return [self._of([place]) for place in range(len(self.devices))]

    def without(self, parts: Sequence[TrainTask]) -> TrainTask:
        gone = {device for part in parts for device in part.devices}
        return self._of([place for place, device in enumerate(self.devices) if device not in gone])

    def _of(self, places: Sequence[int]) -> TrainTask:
        def some(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[i] for i in places)

        return replace(
            self,
            devices=some(self.devices),
            keep=some(self.keep),
            weights=some(self.weights),
            code=None if self.code is None else some(self.code),
            local_steps=None if self.local_steps is None else some(self.local_steps),
            first_trained=None if self.first_trained is None else some(self.first_trained),
            last_trained=None if self.last_trained is None else some(self.last_trained),
            work=None if self.work is None else some(self.work),
            group=None if self.group is None else some(self.group),
        )


class DeviceFailed(WorkFailed):
    """A device failed for good and the scenario's policy is to end the run."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(
            f"Device {failure.device} failed {MAX_TRIES} times; "
            f'engine.on_device_failure="drop-device" goes on without it. The last failure:\n{failure.trouble}'
        )
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[Failure]]:
        return DeviceFailed, (self.failure,)


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeGroup(Group):
    """One edge round of one edge: the model its devices receive, and who trains it.

    Attributes:
      drop_failing: whether a device that fails for good is excluded; else it ends the run.
      served_weight: Σ c_n of all devices of the edge, if those count that are not heard from.
      min_contributors: t; a weight that fewer devices kept counts as kept by none.
      rollback: X, if exploding averages are rolled back.
    """

    shared: Broadcast
    aggregation: Aggregation
    prunable: slice
    drop_failing: bool = False
    store: DeviceStore | None = None
    served_weight: float | None = None
    min_contributors: int = 1
    rollback: float | None = None
    method: str = "train"

    def arrived(self, task: TrainTask, part: ChunkSum) -> ChunkSum:
        """Stores the memory of the devices that trained; what failed keeps what it had."""
        if self.store is not None and part.memory:
            self.store.put(part.statistics.device.tolist(), part.memory)
        return replace(part, memory={})

    merge = staticmethod(merge_sums)

    def finish(self, part: ChunkSum) -> EdgeResult:
        return finish_sum(
            part,
            self.shared.model,
            self.aggregation,
            self.prunable,
            served_weight=self.served_weight,
            min_contributors=self.min_contributors,
            rollback=self.rollback,
        )

    def lost(self, parts: Sequence[TrainTask], how: str) -> ChunkSum | None:
        death = Died(how).on("the same devices")
        if not self.drop_failing:
            raise WorkFailed(f"{death} The run can be resumed.")
        if not parts:
            return None
        failures = tuple(Failure(device, death) for part in parts for device in part.devices)
        return ChunkSum(total=None, statistics=DeviceStatistics.of([]), failures=failures)


def groups_of(run: Experiment, at: Place, state: RunState, plan: RoundPlan) -> list[Started]:
    """All devices that will make it, by edge and by when they began, in ascending order."""
    timed, here = plan.timed, plan.timed.takes_part
    pairs = distinct_pairs(timed.planned.edge[here], plan.lag[here])
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
    scenario, planned, method = run.scenario, plan.timed.planned, run.method
    positions = np.flatnonzero(plan.timed.takes_part & (planned.edge == edge) & (plan.lag == started))
    received = state.edge_states[edge].copy()
    if started:
        received = state.values[HISTORY][edge, started].astype(received.dtype)
    steps, work = planned.local_steps, None
    if steps is None and at.local_steps is not None:
        steps = at.local_steps[planned.device]
    if method.edge.by_work:
        made = scenario.train.steps(run.data_sizes)[planned.device] if steps is None else steps
        work = gradients_in_update(scenario.train.optimizer, scenario.train.momentum, made)
    cohort = cohort_of(run, at, planned, edge)
    tasks = [
        TrainTask(
            devices=tuple(planned.device[chunk].tolist()),
            keep=tuple(planned.keep[chunk].tolist()),
            weights=tuple(method.edge.weights(run.data_sizes[planned.device[chunk]]).tolist()),
            code=None if planned.code is None else tuple(planned.code[chunk].tolist()),
            group=None if planned.relay is None else tuple(planned.device[planned.relay.head[chunk]].tolist()),
            local_steps=None if steps is None else tuple(steps[chunk].tolist()),
            first_trained=None if planned.first_trained is None else tuple(planned.first_trained[chunk].tolist()),
            last_trained=None if planned.last_trained is None else tuple(planned.last_trained[chunk].tolist()),
            work=None if work is None else tuple(work[chunk].tolist()),
            learning_rate=at.learning_rate,
            global_round=at.global_round,
            edge_round=at.step,
            round_index=at.round_index,
            time_left_s=float(planned.deadline_s),
            measured=scenario.aggregation.rollback is not None,
            cohort=cohort,
            store=state.store,
        )
        for chunk in chunks_of(positions, run.mean_samples_seen)
    ]
    return EdgeGroup(
        shared=Broadcast(
            model=received,
            mask=planned.mask,
            values={name: state.values[name] for name in method.objective.broadcast},
        ),
        tasks=tuple(tasks),
        travels=state.store is not None or is_own(method.edge),  # whose sums strangers cannot read
        aggregation=method.edge.at_rate(at.learning_rate),
        prunable=run.shape.prunable,
        drop_failing=scenario.engine.on_device_failure == "drop-device",
        store=state.store,
        served_weight=_served_weight(run, state, edge) if method.edge.overrides(Aggregation.absent) else None,
        min_contributors=max(scenario.aggregation.min_contributors, 1 if cohort is None else cohort.threshold),
        rollback=scenario.aggregation.rollback,
    )


def _served_weight(run: Experiment, state: RunState, edge: int) -> float:
    """Σ c_n of all devices of an edge, selected or not."""
    samples = run.data_sizes[run.stations.serving(state.values) == edge]
    return float(run.method.edge.weights(samples).sum())
