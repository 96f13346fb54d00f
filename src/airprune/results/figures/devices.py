"""The devices of one edge round side by side: their times against the deadline, and one value of each."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from airprune.results.figures.curves import TARGET_COLOUR, new_figure, outside_legend, plain_label
from airprune.results.measures import MEASURES
from airprune.results.report.reading import MAX_BARS, EdgeRound

_COMPUTE = "#E69F00"
_UPLINK = "#0072B2"
_LEFT_OUT = "#BBBBBB"
# A deadline so many times as far away as the slowest device is not drawn.
_FAR = 50.0


def timeline(devices: EdgeRound, *, deadline_s: float | None) -> Figure:
    """Draws compute and uplink of every device, one after the other, against the deadline."""
    chosen = devices.slowest(MAX_BARS)
    figure, ax = _bars_figure(devices, chosen)
    compute, uplink = (np.nan_to_num(values[chosen]) for values in (devices.compute_s, devices.uplink_s))
    blocked = np.array([devices.fate[i] == "blocked" for i in chosen])
    compute, uplink = np.where(blocked, 0.0, compute), np.where(blocked, 0.0, uplink)
    longest = float(np.max(compute + uplink))
    if deadline_s is not None and deadline_s > _FAR * longest > 0.0:
        deadline_s = None  # bars would be too short to be seen
    longest = max(longest, deadline_s or 0.0)
    scale, unit = (1e3, "ms") if longest < 1.0 else (1.0, "s")
    place = np.arange(len(chosen))
    ax.barh(place, compute * scale, color=_COMPUTE, label=MEASURES["compute_s"].label, height=0.7)
    ax.barh(place, uplink * scale, left=compute * scale, color=_UPLINK, label=MEASURES["uplink_s"].label, height=0.7)
    if deadline_s is not None:
        ax.axvline(deadline_s * scale, color=TARGET_COLOUR, linestyle="--", linewidth=1.5, label="deadline")
    for y, i in enumerate(chosen):
        if devices.fate[i] != "ok":
            end = (compute + uplink)[y] * scale
            ax.text(end, y, f" {plain_label(devices.fate[i])}", va="center", fontsize=7, color="#333333")
    if longest > 0:
        ax.set_xlim(0, longest * scale * 1.18)
    ax.set_xlabel(f"time within the edge round ({unit})")
    outside_legend(figure, ax, most_columns=3, above=True)
    return figure


def device_bars(devices: EdgeRound, values: np.ndarray, *, label: str, colour: str) -> Figure:
    """Draws one value in [0, 1] per device; grey for excluded ones."""
    chosen = devices.slowest(MAX_BARS)
    figure, ax = _bars_figure(devices, chosen)
    colours = [colour if devices.fate[i] == "ok" else _LEFT_OUT for i in chosen]
    ax.barh(np.arange(len(chosen)), np.nan_to_num(values[chosen]), color=colours, height=0.7)
    ax.set_xlabel(label)
    return figure


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
