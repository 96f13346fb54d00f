"""Claims of the paper's evaluation and our errata, judged from CSV files alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from airprune.results.tidy import Rows, last_by_seed
from airprune.studies.claims import Claim, Judgement
from airprune.studies.claims.decision import DELTA
from airprune.studies.claims.intervals import judge_trend

Tables = Mapping[str, Rows]
Judge = Callable[[Tables, str], Judgement]


@dataclass(frozen=True, kw_only=True)
class PaperClaim(Claim[[Tables, str]]):
    """A claim that is judged from (tables, preset); claims about planning alone ignore the preset.

    Attributes:
      tables: the CSV files that decide it.
      by_preset: True if it is judged once per preset.
      tuned: True if every arm has a tuned learning rate, False if all have the preset's; None where none matters.
    """

    tables: tuple[str, ...]
    by_preset: bool = True
    tuned: bool | None = None

    def judgement(self, tables: Tables, preset: str) -> Judgement:
        """Returns the judgement, which says so if the arms are not tuned."""
        found = self.judge(tables, preset)
        untuned = "Untuned: " if self.tuned is False else ""
        return replace(found, tuned=self.tuned, reason=f"{untuned}{found.reason}")


def series_trend(rows: Rows, measure: str, series: Mapping[str, str], *, rising: bool, about: str = "") -> Judgement:
    """Judges whether a measure's last value rises (or falls) along series, given by level."""
    values = [last_by_seed(rows, measure, series=name) for name in series.values()]
    what = f"{about}{measure.replace('_', ' ')}"
    return judge_trend(
        list(series), values, rising=rising, delta=DELTA[measure], what=what, unit=measure.removeprefix("test_")
    )


def claims_about(
    table: str,
    found: Mapping[str, tuple[str, str, Judge]],
    *,
    by_preset: bool = True,
    tuned: bool | None = None,
) -> tuple[PaperClaim, ...]:
    """Returns the claims that one table decides, from name → (place in the paper, statement, rule)."""
    return tuple(
        PaperClaim(name=name, where=where, text=text, tables=(table,), judge=judge, by_preset=by_preset, tuned=tuned)
        for name, (where, text, judge) in found.items()
    )
