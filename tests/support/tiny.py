"""Small experiments that run in a blink, and readers of what they leave behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

import airprune as ap
from airprune.engines.serial import SerialEngine
from airprune.methods.compression.base import Wire
from airprune.models.catalogue import MLP, FlatModel
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Device, LocalSettings
from airprune.rounds.method import Method
from airprune.rounds.timing import TimedRound
from airprune.runs.driver import InProcess, opened_store
from airprune.simulation import run_rounds


def blobs(num_train: int = 240, num_test: int = 60, features: int = 12, classes: int = 4, seed: int = 0):
    """Gaussian blobs, one per class: ((x, y), (x_test, y_test))."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, features)) * 2

    def draw(count: int):
        y = np.arange(count) % classes
        return (centres[y] + rng.normal(size=(count, features))).astype(np.float32), y

    return draw(num_train), draw(num_test)


def tiny_scenario(**changes) -> ap.Scenario:
    """Two edges, three devices each, an MLP on blobs, serial."""
    values = {
        "seed": 5,
        "model.name": "mlp",
        "network.num_edges": 2,
        "network.devices_per_edge": 3,
        "train.learning_rate": 0.05,
        "train.batch_size": 16,
        "train.local_epochs": 2,
        "rounds.global_rounds": 2,
        "rounds.edge_rounds": 2,
        "plan.deadline_s": 1.0,
        "engine.name": "serial",
    }
    return ap.Scenario().with_values({**values, **{key.replace("__", "."): value for key, value in changes.items()}})


def last_state(scenario: ap.Scenario):
    """(the state that a run in memory ends in, its records, the experiment)."""
    experiment = Experiment.of(scenario, dataset=blobs())
    state = experiment.initial_state()
    with tempfile.TemporaryDirectory() as folder, SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        state.store = opened_store(experiment, Path(folder))
        records = list(run_rounds(experiment, engine, state))
    return state, records, experiment


def timed_rounds(scenario: ap.Scenario) -> tuple[list[TimedRound], Experiment]:
    """(every edge round of a run without memory as the clock saw it, the experiment)."""
    experiment, rounds = Experiment.of(scenario, dataset=blobs()), []
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        state = experiment.initial_state()
        for _ in run_rounds(experiment, engine, state, watch=lambda timed, _: rounds.append(timed)):
            pass
    return rounds, experiment


def tiny_device(masking: str, options: dict, **settings) -> Device:
    """A device with an MLP of eight hidden units, in float64."""
    torch.manual_seed(0)
    (x, y), _ = blobs()
    choice = {"masking.name": masking} | {f"masking.{masking}.{key}": value for key, value in options.items()}
    model = FlatModel(MLP((12,), 4, hidden=8), float64=True)
    wire = Wire(value_bits=64.0, num_weights=model.shape.num_weights, num_tensors=2)
    local = LocalSettings(batch_size=16, local_epochs=2, **settings)
    return Device(model, x, y, local, Method.of(tiny_scenario(**choice)).local, wire)


def final_bytes(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "final.safetensors").read_bytes(), (folder / "records.jsonl").read_bytes()


TINY_TOML = """\
base = "smoke"
[model]
name = "mlp"
[data]
train_samples = 120
test_samples = 40
[train]
batch_size = 16
local_epochs = 1
[plan]
deadline_s = 0.01
"""


def tiny_file(folder: Path, *, global_rounds: int = 2) -> Path:
    """`tiny.toml` for the command line: four devices, an MLP on glyphs, about half of the weights pruned."""
    path = folder / "tiny.toml"
    path.write_text(TINY_TOML + f"[rounds]\nglobal_rounds = {global_rounds}\n")
    return path
