"""Pictures that only reports have: curves one panel per file, so that pages wrap them, and devices side by side."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from airprune.results.figures.curves import PaperColumn, draw_curves, new_figure, save_figure
from airprune.results.measures import MEASURES, Measure
from airprune.results.report.reading import MAX_BARS, EdgeRound, Row

_COMPUTE = "#E69F00"
_UPLINK = "#0072B2"
_LEFT_OUT = "#BBBBBB"
_DEADLINE = "#B03A00"
_LABEL_LENGTH = 40


def curve_panel(
    runs_by_name: Mapping[str, list[list[Row]]],
    *,
    measure: str,
    against: str,
    paper: PaperColumn | None = None,
    measures: Mapping[str, Measure] = MEASURES,
) -> Figure:
    """One panel; with several names, the legend below."""
    shown = {_label(name): [[_with_gaps(row) for row in run] for run in runs] for name, runs in runs_by_name.items()}
    lines = math.ceil(len(shown) / 2) if len(shown) > 1 else 0
    figure, (ax,) = new_figure(1, height=3.2 + 0.2 * lines, paper=paper)
    draw_curves(ax, shown, measure=measure, against=against, measures=measures)
    if lines:
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def timeline(devices: EdgeRound, *, deadline_s: float | None) -> Figure:
    """Compute and uplink of every device, one after the other, against the deadline."""
    chosen = devices.slowest(MAX_BARS)
    figure, ax = _bars_figure(devices, chosen)
    compute, uplink = (np.nan_to_num(values[chosen]) for values in (devices.compute_s, devices.uplink_s))
    blocked = np.array([devices.fate[i] == "blocked" for i in chosen])
    compute, uplink = np.where(blocked, 0.0, compute), np.where(blocked, 0.0, uplink)
    longest = max(float(np.max(compute + uplink)), deadline_s or 0.0)
    scale, unit = (1e3, "ms") if longest < 1.0 else (1.0, "s")
    place = np.arange(len(chosen))
    ax.barh(place, compute * scale, color=_COMPUTE, label=MEASURES["compute_s"].label, height=0.7)
    ax.barh(place, uplink * scale, left=compute * scale, color=_UPLINK, label=MEASURES["uplink_s"].label, height=0.7)
    if deadline_s is not None:
        ax.axvline(deadline_s * scale, color=_DEADLINE, linestyle="--", linewidth=1.5, label="deadline")
    for y, i in enumerate(chosen):
        if devices.fate[i] != "ok":
            end = (compute + uplink)[y] * scale
            ax.text(end, y, f" {_label(devices.fate[i])}", va="center", fontsize=7, color="#333333")
    if longest > 0:
        ax.set_xlim(0, longest * scale * 1.18)
    ax.set_xlabel(f"time within the edge round ({unit})")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def device_bars(devices: EdgeRound, values: np.ndarray, *, label: str, colour: str) -> Figure:
    """One value in [0, 1] per device; grey for those left out."""
    chosen = devices.slowest(MAX_BARS)
    figure, ax = _bars_figure(devices, chosen)
    colours = [colour if devices.fate[i] == "ok" else _LEFT_OUT for i in chosen]
    ax.barh(np.arange(len(chosen)), np.nan_to_num(values[chosen]), color=colours, height=0.7)
    ax.set_xlabel(label)
    return figure


def save_pictures(figure: Figure, *paths: Path) -> None:
    """As `save_figure`; a letter that the font lacks becomes a box without ado."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        save_figure(figure, *paths)


def has_values(runs_by_name: Mapping[str, Sequence[Sequence[Row]]], measure: str) -> bool:
    return any(row.get(measure) is not None for runs in runs_by_name.values() for run in runs for row in run)


def _bars_figure(devices: EdgeRound, chosen: list[int]) -> tuple[Figure, Axes]:
    figure, (ax,) = new_figure(1, height=1.4 + 0.19 * len(chosen))
    ax.grid(False, axis="y")
    ax.set_yticks(range(len(chosen)), [f"{devices.device[i]}" for i in chosen], fontsize=7)
    ax.set_ylim(len(chosen) - 0.4, -0.6)
    ax.set_ylabel("device")
    for y in range(1, len(chosen)):
        if devices.edge[chosen[y]] != devices.edge[chosen[y - 1]]:
            ax.axhline(y - 0.5, color="#999999", linewidth=0.7)
    return figure, ax


def _with_gaps(row: Row) -> Row:
    return {name: math.nan if value is None else value for name, value in row.items()}


def _label(name: str) -> str:
    """A name as matplotlib shows it to the letter: no formulas, no leading underscore, which would hide it."""
    text = " ".join(name.split())
    text = text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 1] + "…"
    text = text.encode(errors="replace").decode().replace("\\", "/").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
