"""Small runs seen from inside: each edge round as planned and as it came out, and views for maskings alone."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune.components.component import ModelShape, Tensor
from airprune.components.layers import PrunableLayers
from airprune.engines.serial import SerialEngine
from airprune.methods.masking.base import RoundView
from airprune.rounds.experiment import Experiment
from airprune.rounds.timing import TimedRound
from airprune.runs.driver import InProcess, opened_store
from airprune.scenario import Scenario
from airprune.simulation import run_rounds
from support.tiny import blobs


@dataclass(frozen=True, eq=False)
class Played:
    """One edge round: prunable weights of all nodes before and after it, and the run's slots after it."""

    timed: TimedRound
    before: np.ndarray
    after: np.ndarray
    values: dict[str, np.ndarray]


def played(scenario: Scenario) -> list[Played]:
    """All edge rounds of a run on blobs."""
    experiment = Experiment.of(scenario, dataset=blobs())
    state = experiment.initial_state()
    prunable = experiment.shape.prunable
    rounds: list[Played] = []
    seen: list[TimedRound] = []
    with tempfile.TemporaryDirectory() as folder, SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        state.store = opened_store(experiment, Path(folder))
        before = state.models[:, prunable].copy()
        for record in run_rounds(experiment, engine, state, watch=lambda timed, results: seen.append(timed)):
            after = state.models[:, prunable].copy()
            if record["kind"] == "edge":
                rounds.append(Played(seen[-1], before, after, dict(state.values)))
            before = after if record["kind"] == "edge" else np.tile(after[:1], (len(after), 1))  # everybody gets w_G
    return rounds


def shape_of(*layers: tuple[int, int], fixed: int = 0, num_devices: int = 3) -> ModelShape:
    """A model of `fixed` weights that are never pruned and of these matrices."""
    prunable = PrunableLayers.of([(f"fc{i}", *sizes) for i, sizes in enumerate(layers)])
    size = fixed + prunable.num_weights
    tensors = (Tensor("conv", 0, fixed, True), Tensor("fc", fixed, size, True))
    return ModelShape(
        num_state=size,
        num_parameters=size,
        prunable=slice(fixed, size),
        layers=prunable,
        tensors=tensors,
        num_devices=num_devices,
    )


def round_view(
    shape: ModelShape, keep: Any, model: np.ndarray, now: np.ndarray | None = None, **changes: Any
) -> RoundView:
    """An edge round as a masking sees it from the driver."""
    keep = np.atleast_1d(keep)
    values: dict[str, Any] = {
        "round_index": 0,
        "num_rounds": 10,
        "global_round": 0,
        "edge_round": 0,
        "device": np.arange(keep.size),
        "rng": lambda: np.random.default_rng(0),
        "device_rng": np.random.default_rng,
        "run_rng": lambda: np.random.default_rng(1),
    }
    return RoundView(
        shape=shape, keep=keep, model=model, now=lambda: model if now is None else now, **{**values, **changes}
    )
