"""A file for --import: a model, a data set, a partition and all that trains, of a user's own."""

import numpy as np
import torch
from pydantic import Field

import airprune as ap
from airprune.data import DatasetEntry, Partition
from airprune.methods.augmentations import Augmentation
from airprune.methods.loops import Loop
from airprune.methods.optimisers import Optimiser
from airprune.methods.schedules import Schedule
from airprune.models.base import Model
from airprune.settings.section import Positive

rng = np.random.default_rng(0)
y = np.arange(120) % 3
x = (rng.normal(size=(3, 8))[y] * 2 + rng.normal(size=(120, 8))).astype(np.float32)


def gentle(model, batches, context):
    """Steps towards labels and the received model, clipped."""
    optimizer, teacher = context.optimizer(model), context.received_model()
    for inputs, targets in batches:
        optimizer.zero_grad()
        outputs = model(inputs)
        (context.loss(outputs, targets) + torch.nn.functional.mse_loss(outputs, teacher(inputs))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


ap.register(Loop.of(gentle))


@ap.register
class Centred(Optimiser):
    name = "centred"
    summary = "RMSprop, centred"

    alpha: Positive = Field(default=0.9, description="decay of the mean of squares")

    def torch_optimizer(self, parameters, settings):
        return torch.optim.RMSprop(parameters, lr=settings.learning_rate, alpha=self.alpha, centered=True)


@ap.register
class Inverse(Schedule):
    name = "inverse"
    summary = "1 / (1 + t)"

    def factor(self, at):
        return 1.0 / (1.0 + at.done)


@ap.register
class Scaled(Augmentation):
    name = "scaled"
    summary = "samples times a random factor"

    def apply(self, x, rng):
        return x * torch.from_numpy(rng.uniform(0.9, 1.1, size=(len(x), 1))).to(x)


def network(input_shape, num_classes):
    return torch.nn.Sequential(torch.nn.Linear(*input_shape, 16), torch.nn.Tanh(), torch.nn.Linear(16, num_classes))


ap.register(Model(name="tanh-net", summary="two layers", build=network))
ap.register(DatasetEntry.of("clouds", ((x[:90], y[:90]), (x[90:], y[90:])), summary="three clouds of points"))
ap.register(
    Partition(
        name="in-turn",
        summary="sample n goes to device n, n + N, …",
        assign=lambda task: np.arange(len(task.class_of)) % task.num_devices,
        by_class=False,
    )
)
