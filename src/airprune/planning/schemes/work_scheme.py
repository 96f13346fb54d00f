"""Defines a scheme that plans the work of devices, and those of them that share the bandwidth equally."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np

from airprune.planning.plan import DEADLINE_TOLERANCE
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.air_budget import AirBudget
from airprune.planning.schemes.base import Allocation, Scheme, equal_shares
from airprune.planning.schemes.equal_resolved import EqualResolved
from airprune.planning.work_model import WorkModel

Array = np.ndarray

# A deadline that is some device's own time is longer by this share, so that rounding does not make the device late.
_LONGER = 1e-9


class WorkScheme(Scheme):
    """The base of schemes that choose the trained part and the local steps of every device.

    Attributes:
      keeps_features: whether it counts on kept outputs of frozen layers (`train.feature_cache_mb`).
      draws: whether it chooses at random, by `WorkModel.draw`.
    """

    chooses_work = True
    keeps_features: ClassVar[bool] = True
    draws: ClassVar[bool] = False

    @property
    def most_epochs(self) -> int | None:
        """Most local passes over a device's samples in an edge round; None: the scenario's local steps."""
        return None

    @property
    def half_progress_epochs(self) -> float | None:
        """Passes that bring half of the progress of endless local training; None: `train.local_epochs`."""
        return None

    @property
    def frozen_forward(self) -> float:
        """Cost of the forward pass of a layer that is not trained, over its cost in full precision."""
        return 1.0

    @abstractmethod
    def parts_of(self, layers: Array) -> tuple[Array, Array | None]:
        """Returns the parts that a device may train, the whole model first: lowest and highest layer of each.

        Args:
          layers: numbers of the layers with counted weights, ascending. A part that has the lowest begins at 0.

        Returns:
          None in place of the highest layers where all parts end at the top.
        """

    @abstractmethod
    def best_deadline_s(self, problem: PlanProblem, beside_s: Array | float = 0.0) -> float:
        """Returns the deadline of a round with `plan.deadline_s = "auto"`; the problem has work to choose."""


class EqualShareWork(WorkScheme):
    """The base of schemes that give all devices of an edge equal shares, and fit the work of each into its time."""

    keeps_features = False

    @abstractmethod
    def fewest_steps(self, work: WorkModel) -> Array:
        """Returns the fewest steps that a device may make.  [num_devices]"""

    @abstractmethod
    def choose(self, problem: PlanProblem, work: WorkModel, uplink_s: Array) -> tuple[Array, Array]:
        """Returns (part, steps) of every device.  Each [num_devices]

        Args:
          uplink_s: seconds of the upload of each part.  [num_parts, num_devices]
        """

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Gives b = 1/N_k; a problem without work to choose is planned by `air-budget`."""
        work = problem.work
        if work is None:
            return AirBudget.model_construct().allocate(problem)
        uplink_s = equal_share_uplink_s(problem, work)
        part, steps = self.choose(problem, work, uplink_s)
        least = EqualResolved.model_construct().allocate(self._least(problem, work, uplink_s))
        return Allocation(
            share=equal_shares(problem),
            ratio=problem.min_pruning_ratio.copy(),
            status=least.status,
            shadow_price=np.nan,
            min_deadline_s=least.min_deadline_s,
            blocking=least.blocking,
            local_steps=steps,
            first_trained=work.first_trained[part],
            last_trained=None if work.last_trained is None else work.last_trained[part],
            compute_s=work.seconds(steps, part),
            sent_weights=work.part_weights[part],
        )

    def least_s(self, work: WorkModel, uplink_s: Array) -> Array:
        """Returns the seconds of the fewest steps of every part.  [num_parts, num_devices]"""
        fewest = self.fewest_steps(work)
        return np.stack([work.seconds(fewest, part) for part in range(len(uplink_s))]) + uplink_s

    def _least(self, problem: PlanProblem, work: WorkModel, uplink_s: Array) -> PlanProblem:
        """Returns the problem of the quickest part of every device, with nothing to choose: who blocks an edge."""
        part = np.argmin(self.least_s(work, uplink_s), axis=0)
        return replace(
            problem,
            seconds_per_weight=0.0,
            extra_seconds=work.seconds(self.fewest_steps(work), part),
            bits_per_weight=0.0,
            fixed_bits=np.max(problem.bits_per_weight) * work.part_weights[part] + problem.fixed_bits,
            ladder=None,
            work=None,
        )


def equal_share_uplink_s(problem: PlanProblem, work: WorkModel) -> Array:
    """Returns the seconds of the upload of each part over an equal share.  [num_parts, num_devices]"""
    bits = np.max(problem.bits_per_weight) * work.part_weights[:, None] + problem.fixed_bits
    with np.errstate(divide="ignore"):
        return np.asarray(bits / (equal_shares(problem) * problem.full_band_rate_bps))


def within(problem: PlanProblem, seconds: Array) -> Array:
    """True where a device is through by the deadline, up to rounding."""
    return np.asarray(seconds <= problem.deadline_s * (1.0 + DEADLINE_TOLERANCE))


def kth_smallest_s(seconds: Array, share: float) -> float:
    """Returns the k-th smallest of finite times, k = ⌈share · their number⌉, and a margin for rounding."""
    ascending = np.sort(seconds[np.isfinite(seconds)])
    k = int(np.ceil(share * len(ascending) - 1e-9))
    return float(ascending[max(k, 1) - 1]) * (1.0 + _LONGER)
