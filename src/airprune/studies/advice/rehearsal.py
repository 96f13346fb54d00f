"""A run's clock without its learning: the same rounds, plans and times, with models that stay as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from airprune.data import Dataset
from airprune.engines.base import Call, Engine, WorkerFactory
from airprune.planning.plan import Status
from airprune.rounds.experiment import Experiment
from airprune.rounds.sums import ChunkSum, DeviceStatistics
from airprune.rounds.training.chunks import TrainTask
from airprune.simulation import run_rounds
from airprune.studies.advice.sample_fleet import sample_fleet

Array = np.ndarray

# Plans of so many devices are made; those of further rounds cost what these cost on average.
_PLANNED_DEVICES = 20_000
# Of larger fleets, work is planned on a sample of whole edges: every round searches its own deadline, by so many plans.
_WORK_DEVICES, _SEARCH_PLANS = 250, 32


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
    scenario, num_devices = experiment.scenario, experiment.network.num_devices
    if experiment.method.scheme.chooses_work and num_devices > _WORK_DEVICES:
        sample = sample_fleet(scenario, most_devices=_WORK_DEVICES, whole_edges=True)
        if sample is not None and len(sample.kept) < num_devices:
            with tempfile.TemporaryDirectory(prefix="airprune-rehearsal-") as folder:
                some = sample.scenario(scenario, Path(folder) / "fleet.csv")
                samples = max(1, round(int(experiment.data_sizes.sum()) * len(sample.kept) / num_devices))
                fewer = _first_samples(experiment.dataset, samples)
                part = Experiment.of(some, dataset=fewer, kernel=experiment.kernel)
                found = rehearse(part, code_error)
            more = num_devices / len(sample.kept)
            return replace(found, bits=found.bits * more, joules=found.joules * more)
    per_global = max(scenario.edge_rounds_on(experiment.network))
    searches = experiment.method.scheme.chooses_work and scenario.plan.deadline_s == "auto"
    planned = _PLANNED_DEVICES // (per_global * num_devices * (_SEARCH_PLANS if searches else 1))
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


def _first_samples(dataset: Dataset, count: int) -> Dataset:
    """Returns the data set with so many training samples, which are as good as others where nothing learns."""
    owner = dataset.train_owner
    return replace(
        dataset,
        train_x=dataset.train_x[:count],
        train_y=dataset.train_y[:count],
        train_owner=None if owner is None else owner[:count],
    )


def _errors(experiment: Experiment, seen: Mapping[float, float]) -> Callable[[int], float]:
    ladder = experiment.context.ladder
    if ladder is None:
        return lambda rung: 0.0
    said = dict(zip(ladder.bits_per_weight.tolist(), ladder.error.tolist(), strict=True))
    by_rung = [seen.get(bits, said[bits]) for bits in ladder.bits_per_weight.tolist()]
    return lambda rung: by_rung[rung]
