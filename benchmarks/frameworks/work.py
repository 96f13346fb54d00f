"""What the drivers beside it share: the model, the images of each device, and the lines that the benchmark reads.

Imports nothing of airprune, so that it runs in each framework's own environment. The folder that BENCHMARK_FOLDER
names holds work.json, images.npy, labels.npy and initial.pt; final.pt is what the driver leaves there.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FOLDER = Path(os.environ["BENCHMARK_FOLDER"])


@functools.cache
def settings() -> dict:
    """num_devices, samples, batch_size, learning_rate, rounds (the first one, which warms up, included)."""
    return json.loads((FOLDER / "work.json").read_text())


class CNN(nn.Module):
    """The same as `PlainCNN` of training.py, which the benchmark checks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(3136, 8)
        self.fc2 = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def initial_model() -> CNN:
    model = CNN()
    model.load_state_dict(torch.load(FOLDER / "initial.pt"))
    return model


@functools.cache
def data() -> tuple[torch.Tensor, torch.Tensor]:
    """All images and labels, read once per process."""
    return torch.from_numpy(np.load(FOLDER / "images.npy")), torch.from_numpy(np.load(FOLDER / "labels.npy"))


def data_of(device: int) -> tuple[torch.Tensor, torch.Tensor]:
    samples = settings()["samples"]
    own = slice(device * samples, (device + 1) * samples)
    return tuple(array[own] for array in data())


class Count:
    """Samples that passed through `model` in training, counted where they are trained on and not where it is told."""

    def __init__(self, model: nn.Module) -> None:
        self._samples = 0
        model.register_forward_pre_hook(self)

    def __call__(self, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if model.training and torch.is_grad_enabled():
            self._samples += len(inputs[0])

    def __deepcopy__(self, memo: dict) -> Count:
        return self  # a framework that copies the model is counted all the same

    def take(self) -> int:
        samples, self._samples = self._samples, 0
        return samples


def report(round_number: int, samples: int) -> None:
    """To be called by every process that trains, after each round, counted from 1."""
    sys.stdout.write(f"round {round_number} {samples}\n")  # at one stroke, since two processes may write
    sys.stdout.flush()


def finish(state: dict[str, torch.Tensor]) -> None:
    torch.save({name: value.detach().clone() for name, value in state.items()}, FOLDER / "final.pt")
