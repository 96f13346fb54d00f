"""Results of the study for readers: Markdown tables, and the figure "what survives a real radio"."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from airprune.results.figures.curves import draw_line, new_figure, note, outside_legend
from airprune.results.figures.styles import styles_for
from airprune.results.statistics import Estimate
from airprune.studies.claims import Judgement, Verdict
from airprune.studies.claims.decision import SEQUENTIAL
from airprune.studies.radio.findings import FINDINGS, Arms, by_method, costs, target_of
from airprune.studies.radio.plan_claims import PLAN_CLAIMS, Planned
from airprune.studies.radio.promises import NOMINAL, ROBUST, promise_name
from airprune.studies.radio.rungs import CORRELATION_OF_DB, FAIR, PAPERS, RUNGS, TUNED
from airprune.studies.radio.study import ArmResult
from airprune.studies.radio.training_claims import JUDGED, ONE_EDGE, TRAINING_CLAIMS, VARIANTS, ends_of
from airprune.text import MISSING

_TIME = "time_to_target_s"
_MARKS = {Verdict.HOLDS: 2, Verdict.SAME: 1, Verdict.PARTLY: 1, Verdict.UNDECIDED: 0, Verdict.FAILS: -1}
_COLOURS = {2: "#009E73", 1: "#A6D8C4", 0: "#E5E5E5", -1: "#D55E00"}


def markdown(results: Sequence[ArmResult], plans: Mapping[str, Planned]) -> str:
    """Returns all tables."""
    target = target_of(results)
    parts = (
        _table(("rung", "deadline", "mean ρ of the paper's plan", "excluded", "adds"), _rung_rows(results)),
        _table(("rung", *(one.short for one in FINDINGS)), _verdict_rows(results, target)),
        _table(("rung", *(one.name for one in PLAN_CLAIMS)), _plan_rows(plans)),
        _table(("rung", *VARIANTS["paper"], *(one.name for one in TRAINING_CLAIMS)), _training_rows(results)),
        _table(("rung", *TUNED), _number_rows(results, target)),
        _table(
            ("error of the CSI", "plans", "on time", "excluded", "accuracy (%)", f"s to {target:.1%}", "seeds"),
            _promise_rows(results, target),
        ),
    )
    return "\n\n".join(parts) + "\n"


def _table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rung_rows(results: Sequence[ArmResult]) -> Iterator[Sequence[str]]:
    for name, rung in RUNGS.items():
        arms = by_method(results, name).get(PAPERS, {})
        if not arms:
            continue
        deadline_s = next(iter(arms.values())).deadline_s
        yield (
            rung.title,
            f"{1e3 * deadline_s:.3g} ms",
            f"{np.mean([one.mean_ratio for one in arms.values()]):.2f}",
            f"{np.mean([one.blocked_share for one in arms.values()]):.1%}".replace("%", " %"),
            rung.about,
        )


def _verdict_rows(results: Sequence[ArmResult], target: float) -> Iterator[Sequence[str]]:
    for name, rung in RUNGS.items():
        arms = by_method(results, name)
        if arms:
            yield (rung.title, *(_verdict_text(one.judgement(arms, target)) for one in FINDINGS))


def _verdict_text(found: Judgement) -> str:
    """Returns sign, effect, interval and seeds: ✓ +3.1 (1.2 … 5.0), 5; of times, the share that is saved."""
    decision = found.decision
    if decision is None:
        return MISSING
    if math.isnan(decision.effect) or math.isinf(decision.effect):
        return f"{found.verdict.sign} ({decision.seeds})"
    unit = " %" if decision.unit == "share saved" else ""
    effect = f"{100 * decision.effect:+.1f}{unit}" if math.isfinite(decision.effect) else ""
    low, high = 100 * decision.low, 100 * decision.high
    has_interval = decision.seeds >= SEQUENTIAL.at[0] and math.isfinite(low) and math.isfinite(high)
    interval = f" ({low:.1f} … {high:.1f})" if has_interval else ""  # of fewer seeds it says nothing
    return f"{found.verdict.sign} {effect}{interval}, {decision.seeds}"


def _plan_rows(plans: Mapping[str, Planned]) -> Iterator[Sequence[str]]:
    for name, found in plans.items():
        judgements = [one.judge(found) for one in PLAN_CLAIMS]
        yield (RUNGS[name].title, *(f"{one.verdict.sign} {one.reason}" for one in judgements))


def _training_rows(results: Sequence[ArmResult]) -> Iterator[Sequence[str]]:
    for name in JUDGED:
        ends = ends_of(results, name)
        if not ends[ONE_EDGE]:
            continue
        accuracies = (Estimate.of([100 * end for end in found.values()]).text(".1f") for found in ends.values())
        yield (RUNGS[name].title, *accuracies, *(_verdict_text(one.judge(ends)) for one in TRAINING_CLAIMS))


def _number_rows(results: Sequence[ArmResult], target: float) -> Iterator[Sequence[str]]:
    for name, rung in RUNGS.items():
        arms = by_method(results, name)
        if arms:
            yield (rung.title, *(_numbers_text(arms, method, target) for method in TUNED))


def _numbers_text(arms: Arms, method: str, target: float) -> str:
    mine = arms.get(method, {})
    if not mine:
        return MISSING
    accuracy = Estimate.of([100 * one.accuracy[-1] for one in mine.values()])
    time_s = costs(mine, target).text(_TIME)
    return f"{accuracy.mean:.1f} %, {time_s}{' s' if any(map(str.isdigit, time_s)) else ''} ({len(mine)})"


def _promise_rows(results: Sequence[ArmResult], target: float) -> Iterator[Sequence[str]]:
    for error_db in CORRELATION_OF_DB:
        for kind in (NOMINAL, ROBUST):
            arms = by_method(results, promise_name(error_db, kind)).get(FAIR, {})
            if not arms:
                continue
            values = list(arms.values())
            yield (
                f"{error_db} dB",
                "on the mean" if kind == NOMINAL else "plan.on_time = 0.95",
                f"{np.mean([one.on_time_share for one in values]):.1%}",
                f"{np.mean([one.blocked_share for one in values]):.1%}",
                Estimate.of([100 * one.accuracy[-1] for one in values]).text(".1f"),
                costs(arms, target).text(_TIME),
                str(len(arms)),
            )


def survival_figure(results: Sequence[ArmResult], *, caption: str) -> Figure:
    """Draws the verdict of every finding on every rung, and the time to the target of every method."""
    target = target_of(results)
    rungs = [name for name in RUNGS if by_method(results, name)]
    figure, (left, right) = new_figure(2, width=7.0, height=5.2)
    for row, one in enumerate(FINDINGS):
        for column, name in enumerate(rungs):
            found = one.judgement(by_method(results, name), target)
            if found.decision is None:
                continue
            mark = _MARKS.get(found.verdict, 0)
            left.add_patch(_square(column, row, _COLOURS[mark]))
            left.text(column, row, _cell_text(found), ha="center", va="center", fontsize=7)
    left.set_xlim(-0.5, len(rungs) - 0.5)
    left.set_ylim(len(FINDINGS) - 0.5, -0.5)
    left.set_yticks(range(len(FINDINGS)), [one.short for one in FINDINGS], fontsize=8)
    left.grid(False)
    _draw_times(right, results, rungs, target)
    for axes in (left, right):
        axes.set_xticks(range(len(rungs)), [RUNGS[name].title for name in rungs], rotation=40, ha="right", fontsize=8)
    outside_legend(figure, right, most_columns=4)
    note(figure, caption)
    return figure


def _square(column: int, row: int, colour: str) -> Rectangle:
    return Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=colour, edgecolor="none")


def _cell_text(found: Judgement) -> str:
    decision = found.decision
    assert decision is not None
    sign = found.verdict.sign
    if not math.isfinite(decision.effect):
        return sign
    unit = " %" if decision.unit == "share saved" else ""
    return f"{sign}\n{100 * decision.effect:+.0f}{unit}"


def _draw_times(axes: Axes, results: Sequence[ArmResult], rungs: Sequence[str], target: float) -> None:
    styles = styles_for(list(TUNED))
    for method in TUNED:
        arms = [by_method(results, name).get(method, {}) for name in rungs]
        medians = [costs(mine, target).median if mine else None for mine in arms]
        times = [math.nan if median is None else median for median in medians]  # lines break where nothing was run
        if not all(map(math.isnan, times)):
            draw_line(axes, range(len(rungs)), times, styles[method], method)
    axes.set_yscale("log")
    axes.set_ylabel(f"time to {target:.1%} (s), median over seeds")
