"""What one device does in one edge round: probe, prune, train. Steps 5–9 of Algorithm 1.

The seam for other trainers is `Trainer.train`: flat weights, a kept count, the device's samples and its random stream
in; flat weights, the mask and statistics out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch.nn import functional as F

from airprune.learning.native import NativeGradient
from airprune.learning.optimisers import OPTIMISERS
from airprune.models import FlatModel
from airprune.pruning.importance import Importance, Probe
from airprune.pruning.masks import choose_mask
from airprune.pruning.structured import choose_units

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """How every device trains and prunes; the learning rate comes with the round."""

    batch_size: int
    local_epochs: int
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    importance: Importance
    scope: str = "global"
    structure: str = "weights"
    diagnostics: bool = False
    kernel: str = "torch"


@dataclass(frozen=True, kw_only=True)
class LocalResult:
    """A device's trained model and what is worth recording of it.

    Attributes:
      state: flat weights, exactly zero where pruned; a view that the next call overwrites.  [num_state]
      mask: over the prunable weights, None if nothing was pruned.
      loss: mean training loss over the minibatches seen.
      num_samples: samples trained on, each counted once per epoch.
      gradient_sq_max: the largest ‖∇F(w, ξ)‖² seen, for φ² of Assumption 3; NaN without diagnostics.
      gradient_noise_sq: ‖∇F(w, ξ) − ∇F(w)‖² at the received model, for σ̂² of Assumption 4; NaN without diagnostics.
      smoothness: ‖∇F(w) − ∇F(w′)‖ / ‖w − w′‖ over the round, for L of Assumption 1; NaN without diagnostics.
      pruning_error_sq: ‖w − w ⊙ m‖², for D² of Assumption 2.
    """

    state: Array
    mask: Array | None
    loss: float
    num_samples: int
    gradient_sq_max: float
    gradient_noise_sq: float
    smoothness: float
    pruning_error_sq: float


class Trainer:
    """Trains one device after the other on one `FlatModel`, drawing samples from arrays shared by all of them."""

    def __init__(self, model: FlatModel, x: Array, y: Array, settings: LocalSettings) -> None:
        self.model = model
        self.x = tensor_of(x).to(model.state.dtype) if model.state.dtype == torch.float64 else tensor_of(x)
        self.y = tensor_of(y)
        self.settings = settings
        self._native = NativeGradient(model, x, y) if settings.kernel == "native" else None

    def train(
        self, received: Array, *, keep: int, samples: Array, rng: np.random.Generator, learning_rate: float
    ) -> LocalResult:
        """One edge round of one device that keeps `keep` prunable weights."""
        model, settings = self.model, self.settings
        model.load(received)
        if not model.module.training:
            model.module.train()
        before = self._full_gradient(samples) if settings.diagnostics else None
        order = torch.from_numpy(rng.permutation(samples))
        mask = self._choose_mask(order[: settings.batch_size], keep, rng, learning_rate)
        error_sq = self._apply(mask)
        multiplier = None if mask is None else torch.from_numpy(mask).to(model.state.dtype)

        step = OPTIMISERS[settings.optimizer](learning_rate, settings.momentum, settings.weight_decay)
        weights = model.state[: model.num_parameters]
        loss_sum, count, gradient_sq_max = 0.0, 0, 0.0
        for epoch in range(settings.local_epochs):
            if epoch:
                order = torch.from_numpy(rng.permutation(samples))
            for start in range(0, len(samples), settings.batch_size):
                batch = order[start : start + settings.batch_size]
                size = min(settings.batch_size, len(samples) - start)
                loss_sum += self._gradient(batch) * size
                count += size
                if multiplier is not None:
                    model.gradient[model.prunable] *= multiplier
                if settings.diagnostics:
                    gradient_sq_max = max(gradient_sq_max, float(model.gradient.square().sum()))
                step(weights, model.gradient)
        noise_sq, smoothness = self._constants(samples, received, before) if before is not None else (np.nan, np.nan)
        return LocalResult(
            state=model.state_array,
            mask=mask,
            loss=loss_sum / count,
            num_samples=count,
            gradient_sq_max=gradient_sq_max if settings.diagnostics else np.nan,
            gradient_noise_sq=noise_sq,
            smoothness=smoothness,
            pruning_error_sq=error_sq,
        )

    def _choose_mask(
        self, batch: torch.Tensor, keep: int, rng: np.random.Generator, learning_rate: float
    ) -> Array | None:
        """Eq. (2) on the dense received model. Differs from the literal Eq. (2): see `airprune.pruning.importance`.

        The probe minibatch is the round's first, so pruning changes nothing in which samples are visited when.
        """
        model, importance = self.model, self.settings.importance
        if keep >= model.fc_weights:
            return None
        if importance.needs_gradient:
            self._gradient(batch)
        weights = model.state[model.prunable].numpy().copy()
        probe = Probe(
            weights=weights,
            gradient=model.gradient[model.prunable].numpy() if importance.needs_gradient else None,
            learning_rate=learning_rate,
            loss=self._loss_of_prunable(batch) if importance.needs_loss else None,
            rng=np.random.Generator(cast(np.random.Philox, rng.bit_generator).jumped()),
        )
        scores = importance.score(probe)
        if self.settings.structure == "neurons":
            return choose_units(scores, keep=keep, layers=model.layers, tie_break=np.abs(weights)).mask
        return choose_mask(scores, keep=keep, layers=model.layers, scope=self.settings.scope, tie_break=np.abs(weights))

    def _apply(self, mask: Array | None) -> float:
        """Eq. (5): zero what the mask leaves out; returns ‖w − w ⊙ m‖²."""
        if mask is None:
            return 0.0
        weights = self.model.state_array[self.model.prunable]
        kept = weights * mask
        removed = weights - kept
        weights[:] = kept
        return float(np.square(removed).sum())

    def _gradient(self, batch: torch.Tensor) -> float:
        """∇F(w, ξ) into `model.gradient`; returns F(w, ξ)."""
        if self._native is not None:
            return self._native(batch.numpy())
        self.model.gradient.zero_()
        loss = self._loss(batch)
        loss.backward()
        return loss.item()

    def _loss(self, batch: torch.Tensor) -> torch.Tensor:
        """F(w, ξ) of Eq. (7) on one minibatch."""
        x = self.x[batch]
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return F.cross_entropy(self.model.module(x), self.y[batch])

    def _full_gradient(self, samples: Array) -> torch.Tensor:
        """∇F(w) over all of the device's samples."""
        index = torch.from_numpy(samples)
        total = torch.zeros_like(self.model.gradient)
        for batch in index.split(self.settings.batch_size):
            self._gradient(batch)
            total.add_(self.model.gradient, alpha=len(batch) / len(index))
        return total

    def _constants(self, samples: Array, received: Array, before: torch.Tensor) -> tuple[float, float]:
        """(σ̂² on one minibatch at the received model, L between it and the trained model)."""
        model = self.model
        trained = model.state.clone()
        after = self._full_gradient(samples)
        model.load(received)
        moved = (trained - model.state)[: model.num_parameters].norm()
        self._gradient(torch.from_numpy(samples[: self.settings.batch_size]))
        noise_sq = float((model.gradient - before).square().sum())
        model.state.copy_(trained)
        return noise_sq, float((after - before).norm() / moved) if moved > 0 else 0.0

    def _loss_of_prunable(self, batch: torch.Tensor) -> Callable[[Array], float]:
        """F as a function of the prunable weights alone, for Eq. (1)."""
        model = self.model

        def loss(weights: Array) -> float:
            saved = model.state[model.prunable].clone()
            model.state[model.prunable] = torch.from_numpy(np.asarray(weights)).to(saved.dtype)
            with torch.no_grad():
                value = self._loss(batch).item()
            model.state[model.prunable] = saved
            return value

        return loss


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor on the array's own memory, also if that is a read-only map of a file; nothing here writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
