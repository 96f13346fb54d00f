"""Minibatch steps, Eq. (8): the loop of all published methods here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airprune.methods.loops.base import Loop, TrainingContext

if TYPE_CHECKING:
    from torch import Tensor, nn


class Steps(Loop):
    """One step of the optimiser on each minibatch.

    `rounds.device.train` computes the same by any kernel, for many devices at once, with objectives and all maskings;
    this is what it computes, in plain torch.
    """

    name = "steps"
    summary = "one step of the optimiser on each minibatch, Eq. (8)"
    source = "the paper"

    def train(self, model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], context: TrainingContext) -> None:
        optimizer = context.optimizer(model)
        for (x, y), rate in zip(batches, context.rates, strict=True):
            optimizer.zero_grad()
            context.loss(model(x), y).backward()
            context.clip_gradients(model)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
