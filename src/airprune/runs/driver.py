"""`run`: a scenario from its first round, or from where it stopped, to its end."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airprune.checks import path_of
from airprune.components.component import Owner
from airprune.data import Dataset
from airprune.data.shared import share
from airprune.engines import check_engine, engine_named
from airprune.errors import Diverged, StopRun, UsageError
from airprune.models.kernels import native
from airprune.rounds.driver import Watch
from airprune.rounds.evaluation import evaluated_models
from airprune.rounds.experiment import Experiment
from airprune.rounds.parts import BEST
from airprune.rounds.state import RunState
from airprune.runs.callbacks import GivenCallback, callbacks_of, with_callbacks
from airprune.runs.extending import extend as extend_run
from airprune.runs.layout import RunFolder
from airprune.runs.lock import locked
from airprune.runs.store import DeviceStore
from airprune.runs.writer import RunWriter, finite
from airprune.scenario import Scenario
from airprune.scenario.scenario import checked_scenario
from airprune.simulation import Environment, run_rounds

Records = Generator[dict[str, Any], None, dict[str, np.ndarray]]
"""Of a run: its records, and in the end its trained model under the names of its module."""


def run(
    scenario: Scenario,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    extend: bool = False,
    model: Any = None,
    dataset: Any = None,
    loss: Any = None,
    metric: Any = None,
    train: Any = None,
    optimizer: Any = None,
    replay: str | Path | None = None,
    what_if: Callable[[Any], None] | None = None,
    callbacks: Sequence[GivenCallback] = (),
) -> Records:
    """Runs a scenario; yields one record per edge round and per global round as they happen.

    Nothing happens until the records are iterated over; `airprune.train` runs to the end in one call.
    The run stands still between two records and ends, resumable, when the generator is closed. One that diverges, so
    that its models are not finite numbers, raises `Diverged` after its last record.

    Args:
      out: the run folder; without one nothing is written.
      resume: continue the run in `out` where it stopped, yielding the records still to come. A folder without a run is
        started from the beginning; one with another scenario is refused.
      extend: continue the finished run in `out` to the rounds of this scenario, which may also differ in `stop`.
      model: any torch module in place of the scenario's own; its Linear layers are prunable unless
        `scenario.model.prunable` names others.
      dataset: (x, y) arrays, ((x, y), (x_test, y_test)), a pandas table, torch datasets or loaders, or Hugging Face
        datasets in place of the scenario's own; see `airprune.data.as_dataset`.
      loss: of (outputs, targets) → their mean loss, in place of `train.loss`: a torch function or module, or your own.
      metric: of (outputs, targets) of all test samples at once → a number, in place of `train.metric`; recorded as
        `test_` and its name. A list of them, numbers or vectors, is recorded beside the loss's own.
      train: the local training of a device, in place of `train.loop`: a function (model, batches, context) → None, or a
        `Loop`; see docs/training.md.
      optimizer: in place of `train.optimizer`: a function of (parameters, lr=…) that returns a torch optimiser, such as
        `torch.optim.AdamW`.
      replay: a deployment's run folder: presence of devices, inputs of plans and outcomes of uploads are taken from it.
      what_if: of a replay: predict which uploads miss the deadline under this scenario, which may differ from the
        recorded one; called with each `PredictedRound`.
      callbacks: receive every record once it is saved: functions of a record, functions of a global round's record
        and the model, `Callback`s, or names of loggers ("tensorboard", "wandb", "mlflow").
    """
    callbacks = callbacks_of(callbacks)
    settings = checked_scenario("run.scenario", scenario).engine
    check_engine(settings.name, workers=settings.workers, scheduler=settings.scheduler)  # before anything is loaded
    folder = None if out is None else RunFolder(path_of("run.out", out))
    if extend:
        if folder is None:
            raise UsageError("run.extend needs the folder of a finished run, got none; give it as out.")
        extend_run(folder, scenario)
    elif folder is not None and folder.has_run and not resume:
        raise UsageError(f"{out} already holds a run; resume it (--resume, resume=True) or choose another folder.")
    kernel = None if folder is None else folder.kernel
    environment = Environment()
    if replay is not None:
        replayed = RunFolder(path_of("run.replay", replay))
        environment, kernel = _replay_environment(replayed, what_if), kernel or replayed.kernel_used
    elif what_if is not None:
        raise UsageError("run.what_if needs the run folder of a deployment, got none; give it as replay.")
    if kernel == "native" and native.trouble:
        raise UsageError(
            f"{out if replay is None else replay} was trained with the native kernel, which cannot be used here: "
            f"{native.trouble}; continue it where airprune doctor finds the kernel."
        )
    experiment = Experiment.of(
        scenario,
        model=model,
        dataset=dataset,
        loss=loss,
        metric=metric,
        train=train,
        optimizer=optimizer,
        kernel=kernel,
    )
    environment.check(experiment)
    states: list[RunState] = []
    records = records_of(experiment, folder, environment, show=states.append)
    if not callbacks:
        return records
    place = None if folder is None else folder.path
    return with_callbacks(callbacks, records, scenario, place, lambda: _read_only(_trained(experiment, states[-1])))


def _replay_environment(folder: RunFolder, what_if: Callable[[Any], None] | None) -> Environment:
    from airprune.deployment.replay import Replayed
    from airprune.deployment.what_if import WhatIf

    return Replayed(folder) if what_if is None else WhatIf(folder, what_if)


def _read_only(model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns copies, which stay as they are while the run goes on."""
    copies = {name: array.copy() for name, array in model.items()}
    for array in copies.values():
        array.flags.writeable = False
    return copies


