"""A track's standings as text for people, CSV for programs and LaTeX for papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airprune.results.latex import escaped, tabular
from airprune.results.measures import MEASURES, TO_TARGET
from airprune.results.statistics import Estimate, diverged_words, estimate_text
from airprune.results.tidy import write_rows
from airprune.results.time_to_target import NOT_REACHED, Costs, target_text
from airprune.studies.league.lineup import FP32, SEED
from airprune.studies.league.standings import LINKS, By, Row, Standings
from airprune.studies.league.statistics import Gap
from airprune.tables import write_text_atomic
from airprune.text import MISSING, counted, number

SIGNIFICANT = 0.05
# Marks after a name.
CODES, EARLY = "◇", "†"
# The last column of the standings; reports show it under the name.
ORIGIN = "origin"
_COSTS = ("time_to_target_s", "bits_to_target", "joules_to_target")
_ACCURACY = "test_accuracy"
_STATISTICS = ("device_accuracy", "mean_ratio", "max_ratio", "late_share", "min_count", "uncovered")

NOTES = (
    "All methods share seeds, hence placement, fading, partition and minibatches; differences are taken seed by seed. "
    "± is the half-width of the 95 % interval (Student's t).",
    "Every method makes as many passes over its data per edge round; a method whose source sends one gradient per "
    "round sends updates of the same passes, and its origin says so.",
    "Bits to the target are those from devices to edges; those between edges and cloud, and between devices, are under "
    "Diagnostics.",
    "Memory, probes and extra bits are charged as the clock, the planner and the encoder count them.",
    "Methods marked “after” are our reading of their source; “as published” is its algorithm.",
    f"{CODES}: sends compressed updates, which the paper's method cannot. {EARLY}: has run all its rounds before the "
    "time of the comparison, so more rounds would have fitted.",
    "On a network without edges the deadline is 350/30 times as long, as in the paper; the time compared is not.",
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A table as people read it.

    Attributes:
      words: the columns that hold text.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]


def notes_of(found: Standings, *, is_tuned: bool) -> list[str]:
    """Returns notes that explain the tables."""
    tuned = "No method was tuned: all have the scenario's learning rate."
    if is_tuned:
        tuned = (
            "Every method had the same tuning runs: four learning rates, or two with three rates of the server "
            "optimiser, over two seeds of their own, with half the rounds, evaluated on training images that no device "
            "trains on. The untuned accuracy, with the scenario's learning rate, stands beside."
        )
    asterisk = f"*: differs beyond chance, p < {SIGNIFICANT:g} after Holm's correction over the track's methods."
    ranked = "A rank is 1 + how many methods are better beyond the interval of the difference; ties share one."
    has_ranks = any(row.ranks[By.TIME] is not None for row in found.rows)
    single = "One seed has no intervals, hence no ranks, and differences of a few points mean nothing."
    first = [ranked, asterisk] if has_ranks else [single]
    absent = [f"{one.name} does not take part: {one.reason.rstrip('.')}." for one in found.absent]
    troubled = [f"{row.entry.name}: {row.result.trouble}" for row in found.rows if row.result.trouble]
    return [*first, tuned, *NOTES, *absent, *troubled]


def shown(found: Standings) -> list[Shown]:
    """Returns the standings and the diagnostics."""
    return [_standings(found), _diagnostics(found)]


def _standings(found: Standings) -> Shown:
    target = "target" if found.target is None else target_text(round(found.target, 3)).replace(" ", "\u00a0")
    header = (
        "rank",
        "method",
        f"accuracy at {number(found.horizon_s, '.3g')}\u00a0s (%)",
        "after all rounds (%)",
        f"− {SEED}",
        f"− {FP32}",
        f"s to {target}",
        f"Mbit to {target}",
        f"J to {target}",
        ORIGIN,
    )
    rows = tuple(
        (
            _rank(row.ranks[By.TIME]),
            name_of(row),
            _accuracy_of(row, By.TIME) if row.entry.has_costs else MISSING,
            _accuracy_of(row, By.ROUNDS),
            gap_text(row.gaps[By.TIME, SEED]),
            gap_text(row.gaps[By.TIME, FP32]),
            *(MISSING if row.costs is None else row.costs[name].text(name) for name in _COSTS),
            row.entry.label,
        )
        for row in found.rows
    )
    return Shown(title="Standings", header=header, rows=rows, words=("method", ORIGIN))


def _diagnostics(found: Standings) -> Shown:
    header = (
        "method",
        MEASURES["device_accuracy"].brief,
        "mean ρ",
        "max ρ",
        "rounds over the deadline (%)",
        "Γ*",
        "uncovered weights",
        "device memory (kB)",
        "edges to cloud (Mbit to target)",
        "between devices (Mbit to target)",
        "learning rate",
        "momentum",
        "tuned settings",
        "untuned (%)",
    )
    rows = tuple(
        (
            name_of(row),
            number(row.statistics.device_accuracy, ".2f", scale=100.0),
            number(row.statistics.mean_ratio, ".3f"),
            number(row.statistics.max_ratio, ".3f"),
            number(row.statistics.late_share, ".0f", scale=100.0),
            number(row.statistics.min_count, ".0f"),
            number(row.statistics.uncovered, ",.0f"),
            number(row.state_bytes, ",.0f", scale=1e-3),
            *(MISSING if row.costs is None else row.costs[name].text("bits_to_target") for name in LINKS),
            _knobs(row),
            number(row.entry.scenario.train.momentum, "g"),
            str(row.result.num_tuned or MISSING),
            _untuned(row),
        )
        for row in found.rows
        if row.entry.has_costs
    )
    return Shown(title="Diagnostics", header=header, rows=rows, words=("method",))


def name_of(row: Row) -> str:
    marks = (CODES if row.entry.is_marked else "") + (EARLY if row.ends_early and row.entry.has_costs else "")
    return f"{row.entry.name} {marks}".rstrip()


def gap_text(gap: Gap | None) -> str:
    """Returns a difference in points: +2.3 ± 0.8 *."""
    if gap is None:
        return MISSING
    text = number(gap.difference.mean, "+.2f", scale=100.0)
    if not math.isnan(gap.difference.half_width):
        text += f" ± {number(gap.difference.half_width, '.2f', scale=100.0)}"
    return f"{text} *" if gap.p_holm < SIGNIFICANT else text


def _rank(rank: int | None) -> str:
    return MISSING if rank is None else str(rank)


def _accuracy_of(row: Row, by: By) -> str:
    num, found = row.result.num_diverged, row.accuracy[by]
    return diverged_words(num, len(row.result.runs)) if num and found is None else _accuracy(found)


def _accuracy(estimate: Estimate | None) -> str:
    return estimate_text(estimate, _ACCURACY)


def _untuned(row: Row) -> str:
    """Returns the untuned accuracy, with the number of seeds where it differs from that of the tuned runs."""
    text, count = _accuracy(row.untuned), len(row.result.untuned)
    return text if count in (0, len(row.result.runs)) else f"{text} ({counted(count, 'seed')})"


def _knobs(row: Row) -> str:
    if row.result.knobs is None:
        return number(row.entry.scenario.train.learning_rate, "g")
    return " × ".join(number(value, ".3g") for value in row.result.knobs.values())


def csv_rows(found: Standings) -> list[dict[str, Any]]:
    """Returns one row per method, numbers in full; "not reached" is a value."""
    return [_csv_row(found, row) for row in found.rows]


def _csv_row(found: Standings, row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "division": found.track.name,
        "method": row.entry.name,
        "origin": row.entry.label,
        "is_method": row.entry.is_method,
        "sends_codes": row.entry.is_marked,
        "seeds": len(row.result.runs),
    }
    for by in By:
        cells[f"rank_{by}"] = row.ranks[by]
        cells |= _cells(f"accuracy_{by}", row.accuracy[by] if by is By.ROUNDS or row.entry.has_costs else None)
        for other in (SEED, FP32):
            gap, name = row.gaps[by, other], f"minus_{other.replace('-', '_')}_{by}"
            cells |= _cells(name, gap.difference if gap else None)
            cells[f"{name}_p_holm"] = _known(gap.p_holm) if gap else None
    cells |= {"horizon_s": found.horizon_s, "target_accuracy": found.target}
    costs = row.costs or {measure: Costs({}) for measure in (*TO_TARGET, *LINKS)}
    cells["reached"] = costs["time_to_target_s"].reached_text if row.costs else None
    for measure in (*TO_TARGET, *LINKS):
        cells |= _cost_cells(measure, costs[measure])
    return cells | {
        **{name: _known(getattr(row.statistics, name)) for name in _STATISTICS},
        "device_state_bytes": row.state_bytes if row.entry.has_costs else None,
        "ends_early": row.ends_early,
        "learning_rate": (row.result.knobs or {}).get("train.learning_rate", row.entry.scenario.train.learning_rate),
        "momentum": row.entry.scenario.train.momentum,
        "trials": row.result.num_tuned,
        **_cells("accuracy_untuned", row.untuned),
        "trouble": row.result.trouble or None,
    }


def _cells(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {
        name: estimate.mean if estimate else None,
        f"{name}_half_width_95": _known(estimate.half_width) if estimate else None,
    }


def _cost_cells(measure: str, costs: Costs) -> dict[str, Any]:
    """Returns the mean if every seed reached the target, else the median, which may be "not reached"."""
    estimate = costs.estimate
    value: float | str | None = estimate.mean if estimate else costs.median
    if value is None and costs.by_seed:
        value = NOT_REACHED
    return {measure: value, f"{measure}_half_width_95": _known(estimate.half_width) if estimate else None}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write_csv(path: Path, found: Sequence[Standings]) -> None:
    write_rows(path, [row for one in found for row in csv_rows(one)])


def latex(found: Sequence[Standings], *, note: str) -> str:
    """Returns one `table` per track, for the package booktabs."""
    lines = [f"% Made by airprune league; {note}. Needs \\usepackage{{booktabs}}."]
    for one in found:
        table = _standings(one)
        caption = f"Track {one.track.name}, {one.track.title}. {one.track.about}"
        lines += [
            "",
            r"\begin{table*}",
            rf"\caption{{{escaped(caption)}}}",
            rf"\label{{tab:league-{one.track.name.lower()}}}",
            r"\small",
            *tabular(table.header, table.rows, words=table.words),
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def write_latex(path: Path, found: Sequence[Standings], *, note: str) -> None:
    write_text_atomic(path, latex(found, note=note), follow_link=False)
