"""A division's standings as text for people, CSV for programs and LaTeX for papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
# The last column of the standings; pages show it under the name.
ORIGIN = "origin"
_COSTS = ("time_to_target_s", "bits_to_target", "joules_to_target")
_ACCURACY = "test_accuracy"

NOTES = (
    "All methods share seeds, hence placement, fading, partition and minibatches; differences are taken seed by seed. "
    "± is the half-width of the 95 % interval (Student's t).",
    "Every method makes as many passes over its data per edge round; one whose source sends one gradient per round is "
    "played with updates of the same passes, and its origin says so.",
    "Bits to the target are those from devices to edges; between edges and cloud, and between devices, they are told "
    "apart under RunStatistics.",
    "Memory, probes and extra bits are charged as the clock, the planner and the encoder count them.",
    "Methods marked “after” are our reading of their source; “as published” is its algorithm.",
    f"{CODES}: sends compressed updates, a knob that the paper's method does not have. {EARLY}: has run all its rounds "
    "before the time of the comparison, so more rounds would have fitted.",
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

    def as_json(self) -> dict[str, Any]:
        return {"title": self.title, "header": self.header, "rows": self.rows, "words": self.words}


def notes_of(found: Standings, *, is_tuned: bool) -> list[str]:
    """What has to be known to read the tables."""
    if is_tuned:
        tuned = (
            "Everybody had the same trials: four learning rates, or two with three rates of a parent's step, over two "
            "seeds of their own, half the rounds, judged on training images that nobody trains on. The untuned "
            "accuracy, with the scenario's learning rate, stands beside."
        )
    else:
        tuned = "Nobody was tuned: all have the scenario's learning rate."
    asterisk = f"*: differs beyond chance, p < {SIGNIFICANT:g} after Holm's correction over the division's methods."
    ranked = "A rank is 1 + how many methods are better beyond the interval of the difference; ties share one."
    has_ranks = any(row.ranks[By.TIME] is not None for row in found.rows)
    single = "One seed has no intervals, hence no ranks, and differences of a few points mean nothing."
    first = [ranked, asterisk] if has_ranks else [single]
    absent = [f"{one.name} does not take part: {one.reason.rstrip('.')}." for one in found.absent]
    troubled = [f"{row.entrant.name}: {row.result.trouble}" for row in found.rows if row.result.trouble]
    return [*first, tuned, *NOTES, *absent, *troubled]


def shown(found: Standings) -> list[Shown]:
    """Standings, and how the methods behaved."""
    return [_standings(found), _conduct(found)]


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
            _accuracy_of(row, By.TIME) if row.entrant.has_costs else MISSING,
            _accuracy_of(row, By.ROUNDS),
            gap_text(row.gaps[By.TIME, SEED]),
            gap_text(row.gaps[By.TIME, FP32]),
            *(MISSING if row.costs is None else row.costs[name].text(name) for name in _COSTS),
            row.entrant.label,
        )
        for row in found.rows
    )
    return Shown(title="Standings", header=header, rows=rows, words=("method", ORIGIN))


def _conduct(found: Standings) -> Shown:
    header = (
        "method",
        MEASURES["device_accuracy"].brief,
        "mean ρ",
        "max ρ",
        "late rounds (%)",
        "Γ*",
        "uncovered weights",
        "device memory (kB)",
        "edges to cloud (Mbit to target)",
        "between devices (Mbit to target)",
        "learning rate",
        "momentum",
        "trials",
        "untuned (%)",
    )
    rows = tuple(
        (
            name_of(row),
            number(row.conduct.device_accuracy, ".2f", scale=100.0),
            number(row.conduct.mean_ratio, ".3f"),
            number(row.conduct.max_ratio, ".3f"),
            number(row.conduct.late_share, ".0f", scale=100.0),
            number(row.conduct.min_count, ".0f"),
            number(row.conduct.uncovered, ",.0f"),
            number(row.state_bytes, ",.0f", scale=1e-3),
            *(MISSING if row.costs is None else row.costs[name].text("bits_to_target") for name in LINKS),
            _knobs(row),
            number(row.entrant.scenario.train.momentum, "g"),
            str(row.result.num_trials or MISSING),
            _untuned(row),
        )
        for row in found.rows
        if row.entrant.has_costs
    )
    return Shown(title="RunStatistics", header=header, rows=rows, words=("method",))


def name_of(row: Row) -> str:
    marks = (CODES if row.entrant.is_marked else "") + (EARLY if row.ends_early and row.entrant.has_costs else "")
    return f"{row.entrant.name} {marks}".rstrip()


def gap_text(gap: Gap | None) -> str:
    """+2.3 ± 0.8 *, in points."""
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
    """On as many seeds as the others, or it says on how many."""
    text, count = _accuracy(row.untuned), len(row.result.untuned)
    return text if count in (0, len(row.result.runs)) else f"{text} ({counted(count, 'seed')})"


def _knobs(row: Row) -> str:
    if row.result.trial is None:
        return number(row.entrant.scenario.train.learning_rate, "g")
    return " × ".join(number(value, ".3g") for value in row.result.trial.knobs.values())


def csv_rows(found: Standings) -> list[dict[str, Any]]:
    """One per entrant, numbers in full; "not reached" is a value."""
    return [_csv_row(found, row) for row in found.rows]


def _csv_row(found: Standings, row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "division": found.division.name,
        "method": row.entrant.name,
        "origin": row.entrant.label,
        "is_method": row.entrant.is_method,
        "sends_codes": row.entrant.is_marked,
        "seeds": len(row.result.runs),
    }
    for by in By:
        cells[f"rank_{by}"] = row.ranks[by]
        cells |= _cells(f"accuracy_{by}", row.accuracy[by] if by is By.ROUNDS or row.entrant.has_costs else None)
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
        "device_accuracy": _known(row.conduct.device_accuracy),
        "mean_ratio": _known(row.conduct.mean_ratio),
        "max_ratio": _known(row.conduct.max_ratio),
        "late_share": _known(row.conduct.late_share),
        "min_count": _known(row.conduct.min_count),
        "uncovered": _known(row.conduct.uncovered),
        "device_state_bytes": row.state_bytes if row.entrant.has_costs else None,
        "ends_early": row.ends_early,
        "learning_rate": (row.result.trial.knobs if row.result.trial else {}).get(
            "train.learning_rate", row.entrant.scenario.train.learning_rate
        ),
        "momentum": row.entrant.scenario.train.momentum,
        "trials": row.result.num_trials,
        **_cells("accuracy_untuned", row.untuned),
        "trouble": row.result.trouble or None,
    }


def _cells(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {
        name: estimate.mean if estimate else None,
        f"{name}_half_width_95": _known(estimate.half_width) if estimate else None,
    }


def _cost_cells(measure: str, costs: Costs) -> dict[str, Any]:
    """The mean if every seed got there, else the median over all, which may be "not reached"."""
    estimate = costs.estimate
    value: float | str | None = estimate.mean if estimate else costs.median
    if value is None and costs.by_seed:
        value = NOT_REACHED
    return {measure: value, f"{measure}_half_width_95": _known(estimate.half_width) if estimate else None}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write_csv(path: Path, found: Sequence[Standings]) -> None:
    write_rows(path, [row for one in found for row in csv_rows(one)])


_TEX = str.maketrans(
    {
        "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "−": r"$-$", "–": "--", "ρ": r"$\rho$",
        "Γ": r"$\Gamma$", CODES: r"$\diamond$", EARLY: r"$\dagger$", "×": r"$\times$", "\u00a0": "~",
    }
)  # fmt: skip


def tex(text: str) -> str:
    """Any text as LaTeX; a hyphen before a number is a minus."""
    escaped = text.translate(_TEX)
    return f"$-${escaped[1:]}" if escaped[:1] == "-" and escaped[1:2].isdigit() else escaped


def latex(found: Sequence[Standings], *, note: str) -> str:
    """One `table` per division, for the package booktabs."""
    lines = [f"% Made by airprune league; {note}. Needs \\usepackage{{booktabs}}."]
    for one in found:
        table = _standings(one)
        kinds = "".join("l" if name in table.words else "r" for name in table.header)
        caption = f"Division {one.division.name}, {one.division.title}. {one.division.about}"
        lines += [
            "",
            r"\begin{table*}",
            rf"\caption{{{tex(caption)}}}",
            rf"\label{{tab:league-{one.division.name.lower()}}}",
            r"\small",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            " & ".join(map(tex, table.header)) + r" \\",
            r"\midrule",
            *(" & ".join(map(tex, row)) + r" \\" for row in table.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def write_latex(path: Path, found: Sequence[Standings], *, note: str) -> None:
    write_text_atomic(path, latex(found, note=note), follow_link=False)
