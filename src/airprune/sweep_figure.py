"""The picture of a sweep: accuracy, and time, bits and joules to the target, against the value that was swept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from airprune.figures import PaperColumn, draw_target, new_figure, outside_legend
from airprune.measures import MEASURES
from airprune.reaching import target_text
from airprune.styles import Style, styles_for
from airprune.sweeps import Row
from airprune.sweeps.runs import value_text

_COSTS = ("time_to_target_s", "bits_to_target", "joules_to_target")
_MUCH_MORE = 20.0


class _Point(NamedTuple):
    x: float
    value: float
    half_width: float


def sweep_figure(rows: Sequence[Row], target: float | None, *, paper: PaperColumn | None = None) -> Figure | None:
    """Mean and 95 % interval over seeds; one curve per combination of the other swept keys. None if no key was swept.

    Of the swept keys the numeric one with the most values is the axis; names stand side by side if there is none.
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
        _label(ax, key, measure, target, places=None if numeric else places)
    if target is not None:
        draw_target(axes[0], target)
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
    if measure in row.estimates:
        found: Any = row.estimates[measure]
    else:
        found = None if row.to_target is None or measure not in row.to_target.costs else row.to_target.costs[measure]
        found = None if found is None else found.estimate
    if found is None:
        return _Point(x, math.nan, math.nan)
    return _Point(x, found.mean * scale, found.half_width * scale)


def _draw(ax: Axes, points: Sequence[_Point], measure: str, style: Style, name: str, *, joined: bool) -> None:
    ax.errorbar(
        [point.x for point in points],
        [point.value for point in points],
        yerr=[0.0 if math.isnan(point.half_width) else point.half_width for point in points],
        fmt=style.marker,
        linestyle=style.line if joined else "none",
        color=style.colour,
        markersize=4,
        capsize=2,
        label=name,
    )


def _label(ax: Axes, key: str, measure: str, target: float | None, *, places: Mapping[str, int] | None) -> None:
    about = MEASURES[measure]
    heading = about.axis_label if target is None else about.axis_label.replace("target", target_text(target))
    ax.set_ylabel(heading)
    ax.set_xlabel(key)
    if places is None:
        ax.xaxis.set_major_locator(MaxNLocator(6))
    else:
        ax.set_xticks(list(places.values()), list(places), rotation=20, ha="right")
    low, high = ax.get_ylim()
    if measure != "test_accuracy" and low > 0 and high > _MUCH_MORE * low:
        ax.set_yscale("log")
