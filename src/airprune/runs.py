"""Runs and their folders: start, record, checkpoint, resume.

    scenario.toml        the resolved scenario
    environment.json     versions, commit and CPU
    records.jsonl        one line per edge round and per global round
    checkpoint/          the state after the last record, replaced atomically
    final.safetensors    the trained model, when the run has ended

A record is appended first, then the checkpoint that knows the record file's length takes the old one's place. A run
that is killed in between resumes from the older checkpoint and cuts the extra lines off, so it ends in the same bytes.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from airprune.data import Dataset
from airprune.data.shared import SharedDataset, save_shared
from airprune.engines import engine_named
from airprune.errors import UsageError
from airprune.experiment import Experiment
from airprune.kernels import native
from airprune.rounds import State, run_rounds
from airprune.run_folder import RunFolder, finite
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
        state = State.initial(experiment)
        if folder is not None:
            stack.enter_context(folder.locked())
            folder.check(experiment)
            state = folder.load() or state
        if state.global_round < experiment.scenario.rounds.global_rounds:
            yield from _run(experiment, state, folder)
        if folder is not None:
            folder.finish(experiment, state)


def _run(experiment: Experiment, state: State, folder: RunFolder | None) -> Records:
    settings = experiment.scenario.engine
    with contextlib.ExitStack() as stack:
        job = experiment.job(_place_of(experiment.dataset, settings.name, folder, stack))
        engine_class = engine_named(settings.name)
        tls = None if settings.tls is None else Path(settings.tls)
        engine = stack.enter_context(engine_class(job, workers=settings.workers, scheduler=settings.scheduler, tls=tls))
        if folder is not None:
            folder.begin(experiment)  # only now: a run that gets no engine leaves nothing behind
        for record in map(finite, run_rounds(experiment, engine, state)):
            if folder is not None:
                folder.save(state, record)
            yield record


def _place_of(
    dataset: Dataset, engine: str, folder: RunFolder | None, stack: contextlib.ExitStack
) -> SharedDataset | InProcess:
    """Where workers find the data: in this process, or in files that last as long as the run.

    They lie in the run folder, so that a killed run leaves nothing elsewhere and its continuation clears them away.
    """
    if folder is None:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airprune-")))
    else:
        place = stack.enter_context(folder.scratch())
    return InProcess(dataset) if engine == "serial" else save_shared(dataset, place)


class InProcess:
    """A data set that its workers need not look for."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def open(self) -> Dataset:
        return self._dataset
