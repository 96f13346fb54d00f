"""Accuracy against costs: which methods are on the Pareto front, and where the others are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from airprune.results.figures.curves import (
    MUCH_LONGER,
    TARGET_COLOUR,
    draw_target,
    new_figure,
    note,
    outside_legend,
)
from airprune.results.figures.styles import Style, styles_for
from airprune.results.measures import MEASURES
from airprune.results.statistics import pareto_front

# (cost, accuracy) of one model after the other.
Curve = Sequence[tuple[float, float]]
_OTHERS = "#b8bfc7"
_FRONT = "#1c2128"


def pareto_figure(
    curves: Mapping[str, Mapping[str, Curve]],
    *,
    known: Sequence[str],
    levels: Mapping[str, float],
    target: float | None,
    caption: str,
    headings: Mapping[str, str] | None = None,
) -> Figure:
    """Draws one panel per cost: every method's points, and the front through those that no other method beats.

    Args:
      curves: measure of cost → method → its points.
      known: methods that are named in any case; others are where they are on a front.
      levels: accuracies without a cost, as horizontal lines, by name.
      headings: of axes, by measure, where they are not the measure's own.
    """
    fronts = {against: front_of(mine) for against, mine in curves.items()}
    named = list(dict.fromkeys([*known, *(name for points in fronts.values() for name, _, _ in points)]))
    styles = _styles(named)
    figure, axes = new_figure(len(curves), width=4.4, height=4.0)
    for ax, against in zip(axes, curves, strict=True):
        _draw(ax, curves[against], fronts[against], styles)
        ax.set_xlabel((headings or {}).get(against, MEASURES[against].axis_label))
        if target is not None:
            draw_target(ax, target)
    axes[0].set_ylabel(MEASURES["test_accuracy"].axis_label)
    _draw_levels(axes, levels, target)
    _legend(figure, styles)
    note(figure, caption)
    return figure


def front_of(curves: Mapping[str, Curve]) -> list[tuple[str, float, float]]:
    """Returns (method, cost, accuracy) of the points that no other beats, by rising cost."""
    points = [(name, *point) for name, mine in curves.items() for point in mine]
    return [points[i] for i in pareto_front([(cost, accuracy) for _, cost, accuracy in points])]


def _draw(
    ax: Axes,
    curves: Mapping[str, Curve],
    front: Sequence[tuple[str, float, float]],
    styles: dict[str, Style],
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


def _draw_levels(axes: Sequence[Axes], levels: Mapping[str, float], target: float | None) -> None:
    for name, level in levels.items():
        for ax in axes:
            ax.axhline(level, color="#8a929b", linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
        is_below_target = target is not None and level <= target
        axes[-1].text(
            0.99, level, name, transform=axes[-1].get_yaxis_transform(), fontsize=7, color="#57606a",
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
    outside_legend(figure, lines)


def _styles(names: Sequence[str]) -> dict[str, Style]:
    """Returns the usual styles; where colours repeat, markers do not."""
    markers = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
    colours = styles_for([str(i) for i in range(len(names))]).values()
    return {
        name: Style(style.colour, markers[(i + i // 7) % len(markers)], style.line)
        for i, (name, style) in enumerate(zip(names, colours, strict=True))
    }
