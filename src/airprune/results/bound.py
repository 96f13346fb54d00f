"""Theorem 1 over a recorded run: its constants estimated from the records, its bounds, and the measured left side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.checks import path_of
from airprune.errors import InvalidValue
from airprune.runs.layout import RunFolder
from airprune.theory.convergence import ConvergenceBound, convergence_bound

if TYPE_CHECKING:
    from airprune.scenario import Scenario

Records = Sequence[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class BoundOfRun:
    """Both sides of Theorem 1 over the global rounds of a run.

    Attributes:
      measured: the left side, mean of ‖∇F(w_q)‖²/W after each global round; F is the mean loss on the test set.
      corrected: the paper's bound with its constants corrected; N and Σρ count all devices.
      tight: the bound of docs/theory.md; N and Σρ count the devices of one edge.
      trivial: φ²/W, which Assumption 3 alone gives.
      constants: L, φ, σ̂, D and Γ* as estimated from the run.
      departures: what the run does that the theorem does not cover.
    """

    measured: float
    corrected: ConvergenceBound
    tight: ConvergenceBound
    trivial: float
    constants: Mapping[str, float]
    departures: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Returns the tight bound as a multiple of the measured value."""
        return float(self.tight.total) / self.measured if self.measured else math.inf

    @property
    def worth(self) -> str:
        """Returns in one or two sentences what the numbers say about the run."""
        said = worth_of(
            measured=self.measured,
            corrected=float(self.corrected.total),
            tight=float(self.tight.total),
            trivial=self.trivial,
        )
        return said + not_covered("; ".join(self.departures))


def bound_of(run: str | Path) -> BoundOfRun:
    """Returns both sides of Theorem 1 over a recorded run, and what they are worth.

    Constants are the largest (Γ*: the smallest) values met along the run, F(w*) is taken as 0, and T is the number of
    minibatch steps of a device of mean size. They are estimates: between two recorded points they may be larger.

    Args:
      run: a run folder, recorded with `diagnostics.gradients = true`, of a model and data set of the catalogue.
    """
    path = path_of("bound_of.run", run, what="a run folder")
    folder = RunFolder(path)
    scenario = folder.scenario()
    folder.check()
    records = folder.records()
    edges, globals_ = _split(records)
    measured = [record.get("gradient_sq") is not None for record in globals_]
    measured += [any(value is not None for value in record.get("smoothness") or ()) for record in edges]
    if not globals_ or not all(measured):
        rule = "must be a run whose records have the gradients of every device and global round"
        raise InvalidValue("bound_of.run", rule, str(path), "Train with diagnostics.gradients = true")
    from airprune.scenario.model_shape import shape_of  # needs torch

    num_weights = shape_of(scenario).num_weights
    of_all, of_one_edge = settings_of(
        records,
        learning_rate=scenario.train.learning_rate,
        local_steps=_local_steps(scenario, edges),
        num_weights=num_weights,
    )
    return BoundOfRun(
        measured=left_side(globals_, num_weights),
        corrected=convergence_bound(**of_all),
        tight=convergence_bound(**of_one_edge, variant="tight"),
        trivial=of_all["gradient_bound"] ** 2 / num_weights,
        constants=estimated_constants(records),
        departures=tuple(departures_of(scenario, records)),
    )