def records_of(
    experiment: Experiment,
    folder: RunFolder | None,
    environment: Environment,
    *,
    watch: Watch | None = None,
    show: Callable[[RunState], None] | None = None,
) -> Records:
    """Yields the remaining records of a run in a folder, in this environment.

    Args:
      watch: as in `run_rounds`.
      show: called once with the state, which is up to date at every record.
    """
    with contextlib.ExitStack() as stack:
        state, writer, memory = experiment.initial_state(), None, None
        state.values |= environment.values(experiment)
        if folder is not None:
            writer = RunWriter(folder, experiment, stack.enter_context(locked(folder.path)))
            saved = writer.load()
            if saved is not None:
                state, memory = state.restored(saved.arrays, saved.facts), saved.memory
        if show is not None:
            show(state)
        if not experiment.has_ended(state):
            try:
                yield from _run(experiment, state, environment, writer, memory, watch)
            except StopRun as stop:
                state.stopped = str(stop) or "by a callback"
                if writer is not None:
                    writer.end(state)
        if state.diverged:
            raise Diverged(state.diverged)
        trained = _trained(experiment, state)
        if writer is not None:
            writer.finish(trained)
        return trained


def _run(
    experiment: Experiment,
    state: RunState,
    environment: Environment,
    writer: RunWriter | None,
    memory: dict[str, Any] | None,
    watch: Watch | None,
) -> Iterator[dict[str, Any]]:
    settings = experiment.scenario.engine
    with contextlib.ExitStack() as stack:
        place = _place_of(writer, stack)
        # First, because it refuses what would not fit; it writes nothing before a device has state.
        if environment.keeps_memory:
            state.store = opened_store(experiment, place if writer is None else writer.folder.path, memory)
        in_process = settings.name == "serial"
        job = experiment.job(InProcess(experiment.dataset) if in_process else share(experiment.dataset, place))
        engine_class = engine_named(settings.name)
        tls = None if settings.tls is None else Path(settings.tls)
        engine = stack.enter_context(
            engine_class(
                job,
                workers=settings.workers,
                scheduler=settings.scheduler,
                tls=tls,
                silence_s=settings.worker_timeout_s,
            )
        )
        if writer is not None:
            writer.begin()  # only now: a run that gets no engine leaves nothing behind
        for record in map(finite, run_rounds(experiment, engine, state, watch=watch, environment=environment)):
            if writer is not None:
                if experiment.scenario.stop.keep_best and is_best(state, record):
                    writer.keep_best(_trained(experiment, state), record)
                writer.save(state, record, has_ended=experiment.has_ended(state), store=state.store)
            yield record


def is_best(state: RunState, record: dict[str, Any]) -> bool:
    """True if this global round has the best metric so far, where the run watches one."""
    return record["kind"] == "global" and BEST in state.values and state.values[BEST][1] == record["global_round"]


def opened_store(experiment: Experiment, folder: Path, table: dict[str, Any] | None = None) -> DeviceStore | None:
    """Opens the state of devices in a folder, as a checkpoint's table has it; None if no component needs any."""
    slots = [slot for slot in experiment.slots if slot.owner == Owner.DEVICE]
    if not slots:
        return None
    num_devices, most = experiment.network.num_devices, experiment.most_devices
    return DeviceStore(folder / "memory", slots, experiment.shape, num_devices, table, most_writers=most)


def _trained(experiment: Experiment, state: RunState) -> dict[str, np.ndarray]:
    """Returns the trained model under the module's own names; several as a `ModuleList` names them."""
    model, arrays = experiment.model, dict[str, np.ndarray]()
    members = evaluated_models(experiment, state)
    for number, member in enumerate(members):
        prefix = f"{number}." if len(members) > 1 else ""
        arrays |= {prefix + name: array for name, array in model.trained_arrays(member).items()}
    return arrays


def _place_of(writer: RunWriter | None, stack: contextlib.ExitStack) -> Path:
    """Returns a folder for files that last as long as the run, such as the data that workers map.

    It lies in the run folder, so that a killed run leaves nothing elsewhere and its continuation clears it away.
    """
    if writer is not None:
        return stack.enter_context(writer.scratch())
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airprune-")))


class InProcess:
    """A data set that its workers need not look for."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def open(self) -> Dataset:
        return self._dataset
