"""A run's clock without its learning: the same rounds, plans and times, with models that stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from airprune.engines.base import Call, Engine, WorkerFactory
from airprune.planning.plan import Status
from airprune.rounds.experiment import Experiment
from airprune.rounds.sums import ChunkSum, DeviceStatistics
from airprune.rounds.training.chunks import TrainTask
from airprune.simulation import run_rounds

Array = np.ndarray

# Plans of so many devices are made; those of further rounds cost what these cost on average.
_PLANNED_DEVICES = 20_000


@dataclass(frozen=True, kw_only=True)
class RoundCost:
    """The mean cost of an edge round.

    Attributes:
      seconds: simulated; a global round's, with its links, by its number of edge rounds.
      bits, joules: of all devices together.
      bits_per_weight: bits that a device sends, per weight of the whole model.
      deadline_s: T_th.
      meets_deadline: True if the rounds of all edges did.
    """

    seconds: float
    bits: float
    joules: float
    bits_per_weight: float
    deadline_s: float
    meets_deadline: bool


class _StandIn(Engine):
    """An engine that trains nothing; every compression level has the error that it is given."""

    num_workers = 1

    def __init__(self, error_of: Callable[[int], float]) -> None:
        super().__init__(_NoWorkers())
        self._error_of = error_of

    def start(self) -> None: ...

    def close(self) -> None: ...

    def as_completed(
        self, method: str, calls: Sequence[Call], *, until: Callable[[], int] | None = None
    ) -> Generator[tuple[int, Any]]:
        for index, (_, task) in enumerate(calls):
            yield index, ChunkSum(total=None, statistics=self._statistics(task))

    def _statistics(self, task: TrainTask) -> DeviceStatistics:
        columns = {part.name: np.zeros(len(task.devices)) for part in fields(DeviceStatistics)}
        for name in ("uploaded_weights", "num_samples"):
            columns[name] = columns[name].astype(np.int64)
        columns["device"] = np.array(task.devices)
        if task.code is not None:
            columns["code_error"] = np.array([self._error_of(rung) for rung in task.code])
        return DeviceStatistics(**columns)


class _NoWorkers(WorkerFactory):
    def open(self, folder: object) -> None: ...


def rehearse(experiment: Experiment, code_error: Mapping[float, float]) -> RoundCost:
    """Rehearses the first global rounds; returns their mean cost.

    Args:
      code_error: measured errors of compression levels, by their bits per weight, for deadlines that tune themselves;
        for others the set of levels gives the error.
    """
    scenario = experiment.scenario
    per_global = max(scenario.edge_rounds_on(experiment.network))
    planned = _PLANNED_DEVICES // (per_global * experiment.network.num_devices)
    global_rounds = int(np.clip(planned, 1, scenario.rounds.global_rounds))
    short = Experiment.of(
        scenario.with_values(
            {
                "rounds.global_rounds": global_rounds,
                "rounds.evaluate_every": "never",
                "diagnostics.gradients": False,
                "records.devices": "all",
            }
        ),
        dataset=experiment.dataset,
        kernel=experiment.kernel,
    )
    engine = _StandIn(_errors(short, code_error))
    records = list(run_rounds(short, engine, short.initial_state()))
    edge = [record for record in records if record["kind"] == "edge"]
    last = records[-1]
    rounds = global_rounds * per_global
    sent = sum(record["fate"].count("ok") for record in edge)
    own_deadline = scenario.plan.deadline_s
    return RoundCost(
        seconds=last["time_s"] / rounds,
        bits=last["uploaded_bits"] / rounds,
        joules=last["energy_j"] / rounds,
        bits_per_weight=last["uploaded_bits"] / max(sent, 1) / short.shape.num_weights,
        deadline_s=float(np.mean([record.get("deadline_s", own_deadline) for record in edge])),
        meets_deadline=all(Status.LATE not in record["edge_status"] for record in edge),
    )


def _errors(experiment: Experiment, seen: Mapping[float, float]) -> Callable[[int], float]:
    ladder = experiment.context.ladder
    if ladder is None:
        return lambda rung: 0.0
    said = dict(zip(ladder.bits_per_weight.tolist(), ladder.error.tolist(), strict=True))
    by_rung = [seen.get(bits, said[bits]) for bits in ladder.bits_per_weight.tolist()]
    return lambda rung: by_rung[rung]
