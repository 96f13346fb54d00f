"""Minibatch steps with knowledge distillation from the received model, against forgetting what others have learnt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic import Field

from airprune.methods.loops.base import Loop, TrainingContext
from airprune.settings.section import NonNegative, Positive

if TYPE_CHECKING:
    from torch import Tensor, nn


class Distilled(Loop):
    """F + γ/2 T² KL(p_received ‖ p), where p = softmax(outputs / T)."""

    name = "distilled"
    summary = "the loss and knowledge distillation from the received model"
    source = "after FedGKD (Yao et al. 2021)"

    gamma: NonNegative = Field(default=0.2, description="weight of the distillation; 0: steps on the loss alone")
    temperature: Positive = Field(default=1.0, description="temperature T of the softmax in the distillation")

    def train(self, model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], context: TrainingContext) -> None:
        import torch
        from torch.nn import functional as F

        optimizer, teacher = context.optimizer(model), context.received_model()
        for (x, y), rate in zip(batches, context.rates, strict=True):
            optimizer.zero_grad()
            outputs = model(x)
            with torch.no_grad():
                wanted = F.log_softmax(teacher(x) / self.temperature, dim=1)
            ours = F.log_softmax(outputs / self.temperature, dim=1)
            distance = F.kl_div(ours, wanted, reduction="batchmean", log_target=True)
            loss = context.loss(outputs, y) + 0.5 * self.gamma * self.temperature**2 * distance
            loss.backward()
            context.clip_gradients(model)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
