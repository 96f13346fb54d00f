"""Finds updates that would blow up the model they are averaged into; a deployment refuses them.

With ‖·‖ the root mean square over the weights that were sent and s_n the ordered local steps (1 where all devices do as
the scenario says), an update explodes if it is longer than the model itself and, per step, more than ten times as long
as the median update of the round:

    ‖Δ_n‖ > ‖w‖  and  ‖Δ_n‖ / s_n > 10 median ‖Δ_m‖ / s_m,   or   ‖Δ_n‖ > 1000 ‖w‖

The median of two is the shorter one. An update that is shorter than the model is never refused, however long it is
beside others: it cannot end the learning of others, and telling poison from unusual data is the matter of
`aggregation.rollback` and of robust aggregations. Where one of these is chosen, it decides.

Some objectives have devices report gradients beside their updates, which all devices follow later, see
`Objective.gradients`. Of a report r the same rule holds for the way that it would move the model in a round,
η ‖a‖₁ ‖r‖, with η the learning rate and ‖a‖₁ the gradients in an update. No aggregation sees reports, so the rule holds
whatever the scenario says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from airprune.components.component import ModelShape
from airprune.methods.aggregation.base import Aggregation
from airprune.methods.aggregation.kept_models import typical_length
from airprune.rounds.messages import Upload
from airprune.rounds.optimisers import gradients_in_update
from airprune.rounds.rollback import update_length
from airprune.scenario import Scenario
from airprune.scenario.sections import TrainSection

Array = np.ndarray
Child = TypeVar("Child", int, str)
MOST_TIMES_MEDIAN, MOST_TIMES_MODEL = 10.0, 1000.0
# In sentences of refusal.
REPORT = "What it reports beside its update, followed for a round,"


class UpdateLength(NamedTuple):
    """The length of an update.

    Attributes:
      update: ‖Δ_n‖.
      model: ‖w‖ over the same weights.
      steps: s_n.
    """

    update: float
    model: float
    steps: int = 1

    def scaled(self, factor: float) -> UpdateLength:
        """Returns it with an update that is so many times as long."""
        return self._replace(update=factor * self.update)


def is_left_to_scenario(scenario: Scenario, aggregation: Aggregation) -> bool:
    """True if the scenario says itself what becomes of long updates."""
    return scenario.aggregation.rollback is not None or aggregation.compares


def length_of(model: Array, received: Array, sent: Array, steps: int = 1) -> UpdateLength:
    """Returns the length of a child's update over the weights that it sent; of a model of zeros, ‖w‖ is 1."""
    own = update_length(received, np.zeros_like(received), sent)
    return UpdateLength(update_length(model, received, sent), own or 1.0, steps)


def length_of_upload(upload: Upload, received: Array, shape: ModelShape, steps: int = 1) -> UpdateLength:
    """Returns the length of a device's update, over the trained weights that it has."""
    sent = trained_weights(shape)
    if upload.mask is not None:
        sent[shape.prunable] &= np.asarray(upload.mask, dtype=bool)
    if upload.first_trained or upload.last_trained is not None:
        sent &= ~shape.frozen_outside(upload.first_trained, upload.last_trained)
    return length_of(upload.state, received, sent, steps)


def length_of_report(
    reports: Mapping[str, Array], names: Iterable[str], model: Array, shape: ModelShape
) -> UpdateLength | None:
    """Returns the length of the gradients among what a child reports, to be scaled; None if there are none.

    Args:
      names: `Objective.gradients`.
    """
    gradients = [reports[name] for name in names if name in reports]
    if not gradients:
        return None
    longest = max(update_length(array, np.zeros_like(array)) for array in gradients)
    own = update_length(model[: shape.num_parameters], np.zeros(shape.num_parameters))
    return UpdateLength(longest, own or 1.0)


def moves_in_round(train: TrainSection, learning_rate: float, num_samples: Iterable[int]) -> float:
    """Returns η ‖a‖₁ of a typical device of those with so many samples."""
    steps = typical_length(np.array([train.steps(count) for count in num_samples], dtype=np.float64))
    return learning_rate * float(gradients_in_update(train.optimizer, train.momentum, np.array([max(steps, 1.0)]))[0])


def bad_buffers(buffers: Mapping[Child, Array], shape: ModelShape) -> dict[Child, str]:
    """Returns why what models hold beside trained weights would spoil an average, by child.

    That is means and variances of layers such as batch normalisation: none may be more than ten times as large as the
    largest of the median child, or than 1, and variances must not be negative.

    Args:
      buffers: what comes after the trained weights.  [num_state − num_parameters]
    """
    start, found = shape.num_parameters, dict[Child, str]()
    for tensor in (one for one in shape.tensors if one.start >= start and buffers):
        entries = {child: own[tensor.start - start : tensor.stop - start] for child, own in buffers.items()}
        largest = {child: float(np.abs(own).max(initial=0.0)) for child, own in entries.items()}
        most = MOST_TIMES_MEDIAN * max(typical_length(np.array(list(largest.values()))), 1.0)
        for child, own in entries.items():
            if largest[child] > most and len(buffers) > 1:
                found[child] = f"{tensor.name} must be at most {most:.3g} in this round, got {largest[child]:.3g}."
            elif tensor.name.endswith("running_var") and own.min(initial=0.0) < 0.0:
                found[child] = f"{tensor.name} must not be negative, got {own.min():.3g}."
    return found


def trained_weights(shape: ModelShape) -> Array:
    """True for weights, False for counters and running variances, which have no typical length.  [num_state]"""
    return np.arange(shape.num_state) < shape.num_parameters


def exploding(lengths: Mapping[Child, UpdateLength], what: str = "Its update") -> dict[Child, str]:
    """Returns why the updates of some children are refused, or `what` else has these lengths, by child."""
    known = np.array([one.update / one.steps for one in lengths.values() if np.isfinite(one.update)])
    median = typical_length(known)
    return {
        child: (
            f"{what} must be at most as long as the model, {one.model:.3g}, or {MOST_TIMES_MEDIAN:g} times the "
            f"median of the round, {one.steps * median:.3g}, got {one.update:.3g}."
        )
        for child, one in lengths.items()
        if not _is_short(one, median, is_alone=len(known) < 2)
    }


def _is_short(one: UpdateLength, median: float, *, is_alone: bool) -> bool:
    if not one.update <= MOST_TIMES_MODEL * one.model:
        return False
    return is_alone or one.update <= max(one.model, MOST_TIMES_MEDIAN * one.steps * median)
