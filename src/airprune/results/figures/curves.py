"""Figures of runs and comparisons, fit for a paper: units on every axis, one colour, marker and line style per scheme
everywhere (so that grey prints stay readable), vector output by file name."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from airprune import files
from airprune.results.figures.styles import Style, styles_for
from airprune.results.measures import MEASURES, Measure

# Of figures: for screens, for papers, for the web.
FORMATS = ("png", "pdf", "svg")
# The colour of target and reference lines.
TARGET_COLOUR = "#B03A00"
MUCH_LONGER = 5.0
_DPI = 150
_LABEL_LENGTH = 40
_AT_TOP, _AT_BOTTOM = 0.965, 0.035  # of the height of an axes
# Text that journals take: TrueType in PDF, outlines in SVG; equal figures are equal files.
_FILES_LOOK: Any = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "airprune"}
_NO_DATES: dict[str, Any] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".svg": {"Date": None, "Creator": None},
}


class PaperColumn(StrEnum):
    """The width of a figure in a two-column paper of the IEEE."""

    single = "single"
    double = "double"

    @property
    def width_in(self) -> float:
        return 3.5 if self is PaperColumn.single else 7.16


def new_figure(
    columns: int, *, rows: int = 1, width: float = 4.2, height: float = 3.2, paper: PaperColumn | None = None
) -> tuple[Figure, list[Axes]]:
    """Returns axes in the house look, row by row.

    Args:
      paper: makes the whole figure as wide as that, one panel above the other where two would not fit, with text of 7
        and 8 points.
    """
    if paper is not None:
        columns, rows = (1, rows * columns) if paper is PaperColumn.single else (columns, rows)
        width, height = paper.width_in / columns, height * min(1.0, paper.width_in / columns / width)
    figure = Figure(figsize=(width * columns, height * rows), dpi=_DPI, layout="constrained")
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(rows * columns)]
    for ax in axes:
        ax.grid(True, color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        if paper is not None:
            ax.tick_params(labelsize=7)
            ax.xaxis.label.set_fontsize(8)
            ax.yaxis.label.set_fontsize(8)
    return figure, axes


def draw_line(ax: Axes, x: ArrayLike, y: ArrayLike, style: Style, label: str, *, every: int | None = None) -> None:
    """Draws a curve in its style, with a marker at every so many points."""
    ax.plot(x, y, style.line, color=style.colour, marker=style.marker, markevery=every, markersize=4, label=label)


def draw_band(ax: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, style: Style) -> None:
    """Draws an interval around a curve."""
    ax.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)


def draw_off_scale(ax: Axes, x: Sequence[float], style: Style, *, above: bool) -> None:
    """Draws marks at the upper or the lower border, for values outside any axis."""
    heights, marker = [_AT_TOP if above else _AT_BOTTOM] * len(x), "^" if above else "v"
    ax.plot(x, heights, marker, color=style.colour, markersize=7, transform=ax.get_xaxis_transform())


def draw_curves(
    ax: Axes,
    runs_by_name: Mapping[str, list[list[dict[str, Any]]]],
    *,
    measure: str,
    against: str = "global_round",
    measures: Mapping[str, Measure] = MEASURES,
) -> None:
    """Draws one curve per name: the mean over seeds, with a band from the lowest to the highest seed.

    A measure that is missing leaves a gap. Where one curve is several times as long as another, as time is without
    hierarchy, the axis is logarithmic.
    """
    styles = styles_for(list(runs_by_name))
    axis = measures[against]
    starts, ends = [], []
    for name, runs in runs_by_name.items():
        points = min(len(records) for records in runs)
        if points == 0:
            continue
        x = np.mean([_values(records[:points], against) * axis.axis_scale for records in runs], axis=0)
        y = np.array([_values(records[:points], measure) for records in runs])
        starts.append(x[0])
        ends.append(x[-1])
        draw_line(ax, x, y.mean(0), styles[name], name, every=max(1, points // 10))
        if len(runs) > 1:
            draw_band(ax, x, y.min(0), y.max(0), styles[name])
    if against != "global_round" and ends and min(starts) > 0 and max(ends) > MUCH_LONGER * min(ends):
        ax.set_xscale("log")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=against == "global_round"))
    ax.set_xlabel(axis.axis_label)
    ax.set_ylabel(measures[measure].axis_label)


def _values(records: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([math.nan if record.get(name) is None else record[name] for record in records])


def curve_panel(
    runs_by_name: Mapping[str, list[list[dict[str, Any]]]],
    *,
    measure: str,
    against: str,
    paper: PaperColumn | None = None,
    measures: Mapping[str, Measure] = MEASURES,
) -> Figure:
    """Draws one panel; with several names, the legend below."""
    shown = {plain_label(name): runs for name, runs in runs_by_name.items()}
    lines = math.ceil(len(shown) / 2) if len(shown) > 1 else 0
    figure, (ax,) = new_figure(1, height=3.2 + 0.2 * lines, paper=paper)
    draw_curves(ax, shown, measure=measure, against=against, measures=measures)
    if lines:
        outside_legend(figure, ax, most_columns=2)
    return figure


def comparison_figure(
    runs_by_name: Mapping[str, list[list[dict[str, Any]]]],
    *,
    title: str = "",
    target: float | None = None,
    paper: PaperColumn | None = None,
) -> Figure:
    """Draws accuracy against rounds, time and uploaded bits, and the loss against rounds; a line at the target.

    The legend follows the order of the names. A figure for a paper has no title: its caption says it.
    """
    figure, axes = new_figure(2, rows=2, paper=paper)
    draw_curves(axes[0], runs_by_name, measure="test_loss")
    draw_curves(axes[1], runs_by_name, measure="test_accuracy")
    draw_curves(axes[2], runs_by_name, measure="test_accuracy", against="time_s")
    draw_curves(axes[3], runs_by_name, measure="test_accuracy", against="uploaded_bits")
    if target is not None:
        for ax in axes[1:]:
            draw_target(ax, target)
    outside_legend(figure, axes[0], most_columns=2 if paper is PaperColumn.single else 6)
    if title and paper is None:
        figure.suptitle(title)
    return figure


def draw_target(ax: Axes, target: float) -> None:
    """Draws the target accuracy."""
    ax.axhline(target, color=TARGET_COLOUR, linewidth=1.0, linestyle="--")


def save_figure(figure: Figure, *paths: Path) -> None:
    """Writes PNG, PDF or SVG by the file names; without dates inside, so that equal figures are equal files.

    A letter that the font lacks becomes a box without ado. Laid out once, and then for good: with a layout left to do,
    every `savefig` would draw the figure twice.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)
            figure.set_layout_engine(None)
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.replacing(path) as file, matplotlib.rc_context(_FILES_LOOK):
                figure.savefig(file, format=path.suffix[1:], dpi=_DPI, metadata=_NO_DATES[path.suffix])


