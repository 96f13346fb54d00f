"""A claim of the paper's evaluation, or one of our errata: judged from CSV files alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airprune.results.tidy import Rows
from airprune.studies.claims import Claim, Judgement

Tables = Mapping[str, Rows]
Judge = Callable[[Tables, str], Judgement]


@dataclass(frozen=True, kw_only=True)
class PaperClaim(Claim[[Tables, str]]):
    """Judged from (tables, preset); claims about planning alone ignore the preset.

    Attributes:
      tables: the CSV files that decide it.
      by_preset: whether it is judged once per preset.
    """

    tables: tuple[str, ...]
    by_preset: bool = True


def claims_about(
    table: str, found: Mapping[str, tuple[str, str, Judge]], *, by_preset: bool = True
) -> tuple[PaperClaim, ...]:
    """Claims that one table decides: name → (where the paper says so, what it says, how it is judged)."""
    return tuple(
        PaperClaim(name=name, where=where, text=text, tables=(table,), judge=judge, by_preset=by_preset)
        for name, (where, text, judge) in found.items()
    )
