"""Step times of partial training, predicted by FLOPs and measured, for every trained part and some widths.

    .venv/bin/python benchmarks/partial.py [--turns 15] [--batch-size 32] [--data NAME] [--kernel native]

A part is named by its lowest trained layer: below it nothing moves, and no backward pass is computed. Measured is a
local step of a device alone on one thread, gradient and SGD step, in CPU-µs per sample. Parts take turns, so that a
change of the machine's speed meets all, and medians count. Predictions are `ModelWork.step_s`: by the measured step of
the whole model at this width and FLOPs alone, and by three measured times:

- the step of the whole model,
- a forward pass. A FLOP forward and one backward take unequal time: pooling and activations are not counted, and the
  native kernel propagates gradients only through the one value in four that max-pooling selects,
- what a step costs whatever it computes: the last layer alone from kept features.

The second table is of rounds of several epochs, in which outputs of frozen layers are kept from the first epoch on
(`train.feature_cache_mb`): samples per CPU-second, and how many times those of the whole model. Predicted are the same
times: the frozen layers once per sample, every visit from there, and as much per byte of the features that it reads as
is measured with the head.

`--measure` prints JSON for `scripts/bench`: samples per CPU-second of the paper's CNN by the native kernel.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import training

from airprune.components.units import leading
from airprune.methods.masking.base import SubModel
from airprune.methods.optimisers.sgd import add_scaled
from airprune.models.catalogue import FlatModel, PaperCNN
from airprune.models.kernels import KERNELS
from airprune.models.kernels.autograd import MinibatchLoss
from airprune.models.kernels.base import TrainedPart
from airprune.models.kernels.native import NativeScores
from airprune.rounds.trained_part import trained_part
from airprune.wireless.device_speed.flops import count_work
from airprune.wireless.device_speed.work import ModelWork

Array = np.ndarray
LAYERS = ("conv1", "conv2", "fc1", "fc2")
NAMES = ("whole model", "from conv2", "from fc1 (head)", "fc2 alone")
SAMPLES, EPOCHS = 512, (1, 2, 5)
FEATURE_BYTES = (0, 4 * 32 * 14 * 14, 4 * 64 * 7 * 7, 4 * 8)  # of the lowest trained layer's input
CACHE_BYTES = 10**9


@dataclass
class Trainer:
    """A model, its samples and what computes its gradients; steps of it can be timed."""

    model: FlatModel
    x: Array
    y: Array
    kernel: str
    batch_size: int

    def __post_init__(self) -> None:
        self.gradient = KERNELS[self.kernel].build(self.model, self.x, self.y)
        self.start = self.model.state_array.copy()
        order = np.random.default_rng(0).permutation(SAMPLES)
        self.batches = [order[at : at + self.batch_size] for at in range(0, SAMPLES, self.batch_size)]
        scores = NativeScores if self.kernel == "native" else _torch_scores
        self.scores: Callable[[Array], Any] = scores(self.model, self.x, self.y)
        self.work: ModelWork = count_work(PaperCNN(), self.x[0], ())

    def part(self, first_trained: int) -> TrainedPart | None:
        return trained_part(self.model, SubModel(first_trained=first_trained))

    def epochs(self, part: TrainedPart | None, number: int) -> None:
        """Local steps from the same weights every time."""
        self.model.load(self.start)
        weights = self.model.state_array[: self.model.num_parameters]
        for _ in range(number):
            for batch in self.batches:
                if part is None:
                    self.gradient(batch)
                else:
                    self.gradient.of_part(batch, part)
                add_scaled(weights, self.model.gradient_array, -0.01)

    def round(self, part: TrainedPart | None, number: int) -> None:
        """Epochs as a device makes them: with features where samples are visited again."""
        self.model.load(self.start)
        if part is not None and number > 1:
            part = self.gradient.keep_features(part, np.arange(SAMPLES), CACHE_BYTES)
        self.epochs(part, number)

    def with_own_memory(self) -> Trainer:
        """Another one of the same model, whose features no other part overwrites."""
        return Trainer(self.model, self.x, self.y, self.kernel, self.batch_size)

    def kept(self, first_trained: int) -> TrainedPart:
        """A part with features of all samples, filled."""
        part = self.part(first_trained)
        assert part is not None
        part = self.gradient.keep_features(part, np.arange(SAMPLES), CACHE_BYTES)
        self.epochs(part, 1)
        return part

    def forward(self) -> None:
        for batch in self.batches:
            self.scores(batch)


def _torch_scores(model: FlatModel, x: Array, y: Array) -> Callable[[Array], Any]:
    return MinibatchLoss(model, x, y).value


def cpu_s(call: Callable[[], Any]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def in_turns(calls: dict[Any, Callable[[], Any]], turns: int) -> dict[Any, float]:
    """The median CPU-seconds of each call over some turns, after one to warm up."""
    times: dict[Any, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            spent_s = cpu_s(call)
            if turn:
                times[name].append(spent_s)
    return {name: statistics.median(spent) for name, spent in times.items()}


def narrow(model: FlatModel, work: ModelWork, width: float, sample: Array) -> tuple[FlatModel, ModelWork]:
    """The model of the leading units at a width, with their weights, and its FLOPs."""
    graph = model.shape.units
    small = model.smaller(leading(graph, width), sample)
    assert small is not None
    torch.manual_seed(0)
    small.state[:] = torch.randn(small.num_state) * 0.05
    return small, work.narrowed(graph, graph.counts(width).tolist())


def steps_table(trainer: Trainer, work: ModelWork, width: float, turns: int) -> None:
    """Prints step times of every part, predicted and measured."""
    calls: dict[Any, Callable[[], Any]] = {
        first: functools.partial(trainer.epochs, trainer.part(first), 1) for first in range(len(LAYERS))
    }
    calls["forward"] = trainer.forward
    own = trainer.with_own_memory()
    calls["overhead"] = functools.partial(own.epochs, own.kept(3), 1)
    found = {name: spent_s / SAMPLES for name, spent_s in in_turns(calls, turns).items()}
    for first, name in enumerate(NAMES):
        by_step = work.step_s(found[0], first)
        by_both = work.step_s(found[0], first, forward_s=found["forward"], overhead_s=found["overhead"])
        print(
            f"| {trainer.kernel} | {width:g} | {name} | {work.step_flops(first) / 1e6:.2f} "
            f"| {1e6 * found[first]:.1f} | {1e6 * by_step:.1f} ({by_step / found[first] - 1:+.0%}) "
            f"| {1e6 * by_both:.1f} ({by_both / found[first] - 1:+.0%}) |"
        )


def rounds_table(trainer: Trainer, turns: int) -> None:
    """Prints samples per CPU-second of whole rounds, with features kept."""
    calls: dict[Any, Callable[[], Any]] = {}
    for number in EPOCHS:
        for first in range(len(LAYERS)):
            calls[first, number] = functools.partial(trainer.round, trainer.part(first), number)
    calls["forward"] = trainer.forward
    for first in (2, 3):
        own = trainer.with_own_memory()
        calls["kept", first] = functools.partial(own.epochs, own.kept(first), 1)
    found = {name: spent_s / SAMPLES for name, spent_s in in_turns(calls, turns).items()}
    work, known = trainer.work, {"forward_s": found["forward"], "overhead_s": found["kept", 3]}
    head_s = work.step_s(found[0, 1], 2, **known, from_features=True)
    per_byte_s = (found["kept", 2] - head_s) / FEATURE_BYTES[2]
    for number in EPOCHS:
        for first, name in enumerate(NAMES):
            speed, whole_speed = number / found[first, number], number / found[0, number]
            predicted_s = number * work.step_s(found[0, 1], first, **known)
            if first and number > 1:
                frozen_s = found["forward"] * work.frozen_forward(first) / work.forward
                later_s = work.step_s(found[0, 1], first, **known, from_features=True)
                predicted_s = frozen_s + number * (later_s + per_byte_s * FEATURE_BYTES[first])
            print(
                f"| {trainer.kernel} | {number} | {name} | {speed:,.0f} | {speed / whole_speed:.2f} × "
                f"| {number / predicted_s:,.0f} ({found[first, number] / predicted_s - 1.0:+.0%}) |"
            )


def measure(turns: int = 5) -> dict[str, float]:
    """Samples per CPU-second of parts of the paper's CNN by the native kernel, in rounds of two epochs of batch 128."""
    (x, y), _ = training.images(1, SAMPLES)
    torch.manual_seed(0)
    trainer = Trainer(FlatModel(PaperCNN()), x, y, "native", 128)
    calls = {name: functools.partial(trainer.round, trainer.part(n), 2) for n, name in ((0, "whole"), (2, "head"))}
    found = in_turns(calls, turns)
    speeds = {f"partial training speed, {name}": 2 * SAMPLES / spent_s for name, spent_s in found.items()}
    return {**speeds, "partial training, head ÷ whole, speed": found["whole"] / found["head"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--data", metavar="NAME")
    parser.add_argument("--kernel", choices=["native", "torch"])
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    training.DATA = options.data
    torch.set_num_threads(1)
    if options.measure:
        print(json.dumps(measure()))
        return
    (x, y), _ = training.images(1, SAMPLES)
    kernels = [options.kernel] if options.kernel else ["native", "torch"]
    print("| kernel | width | trained | MFLOP | measured µs | predicted by step and FLOPs | by three times and FLOPs |")
    print("|---|---|---|---|---|---|---|")
    trainers = []
    for kernel in kernels:
        torch.manual_seed(0)
        prunable = () if kernel == "native" else ("*",)
        trainer = Trainer(FlatModel(PaperCNN(), prunable=prunable), x, y, kernel, options.batch_size)
        trainers.append(trainer)
        for width in (1.0, 0.5) if kernel == "native" else (1.0, 0.5, 0.25):
            if width == 1.0:
                steps_table(trainer, trainer.work, width, options.turns)
                continue
            small, work = narrow(trainer.model, trainer.work, width, x[:1])
            steps_table(Trainer(small, x, y, kernel, options.batch_size), work, width, options.turns)
    print("\n| kernel | epochs | trained | samples per CPU-second | of whole model | predicted |")
    print("|---|---|---|---|---|---|")
    for trainer in trainers:
        rounds_table(trainer, options.turns)


if __name__ == "__main__":
    main()