def figure_files(stem: Path, formats: Sequence[str] = FORMATS) -> tuple[Path, ...]:
    """Returns the files of a figure."""
    return tuple(stem.with_name(f"{stem.name}.{name}") for name in formats)


def curve_axes(ax: Axes, rows: Sequence[Mapping[str, Any]], *, measure: str, against: str = "global_round") -> None:
    """Draws curves from a tidy table with columns series, seed, global_round and the measures."""
    runs: dict[str, dict[Any, list[dict[str, Any]]]] = {}
    for row in rows:
        runs.setdefault(row["series"], {}).setdefault((row.get("preset"), row["seed"]), []).append(dict(row))
    draw_curves(ax, {name: list(by_seed.values()) for name, by_seed in runs.items()}, measure=measure, against=against)


def outside_legend(figure: Figure, of: Axes | Sequence[Artist], *, most_columns: int = 6, above: bool = False) -> None:
    """Adds the legend of one axes, or of these lines, below the whole figure, or above it."""
    handles = of.get_legend_handles_labels()[0] if isinstance(of, Axes) else of
    labels = [str(handle.get_label()) for handle in handles]
    columns = max(1, min(len(labels), most_columns))
    place: Literal["outside upper center", "outside lower center"]
    place = "outside upper center" if above else "outside lower center"
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False, fontsize=8)


def plain_label(name: str) -> str:
    """Returns a name as matplotlib shows it to the letter: no formulas, no leading underscore, which would hide it."""
    text = " ".join(name.split())
    text = text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 1] + "…"
    text = text.encode(errors="replace").decode().replace("\\", "/").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def note(figure: Figure, text: str) -> None:
    """Adds a caption above the figure."""
    figure.suptitle(text, fontsize=8, color="#555555")
