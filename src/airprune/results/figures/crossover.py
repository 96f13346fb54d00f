"""The figure of a crossover: time to the target, and its ratio to the reference's, over the swept value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from airprune.results.crossover import Crossover
from airprune.results.figures.curves import TARGET_COLOUR, draw_line, draw_off_scale, new_figure, note, outside_legend
from airprune.results.figures.styles import Style, styles_for
from airprune.results.measures import MEASURES
from airprune.results.time_to_target import TIME, Costs, Ratio, target_text

_TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


class _Point(NamedTuple):
    """A value with its interval; ∞ and 0 stand at the borders. A median, where a seed is missing, is not whole."""

    x: float
    value: float
    interval: tuple[float, float] | None
    is_whole: bool


def crossover_figure(found: Crossover, target: float) -> Figure:
    """Draws the time to the target, and with several groups the ratio: below 1 the reference is slower."""
    ratios = found.ratios
    figure, axes = new_figure(2 if ratios else 1)
    styles = styles_for(list(found.costs))
    about = MEASURES[TIME]
    for group, by_value in found.costs.items():
        _draw(axes[0], [_cost_point(x, costs) for x, costs in sorted(by_value.items())], styles[group], group)
    axes[0].set_ylabel(about.heading.replace("target", target_text(target)))
    if ratios:
        for group, points in ratios.items():
            _draw(axes[1], [_ratio_point(x, ratio) for x, ratio in points], styles[group], group)
        axes[1].axhline(1.0, color=TARGET_COLOUR, linewidth=1.2, linestyle="--")
        words = "1: pruning stops paying" if found.whole else f"1: as fast as {found.reference}"
        where = axes[1].get_yaxis_transform()
        axes[1].text(0.98, 1.02, words, transform=where, ha="right", va="bottom", fontsize=7, color=TARGET_COLOUR)
        axes[1].set_ylabel(f"time ÷ that of {found.reference}")
    for ax in axes:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=_TICKS))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.set_xlabel(found.key)
    outside_legend(figure, axes[0])
    note(
        figure, f"Time to {target_text(target)} test accuracy; ▲ not reached. Hollow: median, a seed did not reach it."
    )
    return figure


def _cost_point(x: float, costs: Costs) -> _Point:
    estimate = costs.estimate
    if estimate is None:
        median = math.nan if not costs.by_seed else math.inf if costs.median is None else costs.median
        return _Point(x, median, None, is_whole=False)
    half = estimate.half_width
    low = max(estimate.mean - half, estimate.mean * 1e-3)  # the axis is logarithmic
    return _Point(x, estimate.mean, None if math.isnan(half) else (low, estimate.mean + half), is_whole=True)


def _ratio_point(x: float, ratio: Ratio) -> _Point:
    return _Point(x, ratio.middle, ratio.interval, ratio.is_whole)


def _draw(ax: Axes, points: Sequence[_Point], style: Style, name: str) -> None:
    inside = [point for point in points if 0.0 < point.value < math.inf]
    draw_line(ax, [point.x for point in inside], [point.value for point in inside], style, name)
    for point in inside:
        if point.interval is not None:
            ax.vlines(point.x, *point.interval, color=style.colour, linewidth=1.0)
        if not point.is_whole:
            ax.plot(
                point.x, point.value, marker=style.marker, color=style.colour, markerfacecolor="white", markersize=6
            )
    for value in (math.inf, 0.0):
        draw_off_scale(ax, [point.x for point in points if point.value == value], style, above=value > 0.0)
