"""A track's standings as text for people, CSV for programs and LaTeX for papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airprune.results.latex import escaped, tabular
from airprune.results.measures import MEASURES, TO_TARGET
from airprune.results.statistics import Estimate, diverged_words
from airprune.results.tidy import write_rows
from airprune.results.time_to_target import NOT_REACHED, Costs, target_text
from airprune.studies.league import tuning
from airprune.studies.league.lineup import FP32, SEED
from airprune.studies.league.standings import LINKS, By, Row, Standings
from airprune.studies.league.statistics import Gap, Rank
from airprune.studies.league.tracks import Tuned
from airprune.studies.league.tuning import RATE, knobs_text
from airprune.tables import write_text_atomic
from airprune.text import MISSING, counted, number

SIGNIFICANT = 0.05
# Marks after a name.
CODES, EARLY = "◇", "†"
# The last column of the standings; reports show it under the name.
ORIGIN = "origin"
_COSTS = ("time_to_target_s", "bits_to_target", "uplink_bits_to_target", "joules_to_target")
_STATISTICS = ("device_accuracy", "mean_ratio", "max_ratio", "late_share", "min_count", "uncovered")

NOTES = (
    "All methods share seeds, hence placement, fading, partition and minibatches; differences are taken seed by seed. "
    "± is the half-width of the 95 % interval (Student's t); numbers have as many digits as it deserves.",
    "Time, bits and joules count every link: uplink, broadcast downlink, links between edges and cloud at 1 Gbit/s, "
    "links between devices. Joules are a model's, not measured ones.",
    "Every method makes as many passes over its data per edge round. A method whose devices do other work per round "
    "has no accuracy at equal rounds; one that has run all its rounds before the compared time has none at equal time.",
    "Memory, probes and extra bits are charged as the clock, the planner and the encoder count them.",
    "Methods marked “after” are our reading of their source; “as published” is its algorithm. Departures are listed "
    "beside the name, and by `airprune methods NAME`.",
    f"{CODES}: sends compressed updates, which the paper's method cannot. {EARLY}: has run all its rounds before the "
    "time of the comparison.",
    "On a network without edges the deadline is 350/30 times as long, as in the paper; the time compared is not.",
)

_RACE = (
    "Every method had the same allowance of tuning runs, at most "
    f"{tuning.MAX_RUNS}: learning rates from 0.001 to 1 until the best is no outermost one, then two values of its own "
    "main setting, or two finer rates if it has none; on seed 100, the best two also on 101 and 102. A tuning run has "
    "half of the rounds and is evaluated on training samples that no device trains on."
)
_TUNING = {
    Tuned.RACE: _RACE,
    Tuned.RATES: "Learning rates were tuned around those of track A, whose main settings were kept: at least three "
    "rates on seed 100, the best two also on 101 and 102, with half of the rounds, on training samples that no device "
    "trains on.",
    Tuned.KEPT: "Learning rates and main settings are those that track A was tuned to.",
}


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
    tuned = _TUNING[found.track.tuned] if is_tuned else "No method was tuned: all have the scenario's learning rate."
    asterisk = f"*: differs beyond chance, p < {SIGNIFICANT:g} after Holm's correction over the track's methods."
    ranked = (
        "Methods are ordered by their mean. A range of ranks has every rank that a method may have: from 1 + the "
        "number of better methods to the number of methods minus the worse ones, beyond simultaneous 95 % intervals "
        "of all paired differences (Tukey's studentised range over methods × seeds; for methods with more than four "
        "times the median variance, paired t-intervals corrected by Šidák). Methods of the same learning share a rank "
        "and count once."
    )
    by = By.TIME if found.track.by is By.TIME else By.ROUNDS
    has_ranks = any(row.ranks[by] is not None for row in found.rows)
    single = "One seed has no intervals, hence no ranks, and differences of a few points mean nothing."
    first = [ranked, asterisk] if has_ranks else [single]
    absent = [f"{one.name} does not take part: {one.reason.rstrip('.')}." for one in found.absent]
    waiting = [f"Not run yet: {', '.join(found.waiting)}."] if found.waiting else []
    troubled = [f"{row.entry.name}: {row.result.trouble}" for row in found.rows if row.result.trouble]
    return [*first, tuned, *NOTES, *absent, *waiting, *troubled]


def shown(found: Standings) -> list[Shown]:
    """Returns the standings and the diagnostics."""
    return [_standings(found), _diagnostics(found)]


def _standings(found: Standings) -> Shown:
    target = "target" if found.target is None else target_text(round(found.target, 3)).replace(" ", "\u00a0")
    by = found.track.by
    other = By.ROUNDS if by is By.TIME else By.TIME
    header = (
        "rank",
        "method",
        *(_heading(one, found.horizon_s) for one in (by, other)),
        f"− {SEED}",
        f"− {FP32}",
        f"s to {target}",
        f"Mbit to {target}",
        "of these uplink",
        f"J to {target} (model)",
        ORIGIN,
    )
    rows = tuple(
        (
            _rank(row.ranks[by]),
            name_of(row),
            *(_accuracy_of(row, one) for one in (by, other)),
            gap_text(row.gaps[by, SEED]),
            gap_text(row.gaps[by, FP32]),
            *(MISSING if row.costs is None else _cost_text(row.costs[name], name) for name in _COSTS),
            "; ".join([row.entry.label, *row.remarks]),
        )
        for row in found.rows
    )
    return Shown(title="Standings", header=header, rows=rows, words=("method", ORIGIN))


def _heading(by: By, horizon_s: float) -> str:
    if by is By.ROUNDS:
        return "accuracy after all rounds (%)"
    return f"accuracy at {number(horizon_s, '.3g')}\u00a0s (%)"


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
        "downlink (Mbit to target)",
        "edges and cloud (Mbit to target)",
        "between devices (Mbit to target)",
        "learning rate",
        "main setting",
        "momentum",
        "tuning runs",
        "untuned (%)",
    )
    rows = tuple(
        (
            name_of(row),
            number(row.statistics.device_accuracy, ".1f", scale=100.0),
            number(row.statistics.mean_ratio, ".2f"),
            number(row.statistics.max_ratio, ".2f"),
            number(row.statistics.late_share, ".0f", scale=100.0),
            number(row.statistics.min_count, ".0f"),
            number(row.statistics.uncovered, ",.0f"),
            number(row.state_bytes, ",.0f", scale=1e-3),
            *(
                MISSING if row.costs is None else _cost_text(row.costs[name], name)
                for name in LINKS
                if "up" not in name
            ),
            number(_learning_rate(row), "g"),
            _main_setting(row),
            number(row.entry.scenario.train.momentum, "g"),
            str(row.result.num_tuned or MISSING),
            _untuned(row),
        )
        for row in found.rows
        if row.entry.has_costs
    )
    return Shown(title="Diagnostics", header=header, rows=rows, words=("method", "main setting"))


def name_of(row: Row) -> str:
    marks = (CODES if row.entry.is_marked else "") + (EARLY if row.ends_early and row.entry.has_costs else "")
    return f"{row.entry.name} {marks}".rstrip()


def gap_text(gap: Gap | None) -> str:
    """Returns a difference in points: +2.3 ± 0.8 *."""
    if gap is None:
        return MISSING
    text = rounded(gap.difference, scale=100.0, sign="+")
    return f"{text} *" if gap.p_holm < SIGNIFICANT else text


def rounded(estimate: Estimate, *, scale: float = 1.0, sign: str = "") -> str:
    """Returns mean ± half-width with the digits that the half-width deserves: its first, two if it begins with 1 or 2.

    Never more than three significant digits of the mean; of differences never more than two decimals. A half-width that
    does not show in them is not shown.
    """
    mean, width = estimate.mean * scale, estimate.half_width * scale
    most = 2 if sign else _decimals(abs(mean), 3)
    if math.isnan(width) or width < 0.5 * 10.0**-most:
        return _without_minus_zero(number(mean, f"{sign},.{min(most, 1) if sign else most}f"))
    decimals = min(most, _decimals(width, 2 if _leading(width) < 3 else 1))
    return f"{_without_minus_zero(number(mean, f'{sign},.{decimals}f'))} ± {number(width, f',.{decimals}f')}"


def _leading(value: float) -> int:
    return int(value / 10.0 ** math.floor(math.log10(value)))


def _decimals(value: float, digits: int) -> int:
    """Returns the decimals that show so many significant digits."""
    return max(0, digits - 1 - math.floor(math.log10(value))) if value > 0.0 else 0


def _without_minus_zero(text: str) -> str:
    return text if any(digit in text for digit in "123456789") else text.lstrip("-−")


def _cost_text(costs: Costs, measure: str) -> str:
    """Returns the cost of the target as it stands under its heading."""
    about = MEASURES["bits_to_target" if measure in LINKS else measure]
    if not costs.by_seed:
        return MISSING
    if costs.estimate is not None:
        return rounded(costs.estimate, scale=about.scale)
    return NOT_REACHED if costs.median is None else f"median {number(costs.median, '.3g', scale=about.scale)}"


def _rank(rank: Rank | None) -> str:
    return MISSING if rank is None else str(rank)


def _accuracy_of(row: Row, by: By) -> str:
    num, found = row.result.num_diverged, row.accuracy[by]
    return diverged_words(num, len(row.result.runs)) if num and found is None else _accuracy(found)


def _accuracy(estimate: Estimate | None) -> str:
    return MISSING if estimate is None else rounded(estimate, scale=100.0)


def _untuned(row: Row) -> str:
    """Returns the untuned accuracy, with the number of seeds where it differs from that of the tuned runs."""
    text, count = _accuracy(row.untuned), len(row.result.untuned)
    return text if count in (0, len(row.result.runs)) else f"{text} ({counted(count, 'seed')})"


def _learning_rate(row: Row) -> float:
    return float((row.result.knobs or {}).get(RATE, row.entry.scenario.train.learning_rate))


def _main_setting(row: Row) -> str:
    """Returns the tuned value beside the learning rate."""
    own = {key: value for key, value in (row.result.knobs or {}).items() if key != RATE}
    return knobs_text(own) if own else MISSING


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
        rank = row.ranks[by]
        cells |= {f"rank_{by}_best": rank.best if rank else None, f"rank_{by}_worst": rank.worst if rank else None}
        cells |= _cells(f"accuracy_{by}", row.accuracy[by])
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
        "same_as": row.same_as or None,
        "remarks": "; ".join(row.remarks) or None,
        "departures": " ".join(row.entry.departures) or None,
        "other_work": row.entry.other_work or None,
        "learning_rate": _learning_rate(row),
        "tuned": knobs_text(row.result.knobs) if row.result.knobs else None,
        "momentum": row.entry.scenario.train.momentum,
        "tuning_runs": row.result.num_tuned,
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
