"""The point where pruning stops paying: time to the target over a swept quantity, and its ratio to a reference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airprune.results.statistics import Estimate
from airprune.results.time_to_target import Costs, Ratio, ToTarget, reference_among
from airprune.text import number


@dataclass(frozen=True, kw_only=True)
class Row:
    """One combination of values.

    Attributes:
      scheme: of its scenario.
      seeds: of the runs that are finished.
      num_runs: finished or not.
      estimates: of the last global round, over those seeds; none if one of them diverged.
      num_diverged: how many of them diverged.
      to_target: the costs until the target accuracy, if there is a target.
    """

    values: Mapping[str, Any]
    scheme: str
    seeds: tuple[int, ...]
    num_runs: int
    estimates: Mapping[str, Estimate]
    to_target: ToTarget | None = None
    num_diverged: int = 0


@dataclass(frozen=True, kw_only=True)
class Swept:
    """One combination of a sweep.

    Attributes:
      values: of the keys that were swept.
      scheme: of its scenario.
    """

    values: Mapping[str, Any]
    scheme: str
    costs: Costs


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """Costs of each group over the one swept key that is a number; the other swept keys distinguish the groups.

    Attributes:
      reference: the group that the others are compared with; None if there is one group only.
      whole: True if the reference does not prune.
    """

    key: str
    costs: Mapping[str, Mapping[float, Costs]]
    reference: str | None
    whole: bool

    @property
    def ratios(self) -> dict[str, list[tuple[float, Ratio]]]:
        """The ratios by group, at the values that group and reference share, ascending."""
        if self.reference is None:
            return {}
        theirs = self.costs[self.reference]
        return {
            group: [(x, Ratio.of(mine[x], theirs[x])) for x in sorted(mine) if x in theirs]
            for group, mine in self.costs.items()
            if group != self.reference
        }

    @property
    def sentences(self) -> list[str]:
        """Sentences on where each group and the reference change places."""
        return [self._sentence(group, points) for group, points in self.ratios.items()]

    def _sentence(self, group: str, points: Sequence[tuple[float, Ratio]]) -> str:
        known = [(x, ratio.middle) for x, ratio in points if not math.isnan(ratio.middle)]
        if not known:
            return f"{group}: no seed on which it or {self.reference} reached the target."
        open_at = [x for x, ratio in points if ratio.interval and ratio.interval[0] <= 1.0 <= ratio.interval[1]]
        doubt = f"; at {_listed(open_at)} the interval includes 1" if open_at else ""
        passed = crossings(points)
        if passed:
            places = " and ".join(_place(*pair) for pair in passed)
            return f"{group} and {self.reference} change places at {self.key} {places}{doubt}."
        faster, slower = (group, self.reference) if known[0][1] < 1.0 else (self.reference, group)
        span = f"from {number(known[0][0], '.4g')} to {number(known[-1][0], '.4g')}"
        return f"{faster} is faster than {slower} at every {self.key} {span}{doubt}."

    def rows(self) -> list[dict[str, Any]]:
        """Returns a tidy table; cells are empty where the target was not reached."""
        ratios = {(group, x): ratio for group, points in self.ratios.items() for x, ratio in points}
        found = []
        for group, by_value in self.costs.items():
            for x, costs in sorted(by_value.items()):
                ratio = ratios.get((group, x))
                about = ratio.as_json() if ratio else {}
                found.append(
                    {
                        "series": group,
                        self.key: x,
                        "seeds": costs.num_seeds,
                        "reached": costs.num_reached,
                        **{f"time_to_target_s_{name}": value for name, value in costs.as_json().items()},
                        **{f"time_{name}": about.get(name) for name in ("ratio", "low_95", "high_95", "pairs")},
                    }
                )
        return found


def crossover_of(entries: Iterable[Swept]) -> Crossover | None:
    """Returns the crossover; None unless exactly one swept key is a number, with at least two values."""
    entries = list(entries)
    keys = list(entries[0].values) if entries else []
    numeric = [key for key in keys if all(_is_number(entry.values.get(key)) for entry in entries)]
    if len(numeric) != 1 or len({entry.values[numeric[0]] for entry in entries}) < 2:
        return None
    key = numeric[0]
    costs: dict[str, dict[float, Costs]] = {}
    schemes: dict[str, str] = {}
    for entry in entries:
        group = ", ".join(str(value) for name, value in entry.values.items() if name != key) or entry.scheme
        costs.setdefault(group, {})[float(entry.values[key])] = entry.costs
        schemes.setdefault(group, entry.scheme)
    reference = reference_among(schemes)
    return Crossover(
        key=key, costs=costs, reference=reference, whole=reference is not None and schemes[reference] == "no-pruning"
    )


def crossings(points: Sequence[tuple[float, Ratio]]) -> list[tuple[float, float]]:
    """Returns neighbouring values between which the ratio passes 1; (x, x) where it is 1.

    Values at which neither reached the target are passed over.
    """
    known = [(x, ratio.middle) for x, ratio in sorted(points, key=lambda point: point[0])]
    known = [(x, value) for x, value in known if not math.isnan(value)]
    found = [(x, x) for x, value in known if value == 1.0]
    found += [
        (a, b) for (a, left), (b, right) in itertools.pairwise(known) if (left < 1.0 < right) or (right < 1.0 < left)
    ]
    return sorted(found)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(number(value, ".4g") for value in values)


def _place(low: float, high: float) -> str:
    return number(low, ".4g") if low == high else f"between {number(low, '.4g')} and {number(high, '.4g')}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
