"""Accuracy against simulated seconds, bits and joules: who is on the Pareto front, and where everybody else is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from airprune.results.figures.curves import MUCH_LONGER, TARGET_COLOUR, draw_target, new_figure, note
from airprune.results.figures.styles import Style, styles_for
from airprune.results.measures import MEASURES
from airprune.studies.league.lineup import FP32, SEED, WHOLE
from airprune.studies.league.standings import Row, Standings
from airprune.studies.league.statistics import pareto_front

AGAINST = ("time_s", "uploaded_bits", "energy_j")
_OTHERS = "#b8bfc7"
_FRONT = "#1c2128"


def league_figure(found: Standings, *, caption: str) -> Figure:
    """Every cloud model of every method is a point, mean over seeds; the front goes through those that nobody beats."""
    rows = [row for row in found.rows if row.entrant.has_costs and row.result.runs]
    curves = {against: {row.entrant.name: curve(row, against) for row in rows} for against in AGAINST}
    fronts = {against: front_of(mine) for against, mine in curves.items()}
    known = [name for name in (SEED, FP32, WHOLE) if any(row.entrant.name == name for row in rows)]
    named = list(dict.fromkeys([*known, *(name for points in fronts.values() for name, _, _ in points)]))
    styles = _styles(named)
    figure, axes = new_figure(len(AGAINST), width=4.4, height=4.0)
    for ax, against in zip(axes, AGAINST, strict=True):
        _draw(ax, curves[against], fronts[against], styles, against)
        if found.target is not None:
            draw_target(ax, found.target)
    axes[0].set_ylabel(MEASURES["test_accuracy"].axis_label)
    _draw_references(axes, found)
    _legend(figure, styles)
    note(figure, caption)
    return figure


def curve(row: Row, against: str) -> list[tuple[float, float]]:
    """(cost, accuracy) of each cloud model, mean over seeds, as far as all of them go."""
    runs = [
        [
            (value * MEASURES[against].axis_scale, test.test_accuracy)
            for test in run.tests
            if (value := getattr(test, against)) is not None
        ]
        for run in row.result.runs.values()
    ]
    shortest = min(map(len, runs), default=0)
    if not shortest:
        return []
    mean = np.mean([run[:shortest] for run in runs], axis=0)
    return [(float(cost), float(accuracy)) for cost, accuracy in mean]


def front_of(curves: dict[str, list[tuple[float, float]]]) -> list[tuple[str, float, float]]:
    """(method, cost, accuracy) of the points that nobody beats, by rising cost."""
    points = [(name, *point) for name, mine in curves.items() for point in mine]
    return [points[i] for i in pareto_front([(cost, accuracy) for _, cost, accuracy in points])]


def _draw(
    ax: Axes,
    curves: dict[str, list[tuple[float, float]]],
    front: Sequence[tuple[str, float, float]],
    styles: dict[str, Style],
    against: str,
) -> None:
    for name, points in curves.items():
        if not points:
            continue
        x, y = zip(*points, strict=True)
        style = styles.get(name)
        looks: dict[str, Any] = {"color": _OTHERS, "linewidth": 0.8, "zorder": 1}
        if style is not None:
            looks = {"color": style.colour, "linewidth": 1.3, "linestyle": style.line, "zorder": 2, "alpha": 0.75}
        ax.plot(x, y, **looks)
        ax.plot(x[-1:], y[-1:], marker="o", markersize=3, color=looks["color"], zorder=2)
    if front:
        names, x, y = zip(*front, strict=True)
        ax.step(x, y, where="post", color=_FRONT, linewidth=2.2, alpha=0.25, zorder=3)
        for name, cost, accuracy in zip(names, x, y, strict=True):
            style = styles[name]
            ax.plot(cost, accuracy, marker=style.marker, color=style.colour, markersize=7, mec="white", zorder=4)
    costs = [cost for points in curves.values() for cost, _ in points if cost > 0.0]
    if costs and max(costs) > MUCH_LONGER * min(costs):
        ax.set_xscale("log")
    ax.set_xlabel(MEASURES[against].axis_label)


def _draw_references(axes: Sequence[Axes], found: Standings) -> None:
    """What one device, and one with all data, come to: lines, since they send nothing."""
    for row in found.rows:
        tests = [run.accuracy for run in row.result.runs.values()]
        if row.entrant.has_costs or not tests:
            continue
        level = float(np.mean(tests))
        for ax in axes:
            ax.axhline(level, color="#8a929b", linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
        is_below_target = found.target is not None and level <= found.target
        axes[-1].text(
            0.99, level, row.entrant.name, transform=axes[-1].get_yaxis_transform(), fontsize=7, color="#57606a",
            ha="right", va="top" if is_below_target else "bottom", zorder=5,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip


def _legend(figure: Figure, styles: dict[str, Style]) -> None:
    lines = [
        Line2D([], [], color=style.colour, marker=style.marker, label=name, linestyle=cast(Any, style.line))
        for name, style in styles.items()
    ]
    lines += [
        Line2D([], [], color=_FRONT, linewidth=2.2, alpha=0.25, label="Pareto front"),
        Line2D([], [], color=_OTHERS, linewidth=0.8, label="other methods"),
        Line2D([], [], color=TARGET_COLOUR, linewidth=1.0, linestyle="--", label="target"),
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=min(len(lines), 6), frameon=False, fontsize=8)


def _styles(names: Sequence[str]) -> dict[str, Style]:
    """As everywhere; where colours repeat, markers do not."""
    markers = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
    colours = styles_for([str(i) for i in range(len(names))]).values()
    return {
        name: Style(style.colour, markers[(i + i // 7) % len(markers)], style.line)
        for i, (name, style) in enumerate(zip(names, colours, strict=True))
    }
