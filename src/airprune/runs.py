"""Runs and their folders: start, record, checkpoint, resume.

    scenario.toml        the resolved scenario
    environment.json     versions, commit and CPU
    records.jsonl        one line per edge round and per global round
    checkpoint/          the state after the last record, replaced atomically
    final.safetensors    the trained model, when the run has ended

A record is appended first, then the checkpoint that knows the record file's length takes the old one's place. A run that
is killed in between resumes from the older checkpoint and cuts the extra lines off, so it ends in the same bytes.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airprune.data import Dataset
from airprune.data.shared import SharedDataset, save_shared
from airprune.data.sources import cache_folder
from airprune.engines import engine_named
from airprune.errors import UsageError
from airprune.experiment import Experiment
from airprune.rounds import State, run_rounds
from airprune.run_folder import RunFolder
from airprune.scenario import Scenario


def run(
    scenario: Scenario,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    model: Any = None,
    dataset: Any = None,
) -> Iterator[dict[str, Any]]:
    """Runs a scenario; yields one record per edge round and per global round as they happen.

    Args:
      out: the run folder; without one nothing is written.
      resume: continue the run in `out` where it stopped, yielding the records still to come. A folder without a run is
        started from the beginning; one with another scenario is refused.
      model: any torch module in place of the scenario's own; its Linear layers are prunable unless
        `scenario.model.prunable` names others.
      dataset: (x, y) arrays, ((x, y), (x_test, y_test)), or torch datasets in place of the scenario's own.
    """
    experiment = Experiment.of(scenario, model=model, dataset=dataset)
    folder = None if out is None else RunFolder(Path(out))
    if folder is not None and folder.has_run and not resume:
        raise UsageError(f"{out} already holds a run; resume it (--resume, resume=True) or choose another folder.")
    return _records(experiment, folder, is_catalogued=dataset is None)


def _records(experiment: Experiment, folder: RunFolder | None, *, is_catalogued: bool) -> Iterator[dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        state, finished = State.initial(experiment), False
        if folder is not None:
            stack.enter_context(folder.locked())
            folder.prepare(experiment)
            saved = folder.load(experiment)
            state = saved or state
            finished = state.global_round >= experiment.scenario.rounds.global_rounds
        if not finished:
            yield from _run(experiment, state, folder, stack, is_catalogued=is_catalogued)
        if folder is not None:
            folder.finish(experiment, state)


def _run(
    experiment: Experiment,
    state: State,
    folder: RunFolder | None,
    stack: contextlib.ExitStack,
    *,
    is_catalogued: bool,
) -> Iterator[dict[str, Any]]:
    settings = experiment.scenario.engine
    job = experiment.job(_shared(experiment.dataset, settings.name, stack, is_catalogued=is_catalogued))
    engine = stack.enter_context(
        engine_named(settings.name)(job, workers=settings.workers, on_device_failure=settings.on_device_failure)
    )
    for record in run_rounds(experiment, engine, state):
        if folder is not None:
            folder.save(experiment, state, record)
        yield record


def _shared(
    dataset: Dataset, engine: str, stack: contextlib.ExitStack, *, is_catalogued: bool
) -> SharedDataset | InProcess:
    """Where workers find the data: in this process, in the cache for all runs, or beside a run with data of its own."""
    if engine == "serial":
        return InProcess(dataset)
    if is_catalogued:
        return save_shared(dataset, cache_folder() / "shared" / dataset.fingerprint[:32])
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="airprune-"))
    return save_shared(dataset, Path(folder))


class InProcess:
    """A data set that its workers need not look for."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def open(self) -> Dataset:
        return self._dataset
