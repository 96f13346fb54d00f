"""`train`: a whole run in one call, with its records and its trained model as one value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune.rounds.fairness import smaller_is_better as lower_is_better
from airprune.runs.driver import run
from airprune.scenario import Scenario

Array = np.ndarray
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trained:
    """A run that has ended.

    Attributes:
      records: one per edge round and per global round that this call ran; of a resumed run those that were left.
      weights: the trained model under its module's own names, as `load_state_dict` takes them.
      folder: the run folder, if there is one; `load_model` makes a torch module of it.
    """

    scenario: Scenario
    records: tuple[Record, ...]
    weights: dict[str, Array]
    folder: Path | None = None

    @property
    def global_records(self) -> tuple[Record, ...]:
        """The records of global rounds."""
        return tuple(record for record in self.records if record["kind"] == "global")

    @property
    def last(self) -> Record:
        """The record of the last global round; empty if this call ran none."""
        return self.global_records[-1] if self.global_records else {}

    def curve(self, metric: str = "test_accuracy") -> tuple[Array, Array]:
        """Returns (simulated seconds, values) of a metric, where it was evaluated."""
        points = [
            (record["time_s"], record[metric]) for record in self.global_records if record.get(metric) is not None
        ]
        times, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
        return times, values

    def time_to(self, target: float, metric: str = "test_accuracy", *, smaller_is_better: bool | None = None) -> float:
        """Returns the simulated seconds until a global round's metric has reached the target; ∞ if none has.

        Args:
          smaller_is_better: None: so it is for metrics named …loss, …error and mae.
        """
        smaller = lower_is_better(metric) if smaller_is_better is None else smaller_is_better
        times, values = self.curve(metric)
        reached = np.flatnonzero(values <= target if smaller else values >= target)
        return float(times[reached[0]]) if len(reached) else math.inf

    def __repr__(self) -> str:
        """Names the scenario and what the last global round came to."""
        words = [f"{len(self.global_records)} global rounds"]
        tests = [key for key, value in self.last.items() if key.startswith("test_") and isinstance(value, float)]
        words += [f"{key}={self.last[key]:.4g}" for key in tests if self.last[key]]
        words += [
            f"{key}={self.last[key]:.4g}" for key in ("time_s", "uploaded_bits", "energy_j") if self.last.get(key)
        ]
        words += [] if self.folder is None else [f"folder={str(self.folder)!r}"]
        return f"Trained({self.scenario.name!r}, {', '.join(words)})"


def train(scenario: Scenario, **options: Any) -> Trained:
    """Runs a scenario to its end and returns its records and its trained model.

    Args:
      options: those of `run`: out, resume, extend, model, dataset, loss, metric, train, optimizer, replay, callbacks.
    """
    going, records = run(scenario, **options), list[Record]()
    while True:
        try:
            records.append(next(going))
        except StopIteration as end:
            out = options.get("out")
            return Trained(
                scenario=scenario, records=tuple(records), weights=end.value, folder=None if out is None else Path(out)
            )
