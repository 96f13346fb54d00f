"""`run`: a scenario from its first round, or from where it stopped, to its end."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from airprune.data import Dataset
from airprune.data.shared import SharedDataset, save_shared
from airprune.engines import engine_named
from airprune.errors import UsageError
from airprune.experiment import Experiment
from airprune.learning import native
from airprune.rounds import State, run_rounds
from airprune.runs.layout import RunFolder
from airprune.runs.lock import locked
from airprune.runs.writer import RunWriter, finite
from airprune.scenario import Scenario

Records = Generator[dict[str, Any], None, None]


def run(
    scenario: Scenario,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    model: Any = None,
    dataset: Any = None,
) -> Records:
    """Runs a scenario; yields one record per edge round and per global round as they happen.

    The run stands still between two records and ends, resumable, when the generator is closed.

    Args:
      out: the run folder; without one nothing is written.
      resume: continue the run in `out` where it stopped, yielding the records still to come. A folder without a run is
        started from the beginning; one with another scenario is refused.
      model: any torch module in place of the scenario's own; its Linear layers are prunable unless
        `scenario.model.prunable` names others.
      dataset: (x, y) arrays, ((x, y), (x_test, y_test)), or torch datasets in place of the scenario's own.
    """
    engine_named(scenario.engine.name)  # before anything is loaded or written
    folder = None if out is None else RunFolder(Path(out))
    if folder is not None and folder.has_run and not resume:
        raise UsageError(f"{out} already holds a run; resume it (--resume, resume=True) or choose another folder.")
    kernel = None if folder is None else folder.kernel
    if kernel == "native" and native.trouble:
        raise UsageError(
            f"{out} was trained with the native kernel, which cannot be used here: {native.trouble}; "
            "resume it where airprune doctor finds the kernel."
        )
    return _records(Experiment.of(scenario, model=model, dataset=dataset, kernel=kernel), folder)


def _records(experiment: Experiment, folder: RunFolder | None) -> Records:
    with contextlib.ExitStack() as stack:
        state, writer = State.initial(experiment), None
        if folder is not None:
            writer = RunWriter(folder, experiment, stack.enter_context(locked(folder.path)))
            saved = writer.load()
            state = state if saved is None else State.restored(saved.arrays, saved.facts)
        if not _has_ended(experiment, state):
            yield from _run(experiment, state, writer)
        if writer is not None:
            writer.finish(_trained(experiment, state))


def _run(experiment: Experiment, state: State, writer: RunWriter | None) -> Records:
    settings = experiment.scenario.engine
    with contextlib.ExitStack() as stack:
        job = experiment.job(_place_of(experiment.dataset, settings.name, writer, stack))
        engine_class = engine_named(settings.name)
        tls = None if settings.tls is None else Path(settings.tls)
        engine = stack.enter_context(engine_class(job, workers=settings.workers, scheduler=settings.scheduler, tls=tls))
        if writer is not None:
            writer.begin()  # only now: a run that gets no engine leaves nothing behind
        for record in map(finite, run_rounds(experiment, engine, state)):
            if writer is not None:
                writer.save(state, record, has_ended=_has_ended(experiment, state))
            yield record


def _has_ended(experiment: Experiment, state: State) -> bool:
    return state.global_round >= experiment.scenario.rounds.global_rounds


def _trained(experiment: Experiment, state: State) -> dict[str, np.ndarray]:
    """The trained model under the module's own names, for `load_state_dict`."""
    model = experiment.model
    start = model.state.numpy().copy()
    model.load(state.global_state)
    arrays = {name: tensor.numpy().copy(order="C") for name, tensor in model.module.state_dict().items()}
    model.load(start)
    return arrays


def _place_of(
    dataset: Dataset, engine: str, writer: RunWriter | None, stack: contextlib.ExitStack
) -> SharedDataset | InProcess:
    """Where workers find the data: in this process, or in files that last as long as the run.

    They lie in the run folder, so that a killed run leaves nothing elsewhere and its continuation clears them away.
    """
    if writer is None:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airprune-")))
    else:
        place = stack.enter_context(writer.scratch())
    return InProcess(dataset) if engine == "serial" else save_shared(dataset, place)


class InProcess:
    """A data set that its workers need not look for."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def open(self) -> Dataset:
        return self._dataset
