"""Means over seeds and how far to trust them; Pareto fronts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.results.measures import MEASURES, SUMMARY
from airprune.text import MISSING, number

# Seeds that differ by less only differ in how sums were rounded.
_ROUNDING = 1e-9
_MOST_DIGITS = 5
# Two-sided 95 % quantiles of Student's t by degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % interval; NaN for a single seed."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        count = len(values)
        mean = float(np.mean(values))
        if count < 2:
            return cls(mean, math.nan)
        return cls(mean, float(_t95(count - 1) * np.std(values, ddof=1) / math.sqrt(count)))

    def text(self, form: str, *, scale: float = 1.0) -> str:
        """Returns mean ± half-width, both to the second digit of the half-width; of one seed the mean in that form.

        The mean has at most `_MOST_DIGITS` digits.
        """
        half = self.half_width * scale
        if math.isnan(half):
            return number(self.mean, form, scale=scale)
        if half <= _ROUNDING * abs(self.mean * scale):
            return f"{number(self.mean, form, scale=scale)} ± 0"
        decimals = max(1 - math.floor(math.log10(half)), 0)
        most = max(_MOST_DIGITS - 1 - math.floor(math.log10(max(abs(self.mean * scale), half))), 0)
        half_text = f"{half:,.{decimals}f}" if decimals <= most else f"{half:.1g}"
        return f"{self.mean * scale:,.{min(decimals, most)}f} ± {half_text}"


def estimate_text(estimate: Estimate | None, measure: str) -> str:
    """Returns an estimate of a measure as it stands under the measure's heading."""
    about = MEASURES[measure]
    return MISSING if estimate is None else estimate.text(about.form, scale=about.scale)


def summary(curves_by_variant: Mapping[str, list[list[dict[str, Any]]]]) -> dict[str, dict[str, Estimate]]:
    """Returns mean and 95 % interval over seeds of each variant's last global round, for measures that all seeds have.

    Empty for a variant of which a seed has diverged: a mean over the others would favour it.
    """
    table: dict[str, dict[str, Estimate]] = {}
    for name, runs in curves_by_variant.items():
        if num_diverged(runs):
            table[name] = {}
            continue
        last = [records[-1] for records in runs]
        present = [measure for measure in SUMMARY if all(record.get(measure) is not None for record in last)]
        table[name] = {measure: Estimate.of([record[measure] for record in last]) for measure in present}
    return table


def paired_differences(
    curves_by_variant: Mapping[str, list[list[dict[str, Any]]]], reference: str
) -> dict[str, dict[str, Estimate]]:
    """Returns each variant's last global round minus the reference's, seed by seed: mean and 95 % interval.

    Empty for a variant of which a seed has diverged, and for all if one of the reference has.
    """
    against = curves_by_variant[reference]
    found: dict[str, dict[str, Estimate]] = {}
    for name, runs in curves_by_variant.items():
        if name == reference:
            continue
        found[name] = {}
        if num_diverged(runs) or num_diverged(against):
            continue
        pairs = [(mine[-1], other[-1]) for mine, other in zip(runs, against, strict=True)]
        for measure in SUMMARY:
            if all(record.get(measure) is not None for pair in pairs for record in pair):
                found[name][measure] = Estimate.of([mine[measure] - other[measure] for mine, other in pairs])
    return found


def difference_text(estimate: Estimate | None, measure: str) -> str:
    """Returns a difference of a measure with its sign, as it stands under the measure's heading."""
    text = estimate_text(estimate, measure)
    return text if estimate is None else text.replace("-", "−") if estimate.mean < 0 else f"+{text}"


def num_diverged(runs: Sequence[Sequence[Mapping[str, Any]]]) -> int:
    """Counts the diverged seeds of a variant, given the records of each seed's global rounds."""
    return sum("diverged" in records[-1] for records in runs if records)


def diverged_words(num: int, of: int) -> str:
    """Returns the number as text: diverged; 1 of 3 diverged."""
    return "diverged" if num == of else f"{num} of {of} diverged"


def _t95(freedom: int) -> float:
    """Returns the quantile; beyond the table by the first terms of its expansion, to a thousandth."""
    return _T95[freedom - 1] if freedom <= len(_T95) else 1.960 + 2.372 / freedom + 2.82 / freedom**2


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Returns the points (cost, value) that no other beats in one without losing in the other, by rising cost."""
    front: list[int] = []
    highest = -math.inf
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if points[i][1] > highest:
            front.append(i)
            highest = points[i][1]
    return front
