"""Accuracy of the small residual network on CIFAR-10: federated against a plain torch loop of the same budget.

Both see as many samples, start from the same weights, and take as many steps one after the other: what is
one minibatch in the loop is one of a part of its size on each device. Nothing is pruned. By default devices take
one step between two averages of their edge, and edges average twice between two averages of the cloud: nearly the loop
itself, but for the samples that batch normalisation averages over and for how minibatches are drawn.

How it is judged was settled before the defaults were run: the two match if the 95 % interval (Student's t) of their
difference, paired by seed, contains 0. An earlier run averaged less often:
--local-steps 4 --batch 32 --epochs 6 --seeds 3 --test-samples 2000.

.venv/bin/python benchmarks/cifar.py [--samples 2000] [--epochs 8] [--seeds 6] [--devices 4] [--local-steps 1]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch.nn import functional as F

import airprune as ap
from airprune.data import Dataset
from airprune.models.catalogue import build_model
from airprune.scenario.data import dataset_of

EDGE_ROUNDS = 2


def scenario_of(options: argparse.Namespace) -> ap.Scenario:
    steps = options.epochs * options.samples / options.batch
    return ap.Scenario.preset("cifar").with_values(
        {
            "method": "hierfavg",
            "network.num_edges": 2,
            "network.devices_per_edge": options.devices // 2,
            "data.train_samples": options.samples,
            "data.test_samples": options.test_samples,
            "train.batch_size": options.batch // options.devices,
            "train.learning_rate": options.rate,
            "train.momentum": 0.0,
            "train.schedule": "cosine",
            "train.local_epochs": 1,
            "train.local_steps": options.local_steps,
            "rounds.global_rounds": round(steps / options.local_steps / EDGE_ROUNDS),
            "rounds.edge_rounds": EDGE_ROUNDS,
            "rounds.evaluate_every": "never",
            "plan.deadline_s": 10.0,
            "plan.bits_per_weight": 32.0,
            "engine.name": "serial",
        }
    )


def federated(scenario: ap.Scenario) -> float:
    with tempfile.TemporaryDirectory() as folder:
        for _ in ap.run(scenario, out=Path(folder) / "run"):
            pass
        return accuracy(ap.load_model(Path(folder) / "run"), dataset_of(scenario))


def central(scenario: ap.Scenario, epochs: int, batch: int) -> float:
    """What one would write without a federation, on the same samples."""
    data = dataset_of(scenario)
    x, y = torch.from_numpy(data.train_x.copy()), torch.from_numpy(data.train_y.copy())
    model = build_model("resnet-8", input_shape=data.feature_shape, num_classes=data.num_classes, seed=scenario.seed)
    optimiser = torch.optim.SGD(model.parameters(), lr=scenario.train.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    generator = torch.Generator().manual_seed(scenario.seed)
    for _ in range(epochs):
        for index in torch.randperm(len(x), generator=generator).split(batch):
            optimiser.zero_grad()
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimiser.step()
        schedule.step()
    return accuracy(model.eval(), data)


def accuracy(model: torch.nn.Module, data: Dataset) -> float:
    with torch.inference_mode():
        parts = torch.from_numpy(data.test_x.copy()).split(256)
        found = torch.cat([model(part).argmax(1) for part in parts]).numpy()
    return float((found == data.test_y).mean())


def told(name: str, values: list[float]) -> str:
    return f"{name:<12} {' '.join(f'{100 * v:.1f}' for v in values)}   {interval(values)}"


def interval(values: list[float]) -> str:
    """Mean and half of the 95 % interval of Student's t, in points."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{100 * np.mean(values):.1f} ± {100 * half:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2_000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--devices", type=int, default=4, help="on two edges")
    parser.add_argument("--local-steps", type=int, default=1, help="between two averages of an edge")
    parser.add_argument("--test-samples", type=int, default=5_000)
    parser.add_argument("--rate", type=float, default=0.1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    base = scenario_of(options)
    ours: list[float] = []
    theirs: list[float] = []
    for seed in range(options.seeds):
        start = time.process_time()
        ours.append(federated(base.with_("seed", seed)))
        middle = time.process_time()
        theirs.append(central(base.with_("seed", seed), options.epochs, options.batch))
        end = time.process_time()
        print(
            f"seed {seed}: federated {ours[-1]:.4f} in {middle - start:.0f} CPU-s, "
            f"central {theirs[-1]:.4f} in {end - middle:.0f} CPU-s",
            flush=True,
        )
    print(told("federated", ours))
    print(told("central", theirs))
    print(f"difference   {interval([a - b for a, b in zip(ours, theirs, strict=True)])}, paired by seed")


if __name__ == "__main__":
    main()
