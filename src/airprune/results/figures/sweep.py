"""The figure of a sweep: accuracy, and time, bits and joules to the target, against the swept value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from airprune.results.crossover import Row
from airprune.results.figures.curves import PaperColumn, draw_off_scale, draw_target, new_figure, note, outside_legend
from airprune.results.figures.styles import Style, styles_for
from airprune.results.measures import MEASURES
from airprune.results.time_to_target import target_text
from airprune.runs.naming import value_text

_COSTS = ("time_to_target_s", "bits_to_target", "joules_to_target")
_MUCH_MORE = 20.0
_MOST_TICKS = 6


class _Point(NamedTuple):
    """A mean and the half-width of its interval; ∞: a seed has not reached the target, NaN: nothing was tested."""

    x: float
    value: float
    half_width: float


def sweep_figure(rows: Sequence[Row], target: float | None, *, paper: PaperColumn | None = None) -> Figure | None:
    """Draws mean and 95 % interval over seeds; one curve per combination of the other keys. None if no key was swept.

    ▲ stands where a seed has not reached the target. Of the swept keys the numeric one with the most values is the
    axis; names stand side by side if there is none.
    """
    key = _axis_key(rows)
    if key is None:
        return None
    numeric = _is_numeric(rows, key)
    places = {value_text(row.values[key]): index for index, row in enumerate({_name(r, key): r for r in rows}.values())}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_group(row, key), []).append(row)
    costs = () if target is None else _COSTS
    figure, axes = new_figure(2 if costs else 1, rows=2 if costs else 1, paper=paper)
    styles = styles_for(list(groups))
    for ax, measure in zip(axes, ("test_accuracy", *costs), strict=True):
        for name, mine in groups.items():
            points = [
                _point(row, measure, float(row.values[key]) if numeric else places[_name(row, key)]) for row in mine
            ]
            _draw(ax, sorted(points), measure, styles[name], name, joined=numeric)
        _label(ax, key, measure, target, places=places, numeric=numeric)
    if target is not None:
        draw_target(axes[0], target)
    if target is not None and paper is None:
        note(figure, f"Mean and 95 % interval over seeds; ▲ {target_text(target)} not reached on every seed.")
    if len(groups) > 1:
        outside_legend(figure, axes[0], most_columns=2 if paper is PaperColumn.single else 6)
    return figure


def _axis_key(rows: Sequence[Row]) -> str | None:
    keys = list(rows[0].values) if rows else []
    counts = {key: len({_name(row, key) for row in rows}) for key in keys}
    many = [key for key in keys if counts[key] > 1]
    return max(many, key=lambda key: (_is_numeric(rows, key), counts[key]), default=None)


def _is_numeric(rows: Sequence[Row], key: str) -> bool:
    return all(isinstance(row.values[key], int | float) and not isinstance(row.values[key], bool) for row in rows)


def _name(row: Row, key: str) -> str:
    return value_text(row.values[key])


def _group(row: Row, key: str) -> str:
    return ", ".join(value_text(value) for name, value in row.values.items() if name != key) or row.scheme


def _point(row: Row, measure: str, x: float) -> _Point:
    scale = MEASURES[measure].axis_scale
    costs = None if row.to_target is None else row.to_target.costs.get(measure)
    found = row.estimates.get(measure) if costs is None else costs.estimate
    if found is not None:
        return _Point(x, found.mean * scale, found.half_width * scale)
    return _Point(x, math.inf if costs is not None and costs.by_seed else math.nan, math.nan)


def _draw(ax: Axes, points: Sequence[_Point], measure: str, style: Style, name: str, *, joined: bool) -> None:
    known = [point if math.isfinite(point.value) else _Point(point.x, math.nan, math.nan) for point in points]
    ax.errorbar(
        [point.x for point in known],
        [point.value for point in known],
        yerr=[0.0 if math.isnan(point.half_width) else point.half_width for point in known],
        fmt=style.marker,
        linestyle=style.line if joined else "none",
        color=style.colour,
        markersize=4,
        capsize=2,
        elinewidth=0.8,
        label=name,
    )
    missed = [point.x for point in points if point.value == math.inf]
    draw_off_scale(ax, missed, style, above=True)


def _label(ax: Axes, key: str, measure: str, target: float | None, *, places: Mapping[str, int], numeric: bool) -> None:
    about = MEASURES[measure]
    heading = about.axis_label if target is None else about.axis_label.replace("target", target_text(target))
    ax.set_ylabel(heading)
    ax.set_xlabel(key)
    if not numeric:
        ax.set_xticks(list(places.values()), list(places), rotation=20, ha="right")
    elif len(places) <= _MOST_TICKS:
        ax.set_xticks([float(name) for name in places], list(places))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6))
    low, high = ax.get_ylim()
    if measure == "test_accuracy":
        ax.set_ylim(max(low, 0.0), min(high, 1.0))  # few seeds have intervals beyond what there is
    elif low > 0 and high > _MUCH_MORE * low:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=max(low, 0.0))
