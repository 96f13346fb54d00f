"""Why zeroing costs accuracy and freezing does not: what it does to the loss on a device and to its update.

    .venv/bin/python benchmarks/mechanism.py

The reproduction's default schedule without pruning up to the middle of training; then one edge round of every device
from that model with the paper's plan and masks: dense, with what does not fit zeroed, and with it frozen. Told are the
loss at the start of the round, and the cosine of each update with the dense one, over what was sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import airprune as ap
from airprune.rounds.device import device_round
from airprune.rounds.edge import select_and_plan
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Device, Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.runs.driver import InProcess
from airprune.studies.paper.profiles import PROFILES

GLOBAL_ROUNDS = 3


def scenario_of(**changes: Any) -> ap.Scenario:
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return PROFILES["default"].scenario("paper-converged", 0, {"engine.name": "serial", **values})


def trained_model() -> np.ndarray:
    """Of a run without pruning, after half of its global rounds."""
    from airprune.engines import ENGINES
    from airprune.simulation import run_rounds

    experiment = Experiment.of(scenario_of(plan__scheme="no-pruning", rounds__global_rounds=GLOBAL_ROUNDS))
    state = experiment.initial_state()
    with ENGINES["serial"](experiment.job(InProcess(experiment.dataset)), workers=1) as engine:
        for _ in run_rounds(experiment, engine, state):
            pass
    return state.global_state.copy()


def one_round(model: np.ndarray, **changes: Any) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """(loss of each device's first epoch, updates, what was sent) of all devices."""
    experiment = Experiment.of(scenario_of(**changes))
    state = experiment.initial_state()
    at = experiment.place(state)
    candidates, _ = experiment.candidates(at, state, experiment.served(at, state))
    planned = select_and_plan(experiment.context, candidates, experiment.network.cpu_hz, 0)
    job, dataset = experiment.job(InProcess(experiment.dataset)), experiment.dataset
    device = Device(experiment.model, dataset.train_x, dataset.train_y, job.settings, job.method, job.wire)
    streams = Streams(experiment.scenario.seed, GLOBAL_ROUNDS, 0)
    losses, updates, sent = [], [], []
    for number, keep in zip(planned.device.tolist(), planned.keep.tolist(), strict=True):
        orders = Orders(device=number, keep=keep, learning_rate=1e-12, round_index=0)
        held = device_round(device, Broadcast(model=model), orders, samples=experiment.samples[number], streams=streams)
        losses.append(held.loss)
        orders = Orders(device=number, keep=keep, learning_rate=experiment.scenario.train.learning_rate, round_index=0)
        done = device_round(device, Broadcast(model=model), orders, samples=experiment.samples[number], streams=streams)
        mask = np.ones(len(model), dtype=bool)
        if done.mask is not None:
            mask[experiment.shape.prunable] = done.mask
        updates.append(np.where(mask, done.state.astype(np.float64) - model, 0.0))
        sent.append(mask)
    return np.array(losses), updates, sent


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def main() -> None:
    model = trained_model()
    dense_loss, dense, _ = one_round(model, plan__scheme="no-pruning")
    print(f"dense: loss {dense_loss.mean():.3f}")
    for name, masking in (("zeroed", "probe"), ("frozen", "frozen")):
        loss, updates, sent = one_round(model, masking__name=masking)
        pruned = np.array([not mask.all() for mask in sent])
        angles = [cosine(u, np.where(m, d, 0.0)) for u, d, m in zip(updates, dense, sent, strict=True)]
        low, middle, high = np.percentile(np.array(angles)[pruned], [5, 50, 95])
        print(
            f"{name}: loss {loss[pruned].mean():.3f} (dense {dense_loss[pruned].mean():.3f}) on the {pruned.sum()} of "
            f"{len(pruned)} devices that are pruned; cosine with the dense update {middle:.2f} ({low:.2f} … {high:.2f})"
        )


if __name__ == "__main__":
    main()
