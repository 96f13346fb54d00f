"""`airprune run --replay RUN --what-if`: what is assumed, and the prediction beside the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airprune.cli.console import say
from airprune.cli.tables import plain_table
from airprune.results.measures import MEASURES
from airprune.text import MISSING, number

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.deployment.what_if import PredictedRound
    from airprune.runs.layout import RunFolder

_SIDES = ("recorded", "what_if")


def say_assumptions(changes: Sequence[str]) -> None:
    from airprune.deployment.what_if import ASSUMPTIONS

    say(f"What if: {', '.join(changes) or 'nothing were changed: the replay'}.")
    for words in ASSUMPTIONS:
        say(f"Assumed: {words}")


def compared(deployment: RunFolder, predicted: Sequence[PredictedRound], simulated: RunFolder) -> dict[str, Any]:
    """Returns the record of a deployment beside what was predicted, of the rounds that were computed now."""
    from airprune.runs.measured import measured_s, read_measured

    rows = read_measured(deployment)
    fates: Counter[str] = Counter()
    for round in predicted:
        fates.update(round.fates)
    num_recorded = len({row.round for row in rows})
    recorded = _side(Counter(row.fate for row in rows), num_recorded, measured_s(rows), deployment)
    foreseen = _side(fates, len(predicted), sum(round.took_s for round in predicted), simulated)
    return dict(zip(_SIDES, (recorded, foreseen), strict=True))


def _side(fates: Mapping[str, int], num_rounds: int, took_s: float | None, folder: RunFolder) -> dict[str, Any]:
    tests = [record["test_accuracy"] for record in folder.records() if record.get("test_accuracy") is not None]
    return {
        "edge_rounds": num_rounds,
        "uploads": sum(fates.values()),
        "in_time": fates.get("ok", 0),
        "late": fates.get("late", 0),
        "seconds": took_s,
        "seconds_per_round": took_s / num_rounds if took_s is not None and num_rounds else None,
        "test_accuracy": tests[-1] if tests else None,
    }


def comparison_table(found: dict[str, Any]) -> Table:
    table = plain_table("", "recorded", "what if", numbers=("recorded", "what if"))
    lines = (
        ("edge rounds", "edge_rounds", ",.0f", "", 1.0),
        ("uploads", "uploads", ",.0f", "", 1.0),
        ("in time", "in_time", ",.0f", "", 1.0),
        ("missed the deadline", "late", ",.0f", "", 1.0),
        ("time of the edge rounds", "seconds", ".3g", " s", 1.0),
        ("time per edge round", "seconds_per_round", ".3g", " s", 1.0),
        (MEASURES["test_accuracy"].label, "test_accuracy", ".1f", " %", 100.0),
    )
    for label, name, form, unit, scale in lines:
        values = (found[side][name] for side in _SIDES)
        table.add_row(label, *(MISSING if one is None else number(one, form, unit, scale=scale) for one in values))
    return table
