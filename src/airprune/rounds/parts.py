"""Persistent state of the driver itself: small parts with slots, beside those of the components.

Each has the hooks of a component: `after_edge_round` and `after_global_round` return the slots that change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from airprune.methods.outcome import GlobalOutcome, Outcome
from airprune.planning.deadline import FIRST_KAPPA, measured_kappa

if TYPE_CHECKING:
    from airprune.scenario.sections import StopSection

Array = np.ndarray
Values = dict[str, Array]

KAPPA = "deadline/kappa"
LOSSES = "steps/losses"
HEARD = "heard/samples"
RECEIVED_BITS = "root/received-bits"
BEST = "stop/best"
MEDIAN, SHARED = "judged/device", "judged/told"


class Hooks(Protocol):
    """Hooks that see every round when it is over: of a component, or of a part of the driver."""

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values: ...

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values: ...


class Part:
    """Remembers nothing unless a method says otherwise."""

    def initial_values(self) -> Values:
        """Returns its slots as they start."""
        return {}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        return {}

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values:
        return {}


@dataclass(frozen=True)
class TunedDeadline(Part):
    """Learns κ, how much fewer bits slow learning down, for deadlines that tune themselves."""

    error_cost: float

    def initial_values(self) -> Values:
        return {KAPPA: np.array([FIRST_KAPPA])}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        """Half of what the round showed, half of what was known."""
        if outcome.bits_per_weight is None or not len(outcome.trained):
            return {}
        trained = outcome.trained
        shown = self.error_cost * measured_kappa(outcome.bits_per_weight[trained], outcome.code_error[trained])
        return {KAPPA: 0.5 * (values[KAPPA] + shown)}


class DecayingSteps(Part):
    """Remembers the training loss of the first global round and of the last one, if local steps decay with it."""

    def initial_values(self) -> Values:
        return {LOSSES: np.zeros(2)}

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values:
        loss = outcome.train_loss
        if loss is None or not np.isfinite(loss) or loss <= 0.0:
            return {}
        return {LOSSES: np.array([values[LOSSES][0] or loss, loss])}


@dataclass(frozen=True)
class HeardSamples(Part):
    """Counts whose data the edges heard from since the last global round, if the cloud weighs them by it."""

    num_edges: int

    def initial_values(self) -> Values:
        return {HEARD: np.zeros(self.num_edges)}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        before = 0.0 if outcome.starts_global_round else values[HEARD]
        edge, samples = outcome.edge[outcome.arrived], outcome.num_samples[outcome.arrived]
        return {HEARD: before + np.bincount(edge, samples, minlength=self.num_edges)}


@dataclass(frozen=True)
class StationInbox(Part):
    """Sums what each edge has received in this global round, for topologies with a round of their own at the root."""

    num_edges: int

    def initial_values(self) -> Values:
        return {RECEIVED_BITS: np.zeros(self.num_edges)}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        received = np.bincount(outcome.edge, outcome.uploaded_bits, minlength=self.num_edges)
        return {RECEIVED_BITS: values[RECEIVED_BITS] + received}

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values:
        return {RECEIVED_BITS: np.zeros(self.num_edges)}


class MedianDevice(Part):
    """Remembers the device with the median sub-model: its number, what it may keep, the place of its randomness."""

    def initial_values(self) -> Values:
        return {MEDIAN: np.array([], dtype=np.int64), SHARED: np.array([])}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        here = np.flatnonzero(outcome.arrived)
        if not len(here):
            return {}
        median = here[np.argsort(outcome.keep[here], kind="stable")[(len(here) - 1) // 2]]
        view = outcome.view
        place = (view.global_round, outcome.step, view.round_index)
        return {
            MEDIAN: np.array([outcome.device[median], outcome.keep[median], *place]),
            SHARED: np.array([]) if outcome.shared is None else outcome.shared,
        }


@dataclass(frozen=True)
class BestMetric(Part):
    """Remembers the best value of a metric, and in which global round it was reached; NaN, 0 before the first."""

    metric: str
    direction: float
    min_improvement: float

    def initial_values(self) -> Values:
        return {BEST: np.array([np.nan, 0.0])}

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values:
        value = outcome.record.get(self.metric)
        if value is None or not np.isfinite(value):
            return {}
        best = values[BEST][0]
        is_better = np.isnan(best) or self.direction * (value - best) > self.min_improvement
        return {BEST: np.array([value, outcome.record["global_round"]])} if is_better else {}


def why_stop(stop: StopSection, record: Mapping[str, Any], best: Array | None) -> str:
    """Returns which condition a global round's record meets, in a few words; empty if none.

    Args:
      best: of `BestMetric`, after the round.
    """
    for key in ("time_s", "uploaded_bits", "energy_j"):
        limit = getattr(stop, key)
        if limit is not None and record[key] >= limit:
            return f"{key} {record[key]:g} has reached stop.{key} = {limit:g}"
    value = record.get(stop.metric)
    if stop.target is not None and value is not None and stop.direction * (value - stop.target) >= 0.0:
        return f"{stop.metric} {value:g} has reached stop.target = {stop.target:g}"
    if stop.patience is not None and best is not None and record["global_round"] - best[1] >= stop.patience:
        return f"{stop.metric} has not improved for stop.patience = {stop.patience} global rounds"
    return ""
