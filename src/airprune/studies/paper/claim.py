"""Claims of the paper's evaluation and our errata, judged from CSV files alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airprune.results.tidy import Rows, last_by_seed
from airprune.studies.claims import Claim, Judgement
from airprune.studies.claims.intervals import NOISE, judge_trend

Tables = Mapping[str, Rows]
Judge = Callable[[Tables, str], Judgement]


@dataclass(frozen=True, kw_only=True)
class PaperClaim(Claim[[Tables, str]]):
    """A claim that is judged from (tables, preset); claims about planning alone ignore the preset.

    Attributes:
      tables: the CSV files that decide it.
      by_preset: True if it is judged once per preset.
    """

    tables: tuple[str, ...]
    by_preset: bool = True


def series_trend(rows: Rows, measure: str, series: Mapping[str, str], *, rising: bool, about: str = "") -> Judgement:
    """Judges whether a measure's last value rises (or falls) along series, given by level."""
    values = [last_by_seed(rows, measure, series=name) for name in series.values()]
    what = f"{about}{measure.replace('_', ' ')}"
    return judge_trend(list(series), values, rising=rising, noise=NOISE[measure], what=what)


def claims_about(
    table: str, found: Mapping[str, tuple[str, str, Judge]], *, by_preset: bool = True
) -> tuple[PaperClaim, ...]:
    """Returns the claims that one table decides, from name → (place in the paper, statement, rule)."""
    return tuple(
        PaperClaim(name=name, where=where, text=text, tables=(table,), judge=judge, by_preset=by_preset)
        for name, (where, text, judge) in found.items()
    )
