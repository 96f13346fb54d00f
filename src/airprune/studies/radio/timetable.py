"""Times of a run without its training, and the part of its plans that learning depends on.

On the paper's clock the times, bits and outcomes of a run do not depend on its samples, unless its plans follow from
what it has learned. So a run with one sample per device has the clock of the whole run, to the bit. And two runs of one
method and seed learn the same weights if all their rounds have the same devices, pruning ratios and outcomes: a
method that neither prunes nor loses devices learns on every radio what it learns on the paper's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.runs import run
from airprune.scenario import Scenario

_IMAGE = (1, 28, 28)
_CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """The clock of a run.

    Attributes:
      time_s: since the start, at the end of every global round; ∞ once a device that is waited for has no rate at all.
      mean_ratio, max_ratio: ρ of the devices that took part.
      blocked_share: devices excluded since their edge had no plan with them.
      on_time_share: devices that met the deadline, of those with a plan.
      learning: digest of what learning depends on.
    """

    time_s: tuple[float, ...]
    mean_ratio: float
    max_ratio: float
    blocked_share: float
    on_time_share: float
    learning: str


def few_samples(scenario: Scenario) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns a data set with one image per device, none of whose values matter."""
    count = max(scenario.num_devices, _CLASSES)
    images = np.zeros((count, *_IMAGE), dtype=np.float32)
    labels = np.arange(count) % _CLASSES
    return (images, labels), (images, labels)


def without_training(scenario: Scenario) -> Scenario:
    """Returns the same run with one sample per device."""
    count = max(scenario.num_devices, _CLASSES)
    return scenario.with_values(
        {
            "data.train_samples": count,
            "data.test_samples": count,
            "train.local_epochs": 1,
            "diagnostics.sub_models": False,
        }
    )


def or_endless(time_s: float | None) -> float:
    """Returns a recorded time; records have none for a round that never ends."""
    return math.inf if time_s is None else float(time_s)


def timetable(scenario: Scenario) -> Timetable:
    """Returns the clock of a scenario's run."""
    records = run(without_training(scenario), dataset=few_samples(scenario))
    return timetable_of([dict(record) for record in records])


def timetable_of(records: Iterable[Mapping[str, Any]]) -> Timetable:
    """Returns the clock that is in these records."""
    ends: list[Mapping[str, Any]] = []
    ratios: list[float] = []
    outcomes: list[str] = []
    orders: list[Any] = []
    for record in records:
        if record["kind"] == "global":
            ends.append(record)
        if record["kind"] != "edge":
            continue
        outcome, ratio = list(record["fate"]), list(record["pruning_ratio"])
        outcomes += outcome
        ratios += [mine for mine, word in zip(ratio, outcome, strict=True) if word == "ok"]
        arrived = [word == "ok" for word in outcome]
        kept = list(record["kept_weights"])
        orders.append([list(record["device"]), list(record["edge"]), arrived, kept])
    planned = [word for word in outcomes if word != "blocked"]
    return Timetable(
        time_s=tuple(or_endless(end["time_s"]) for end in ends),
        mean_ratio=float(np.mean(ratios)) if ratios else float("nan"),
        max_ratio=float(np.max(ratios)) if ratios else float("nan"),
        blocked_share=1.0 - len(planned) / max(1, len(outcomes)),
        on_time_share=planned.count("ok") / max(1, len(planned)),
        learning=hashlib.sha256(json.dumps(orders).encode()).hexdigest()[:16],
    )
