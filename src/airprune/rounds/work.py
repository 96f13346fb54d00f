"""The work that devices can do in a round, for schemes that plan it: parts of the model, local steps, seconds.

Progress of τ local steps is g(τ) = a / (a + a½), where a = ‖a‖₁ counts the gradients in an update (see
`gradients_in_update`) and a½ those that bring half of what endless local training would. A part is worth the share of
the layers that it trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from airprune.components.component import ModelShape
from airprune.planning import MeasuredWork, WorkModel
from airprune.planning.schemes.work_scheme import WorkScheme
from airprune.randomness import rng_for
from airprune.rounds.optimisers import gradients_in_update
from airprune.wireless.device_speed.work import ModelWork

if TYPE_CHECKING:
    from airprune.scenario.sections import TrainSection

Array = np.ndarray
_COUNTED = MeasuredWork()


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalWork:
    """Settings of local training as planners of work need them.

    Attributes:
      first_trained, weights, cost, saved, value: of the parts, as in `WorkModel`.
      full_minibatches: whether a step takes as long whatever its minibatch has, as on the paper's clock.
      max_epochs: most local passes; None: local steps as the settings say.
      half_work: a½.
      last_trained: of the parts, where some end below the top; else None.
      seed: of the run, for schemes that choose at random; else None.
    """

    train: TrainSection
    first_trained: Array
    weights: Array
    cost: Array
    saved: Array
    value: Array
    max_epochs: int | None
    half_work: float
    full_minibatches: bool
    last_trained: Array | None = None
    seed: int | None = None

    @classmethod
    def of(
        cls,
        train: TrainSection,
        scheme: WorkScheme,
        shape: ModelShape,
        *,
        mean_samples: float,
        flops: ModelWork | None,
        seed: int = 0,
    ) -> LocalWork:
        """Builds it for a model.

        Args:
          flops: for clocks that count them; None: time grows with the weights that are trained.
        """
        layers = layers_with_weights(shape)
        first_trained, last_trained = scheme.parts_of(layers)
        blocks: list[tuple[int, int | None]] = [(first, None) for first in first_trained.tolist()]
        value = 1.0 - np.arange(len(blocks)) / len(blocks)
        if last_trained is not None:
            last_trained = np.where(last_trained == layers[-1], shape.num_layers - 1, last_trained)
            ends = [None if last == shape.num_layers - 1 else last for last in last_trained.tolist()]
            blocks = [(first, last) for (first, _), last in zip(blocks, ends, strict=True)]
            inside = (first_trained[:, None] <= layers) & (layers <= last_trained[:, None])
            value = np.count_nonzero(inside, axis=1) / len(layers)
        weights = np.array([shape.weights_above(*block) for block in blocks], dtype=np.float64)
        cost, saved = weights / weights[0], np.zeros(len(weights))
        if flops is not None:
            steps = [flops.step_flops(*block, frozen_forward=scheme.frozen_forward) for block in blocks]
            cost = np.array(steps) / flops.step_flops()
            if train.feature_cache_mb and scheme.keeps_features:
                frozen = [flops.frozen_forward(first) for first in first_trained.tolist()]
                saved = np.array(frozen) / flops.step_flops()
        half_epochs = scheme.half_progress_epochs
        epochs = train.local_epochs if half_epochs is None else half_epochs
        half_steps = epochs * np.ceil(mean_samples / train.batch_size)
        return cls(
            train=train,
            first_trained=first_trained,
            weights=weights,
            cost=cost,
            saved=saved,
            value=value,
            max_epochs=scheme.most_epochs,
            half_work=float(gradients_in_update(train.optimizer, train.momentum, half_steps)),
            full_minibatches=flops is None,
            last_trained=last_trained,
            seed=seed if scheme.draws else None,
        )

    def work(self, steps: Array) -> Array:
        """Returns ‖a‖₁ of so many local steps."""
        return gradients_in_update(self.train.optimizer, self.train.momentum, steps)

    def model(
        self,
        num_samples: Array,
        whole_s: Array,
        probe_s: Array | float,
        round_index: int,
        device: Array | None = None,
        measured: MeasuredWork = _COUNTED,
    ) -> WorkModel:
        """Returns the work that devices can do in a round.

        Args:
          num_samples: D_n.  [num_devices]
          whole_s: seconds in which they train the whole model as the scenario's settings say.  [num_devices]
          probe_s: what comes on top, whatever the work is.
          device: their numbers in the network, for schemes that choose at random.
        """
        batch = self.train.batch_size
        per_epoch = np.maximum(np.ceil(num_samples / batch), 1.0)
        if self.full_minibatches:
            step_s = whole_s / np.maximum(self.train.steps(num_samples), 1.0)
            epoch_s = step_s * per_epoch
        else:
            sample_s = whole_s / np.maximum(self.train.samples_seen(num_samples), 1.0)
            step_s, epoch_s = sample_s * np.minimum(batch, num_samples), sample_s * num_samples
        most = self.train.steps(num_samples) if self.max_epochs is None else self.max_epochs * per_epoch
        most = np.maximum(most, 1.0)
        draw: Array | float = 0.0
        if self.seed is not None and device is not None:  # one stream, so that a device's number is its own
            draw = rng_for(self.seed, "work", round_index).random(int(device.max(initial=0)) + 1)[device]
        work = self.work(np.arange(int(most.max(initial=1.0)) + 1))
        return WorkModel(
            first_trained=self.first_trained,
            part_weights=self.weights,
            part_cost=self.cost if measured.part_cost is None else measured.part_cost,
            part_saved=self.saved if measured.part_saved is None else measured.part_saved,
            part_value=self.value,
            epoch_s=epoch_s,
            step_s=step_s,
            steps_per_epoch=per_epoch,
            most_steps=most,
            progress=work / (work + self.half_work),
            last_trained=self.last_trained,
            extra_s=probe_s if measured.extra_s is None else probe_s + measured.extra_s,
            draw=draw,
            round_index=round_index,
        )


def layers_with_weights(shape: ModelShape) -> Array:
    """Returns the numbers of the layers with counted weights, ascending."""
    return np.array(sorted({tensor.layer for tensor in shape.tensors if tensor.counted}), dtype=np.int64)
