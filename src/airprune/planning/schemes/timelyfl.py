"""Fits the local work into a round as long as the k-th quickest device needs: more epochs, or fewer layers.

TimelyFL (Zhang et al. 2023): every device estimates t_cmp, one pass over its samples with the whole model, and t_com,
its upload. The round lasts T = the k-th smallest of t_cmp + t_com. A device with T ≥ t_cmp + t_com makes
E = max(⌊(T − t_com) / t_cmp⌋, 1) epochs; others make one, of the last layers only.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.work_scheme import EqualShareWork, equal_share_uplink_s, kth_smallest_s, within
from airprune.planning.work_model import WorkModel
from airprune.settings.section import Count

Array = np.ndarray


class TimelyFL(EqualShareWork):
    """Makes more epochs where time is left, and trains only the last layers where it is short."""

    name = "timelyfl"
    summary = "equal shares; a round as long as the k-th quickest device needs: more epochs, or only the last layers"
    source = "TimelyFL: Zhang, Gao, Lee, Zhang, Avestimehr"
    fully_open: ClassVar = {"max_epochs": 1}  # as train.local_epochs

    participation: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5,
        description='k over the number of devices; with plan.deadline_s = "auto" the k-th quickest sets the deadline',
    )
    max_epochs: Count = Field(default=8, description="most local passes over a device's samples in an edge round")

    @property
    def most_epochs(self) -> int:
        return self.max_epochs

    def parts_of(self, layers: Array) -> tuple[Array, None]:
        """Returns the model without its lowest layers, none to all but one."""
        return np.array([0, *layers[1:]], dtype=np.int64), None

    def fewest_steps(self, work: WorkModel) -> Array:
        return np.ones(work.epoch_s.shape, dtype=np.int64)

    def choose(self, problem: PlanProblem, work: WorkModel, uplink_s: Array) -> tuple[Array, Array]:
        """Chooses whole epochs of the whole model, else one epoch of the largest part that fits.

        Differs from the source where one epoch of the last layer does not fit: the device makes as many steps of it as
        do.
        """
        one_epoch = np.broadcast_to(work.steps_per_epoch, (problem.num_devices,))
        epoch_s = np.stack([work.seconds(one_epoch, part) for part in range(len(uplink_s))])
        fits = within(problem, epoch_s + uplink_s)
        part = np.where(fits.any(axis=0), np.argmax(fits, axis=0), len(fits) - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            epochs = np.floor((problem.deadline_s - uplink_s[0]) / epoch_s[0] + 1e-9)
        epochs = np.where(np.isfinite(epochs), np.clip(epochs, 1, work.most_steps // one_epoch), 1).astype(np.int64)
        some = np.clip(work.steps_within(problem.deadline_s - uplink_s[-1], -1), 1, one_epoch)
        return part, np.where(fits[0], epochs * one_epoch, np.where(fits.any(axis=0), one_epoch, some))

    def best_deadline_s(self, problem: PlanProblem, beside_s: Array | float = 0.0) -> float:
        """Returns the k-th smallest time of one epoch and the upload, over all devices; what comes beside is added."""
        work = problem.work
        if work is None or not np.any(problem.full_band_rate_bps > 0.0):
            return float(np.max(problem.deadline_s))
        total_s = work.seconds(work.steps_per_epoch) + equal_share_uplink_s(problem, work)[0]
        return kth_smallest_s(total_s, self.participation)
