"""Holds the work that devices can do in an edge round as data: parts of the model, local steps, and their progress."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airprune.checks import quantity
from airprune.errors import InvalidValue

Array = np.ndarray

# Stands for no time at all where time is divided by.
_NO_TIME = 1e-200


def one_or(array: Array, kept: Any) -> Array:
    """Returns some entries of an array; of one that repeats a single number, that number."""
    return array[0] if array.strides == (0,) and array.size else array[kept]


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredWork:
    """Times of work as devices measured them; they replace what clocks count.

    Attributes:
      part_cost, part_saved: as in `WorkModel`; None: as counted.  [num_parts]
      extra_s: what a round takes a device beside its training, e.g. to receive its orders.  [num_devices]
    """

    part_cost: Array | None = None
    part_saved: Array | None = None
    extra_s: Array | None = None

    def subset(self, kept: Array) -> MeasuredWork:
        """Returns the times of some of its devices."""
        return self if self.extra_s is None else replace(self, extra_s=self.extra_s[kept])


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkModel:
    """The work that devices can do in one edge round.  Arrays [num_devices] or [num_parts]

    Attributes:
      first_trained: the lowest layer that each part trains; 0 is the whole model and comes first, the least part last.
      last_trained: the highest layer that each part trains, where parts are blocks of layers, the whole model first;
        None: the top for all.
      part_weights: W_d, the counted weights of each part.
      part_cost: κ_d, seconds of a local step of each part over those of the whole model.
      part_saved: φ_d, the share of the whole model's seconds that each part saves from the second pass over the samples
        on, where the outputs of its frozen layers are kept.
      part_value: V_d, the value of training each part.
      epoch_s, step_s: seconds of one pass over a device's samples and of one full minibatch, with the whole model.
      steps_per_epoch: minibatches of one pass; the last of them may be smaller.
      most_steps: local steps that a device makes at most.
      extra_s: x_n, seconds whatever the work is.
      draw: a number of [0, 1) for each device, for schemes that choose at random.
      progress: g(τ) for τ = 0 up to the largest of `most_steps`.
      round_index: edge rounds since the start of the run, by which devices take turns.
    """

    first_trained: Any
    part_weights: Any
    part_cost: Any
    part_value: Any
    epoch_s: Any
    step_s: Any
    steps_per_epoch: Any
    most_steps: Any
    progress: Any
    part_saved: Any = 0.0
    last_trained: Any = None
    extra_s: Any = 0.0
    draw: Any = 0.0
    round_index: int = 0

    def __post_init__(self) -> None:
        parts: tuple[str, ...] = ("first_trained", "part_weights", "part_cost", "part_value", "part_saved")
        if self.last_trained is not None:
            parts = (*parts, "last_trained")
        devices = ("epoch_s", "step_s", "steps_per_epoch", "most_steps", "extra_s", "draw")
        for name in (*parts, *devices, "progress"):
            array = np.atleast_1d(quantity(f"WorkModel.{name}", getattr(self, name), at_least=0.0))
            if name in ("first_trained", "last_trained", "steps_per_epoch", "most_steps"):
                array = array.astype(np.int64)
            object.__setattr__(self, name, array)
        for names in (parts, devices):
            arrays = np.broadcast_arrays(*(getattr(self, name) for name in names))
            for name, array in zip(names, arrays, strict=True):
                object.__setattr__(self, name, array)
        if self.last_trained is None:
            self._check_order()
        elif self.first_trained[0] != 0 or np.any(self.last_trained < self.first_trained):
            raise InvalidValue("WorkModel.last_trained", "must be ≥ first_trained", self.last_trained.tolist())
        if np.any(self.part_saved > self.part_cost):
            raise InvalidValue("WorkModel.part_saved", "must be ≤ part_cost", self.part_saved.tolist())
        if np.any(self.steps_per_epoch < 1) or np.any(self.most_steps < 1):
            raise InvalidValue("WorkModel.most_steps", "and steps_per_epoch must be ≥ 1", int(self.most_steps.min()))
        if len(self.progress) <= self.most_steps.max():
            rule = f"must have an entry for each of 0 to {self.most_steps.max()} steps"
            raise InvalidValue("WorkModel.progress", rule, f"{len(self.progress)} entries")

    def _check_order(self) -> None:
        """Checks that the whole model comes first and the least part last."""
        if self.first_trained[0] != 0 or np.any(np.diff(self.first_trained) <= 0):
            raise InvalidValue("WorkModel.first_trained", "must ascend from 0", self.first_trained.tolist())
        for name in ("part_weights", "part_cost"):
            if np.any(np.diff(getattr(self, name)) > 0.0):
                raise InvalidValue(f"WorkModel.{name}", "must not rise", getattr(self, name).tolist())

    def subset(self, kept: Any) -> WorkModel:
        """Returns the model of some of its devices; one row for all stays one row."""
        names = ("epoch_s", "step_s", "steps_per_epoch", "most_steps", "extra_s", "draw")
        if len(self.epoch_s) == 1:
            return self
        some: dict[str, Any] = {name: one_or(getattr(self, name), kept) for name in names}
        return replace(self, **some)

    def seconds(self, steps: Array, part: Array | int = 0) -> Array:
        """Returns t_n(τ) κ_d − (t_n(τ) − t_n)⁺ φ_d + x_n, where t_n(τ) are whole passes of t_n, then minibatches."""
        whole_s = self._whole_s(steps)
        seconds = whole_s * self.part_cost[part] + self.extra_s
        if self.part_saved.any():
            seconds = seconds - np.maximum(whole_s - self.epoch_s, 0.0) * self.part_saved[part]
        return np.asarray(seconds)

    def forward_s(self, steps: Array, part: Array | int, forward_share: float) -> Array:
        """Returns the seconds of the forward passes among them, t_n(τ) f − (t_n(τ) − t_n)⁺ φ_d.

        Args:
          forward_share: f, the forward pass's share of a step with the whole model.
        """
        whole_s = self._whole_s(steps)
        return np.asarray(
            whole_s * forward_share - np.maximum(whole_s - self.epoch_s, 0.0) * np.asarray(self.part_saved[part])
        )

    def _whole_s(self, steps: Array) -> Array:
        """Returns t_n(τ), the seconds of so many steps with the whole model."""
        passes = np.floor(steps / self.steps_per_epoch)  # as doubles: whole numbers divide several times slower
        rest = steps - passes * self.steps_per_epoch
        return np.asarray(passes * self.epoch_s + rest * self.step_s)

    def faster(self, factor: Any) -> WorkModel:
        """Returns the model of devices whose CPUs are faster by a factor.  [num_devices] or one for all"""
        return replace(self, epoch_s=self.epoch_s / factor, step_s=self.step_s / factor, extra_s=self.extra_s / factor)

    def steps_within(self, seconds: Array, part: Array | int = 0) -> Array:
        """Returns the most steps of a part within so many seconds, at most `most_steps`; 0 where not even one fits."""
        cost, saved = self.part_cost[part], self.part_saved[part]
        left_s = np.maximum(seconds - self.extra_s, 0.0)
        whole_s = left_s / np.maximum(cost, _NO_TIME)
        if self.part_saved.any():
            over_s = np.maximum(left_s - cost * self.epoch_s, 0.0)
            whole_s = np.minimum(whole_s, self.epoch_s) + over_s / np.maximum(cost - saved, _NO_TIME)
        passes = np.floor(np.minimum(whole_s / np.maximum(self.epoch_s, _NO_TIME), self.most_steps))
        rest = np.floor((whole_s - passes * self.epoch_s) / np.maximum(self.step_s, _NO_TIME))
        steps = passes * self.steps_per_epoch + np.clip(rest, 0, self.steps_per_epoch - 1)
        return np.minimum(steps, self.most_steps).astype(np.int64)
