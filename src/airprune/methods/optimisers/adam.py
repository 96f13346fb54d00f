"""Adam and AdamW on the flat model, by torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from airprune.methods.optimisers.base import Array, Optimiser, Step, StepSettings
from airprune.settings.section import Positive

if TYPE_CHECKING:
    import torch

Beta = Annotated[float, Field(ge=0, lt=1)]


class Adam(Optimiser):
    """Adam; weight decay is added to the gradient, as L2 regularisation is."""

    name = "adam"
    summary = "Adam; train.momentum is beta_1, where 0 means 0.9"
    source = "Kingma and Ba 2015"
    decays = False
    stays = True
    by_tensor = False

    beta_2: Beta = Field(default=0.999, description="decay of the mean of squared gradients")
    epsilon: Positive = Field(default=1e-8, description="added to the root of that mean")

    def begin(self, settings: StepSettings) -> Step:
        import torch

        beta1, beta2, epsilon = settings.momentum or 0.9, self.beta_2, self.epsilon
        decay = settings.weight_decay if self.decays else 0.0
        first: torch.Tensor | None = None
        second: torch.Tensor | None = None
        count = 0

        def step(weights_array: Array, gradient_array: Array, learning_rate: float) -> None:
            nonlocal first, second, count
            weights, gradient = torch.from_numpy(weights_array), torch.from_numpy(gradient_array)
            if first is None or second is None:
                first, second = torch.zeros_like(weights), torch.zeros_like(weights)
            if decay:
                weights.mul_(1.0 - learning_rate * decay)
            count += 1
            first.lerp_(gradient, 1.0 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
            scale = learning_rate * math.sqrt(1.0 - beta2**count) / (1.0 - beta1**count)
            weights.addcdiv_(first, second.sqrt().add_(epsilon * math.sqrt(1.0 - beta2**count)), value=-scale)

        return step

    def torch_optimizer(self, parameters: Iterable[Any], settings: StepSettings) -> torch.optim.Optimizer:
        import torch

        kind = torch.optim.AdamW if self.decays else torch.optim.Adam
        return kind(
            parameters,
            lr=settings.learning_rate,
            betas=(settings.momentum or 0.9, self.beta_2),
            eps=self.epsilon,
            weight_decay=settings.weight_decay,
        )


class AdamW(Adam):
    """Adam with decoupled weight decay: w ← (1 − η decay) w before the step."""

    name = "adamw"
    summary = "Adam with decoupled weight decay; train.momentum is beta_1, where 0 means 0.9"
    source = "Loshchilov and Hutter 2019"
    decays = True
    stays = False
