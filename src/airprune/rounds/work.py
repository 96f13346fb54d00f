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
from airprune.planning.schemes.work import Work
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
      half_work: a½.
    """

    train: TrainSection
    first_trained: Array
    weights: Array
    cost: Array
    saved: Array
    value: Array
    max_epochs: int
    half_work: float
    full_minibatches: bool

    @classmethod
    def of(
        cls, train: TrainSection, scheme: Work, shape: ModelShape, *, mean_samples: float, flops: ModelWork | None
    ) -> LocalWork:
        """Builds it for a model.

        Args:
          flops: for clocks that count them; None: time grows with the weights that are trained.
        """
        first_trained = parts_of(shape) if scheme.parts else np.zeros(1, dtype=np.int64)
        weights = np.array([shape.weights_above(first) for first in first_trained.tolist()], dtype=np.float64)
        cost, saved = weights / weights[0], np.zeros(len(weights))
        if flops is not None:
            cost = np.array([flops.step_flops(first) for first in first_trained.tolist()]) / flops.step_flops()
            if train.feature_cache_mb:
                frozen = [flops.frozen_forward(first) for first in first_trained.tolist()]
                saved = np.array(frozen) / flops.step_flops()
        epochs = train.local_epochs if scheme.half_epochs is None else scheme.half_epochs
        half_steps = epochs * np.ceil(mean_samples / train.batch_size)
        return cls(
            train=train,
            first_trained=first_trained,
            weights=weights,
            cost=cost,
            saved=saved,
            value=1.0 - np.arange(len(first_trained)) / len(first_trained),
            max_epochs=scheme.max_epochs,
            half_work=float(gradients_in_update(train.optimizer, train.momentum, half_steps)),
            full_minibatches=flops is None,
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
        measured: MeasuredWork = _COUNTED,
    ) -> WorkModel:
        """Returns the work that devices can do in a round.

        Args:
          num_samples: D_n.  [num_devices]
          whole_s: seconds in which they train the whole model as the scenario's settings say.  [num_devices]
          probe_s: what comes on top, whatever the work is.
        """
        batch = self.train.batch_size
        per_epoch = np.maximum(np.ceil(num_samples / batch), 1.0)
        if self.full_minibatches:
            step_s = whole_s / np.maximum(self.train.steps(num_samples), 1.0)
            epoch_s = step_s * per_epoch
        else:
            sample_s = whole_s / np.maximum(self.train.samples_seen(num_samples), 1.0)
            step_s, epoch_s = sample_s * np.minimum(batch, num_samples), sample_s * num_samples
        most = self.max_epochs * per_epoch
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
            extra_s=probe_s if measured.extra_s is None else probe_s + measured.extra_s,
            round_index=round_index,
        )


def parts_of(shape: ModelShape) -> Array:
    """Returns the layers with which a trained part may begin: those with counted weights, the lowest as 0."""
    layers = sorted({tensor.layer for tensor in shape.tensors if tensor.counted})
    return np.array([0, *layers[1:]], dtype=np.int64)