def settings_of(
    records: Records, *, learning_rate: float, local_steps: int, num_weights: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments of `convergence_bound` over all devices, and those over the devices of one edge.

    T is `local_steps`, W is `num_weights`. The proof averages over edges, so N of the largest edge and the mean over
    edges of Σρ are enough.
    """
    edges, globals_ = _split(records)
    edge_rounds = len(edges) // len(globals_)
    ratio_sum = (
        float(np.mean([sum(r for r in record["pruning_ratio"] if r is not None) for record in edges])) * edge_rounds
    )
    of_all = {
        "initial_loss_gap": edges[0]["train_loss"],
        "learning_rate": learning_rate,
        "num_global_rounds": len(globals_),
        "num_edge_rounds": edge_rounds,
        "num_local_iterations": local_steps,
        "num_weights": num_weights,
        "num_devices": len(edges[0]["device"]),
        "pruning_ratio_sum": ratio_sum,
        **estimated_constants(records),
    }
    largest_edge = max(count for record in edges for count in Counter(record["edge"]).values())
    num_edges = min(len(set(record["edge"])) for record in edges)
    return of_all, of_all | {"num_devices": largest_edge, "pruning_ratio_sum": ratio_sum / num_edges}


def left_side(globals_: Records, num_weights: int) -> float:
    """Returns the measured mean of ‖∇F(w_q)‖²/W over global rounds."""
    return float(np.mean([record["gradient_sq"] for record in globals_])) / num_weights


def estimated_constants(records: Records) -> dict[str, float]:
    """Returns L, φ, σ̂, D and Γ* as the largest (Γ*: smallest) values in the edge rounds of a run with diagnostics."""
    edges = [record for record in records if record["kind"] == "edge"]

    def largest(name: str) -> float:
        return max(value for record in edges for value in record[name] if value is not None)

    pruned = [
        error / ratio
        for record in edges
        for error, ratio in zip(record["pruning_error_sq"], record["pruning_ratio"], strict=True)
        if ratio
    ]
    return {
        "smoothness": largest("smoothness"),
        "gradient_bound": float(np.sqrt(largest("gradient_sq_max"))),
        "gradient_noise": float(np.sqrt(largest("gradient_noise_sq"))),
        "pruning_noise": float(np.sqrt(max(pruned, default=0.0))),
        "min_coverage": min(item["min_count"] for record in edges for item in record["coverage"]),
    }


def worth_of(*, measured: float, corrected: float, tight: float, trivial: float) -> str:
    """Returns a sentence on what the bounds say about a run."""
    verdict = "Both bounds hold" if measured <= min(corrected, tight) else "A bound is broken"
    above = "above a measured 0"
    if measured:
        above = f"{_times(tight / measured)} the measured value (the corrected one {_times(corrected / measured)})"
    more, says = ("more", "neither says anything") if tight >= trivial else ("less", "the tight one says something")
    return (
        f"{verdict}: the tight one is {above}; that is {more} than φ²/W = {trivial:.3g}, which bounded gradients alone "
        f"give, so {says} about this run."
    )


def not_covered(departures: str) -> str:
    """Returns a sentence that follows `worth_of`; empty where the theorem covers all that the run does."""
    return f" The theorem does not cover: {departures}." if departures else ""


def departures_of(scenario: Scenario, records: Records) -> list[str]:
    """Returns what a run does that Theorem 1 does not cover."""
    edges, _ = _split(records)
    train, partition = scenario.train, scenario.data.partition
    uncovered = max(item["num_uncovered"] for record in edges for item in record["coverage"])
    found = {
        f"optimiser {train.optimizer}": train.optimizer != "sgd",
        f"momentum {train.momentum:g}": train.momentum > 0,
        f"weight decay {train.weight_decay:g}": train.weight_decay > 0,
        f"learning rate schedule {train.schedule}": train.schedule != "constant",
        "clipped gradients": train.clip_gradient_norm is not None or train.clip_gradient_value is not None,
        f"augmentation {train.augmentation}": train.augmentation != "none",
        f"non-IID data ({partition}): devices have different losses": partition != "iid",
        f"up to {uncovered:,} weights of an edge that no device kept": uncovered > 0,
    }
    return [words for words, is_so in found.items() if is_so]


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio < 100 else f"10^{math.log10(ratio):.1f} times"


def _split(records: Records) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return (
        [record for record in records if record["kind"] == "edge"],
        [record for record in records if record["kind"] == "global"],
    )


def _local_steps(scenario: Scenario, edges: Records) -> int:
    """Returns the minibatch steps per edge round of a device with the mean number of samples."""
    train = scenario.train
    seen = max(record["num_samples"] / max(1, record["fate"].count("ok")) for record in edges)
    return int(train.steps(seen / train.local_epochs) if train.local_steps is None else train.local_steps)
