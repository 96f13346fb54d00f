"""Accuracy against simulated time, as forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from airprune.results.figures.curves import draw_band, draw_line, new_figure, note, outside_legend
from airprune.results.figures.styles import styles_for
from airprune.results.measures import MEASURES

_LEAST_SHOWN = 0.5  # of the target; what happens in the first rounds is no news
_MARKED_EVERY = 12


class Band(NamedTuple):
    """A forecast over time.

    Attributes:
      accuracy: lowest, median and highest at each time.
    """

    time_s: np.ndarray
    accuracy: Sequence[tuple[float, float, float]]


class RealRun(NamedTuple):
    """The time at which a method really had an accuracy."""

    method: str
    time_s: float
    accuracy: float


def forecast_figure(
    bands: Mapping[str, Band], target: float, *, caption: str, real_run: RealRun | None = None
) -> Figure:
    """Draws one curve and band per method against the target; a star where the real run reached it."""
    figure, (ax,) = new_figure(1, width=6.4, height=4.0)
    styles = styles_for(list(bands))
    for method, band in bands.items():
        low, median, high = np.array(band.accuracy).T
        draw_line(ax, band.time_s, median, styles[method], method, every=_MARKED_EVERY)
        draw_band(ax, band.time_s, low, high, styles[method])
    ax.axhline(target, color="#555555", linewidth=0.8)
    ax.annotate(f"{target:.1%}", (0.01, target), xycoords=("axes fraction", "data"), va="bottom", ha="left", size=8)
    if real_run is not None:
        colour = styles[real_run.method].colour
        ax.plot(real_run.time_s, real_run.accuracy, "*", color=colour, markersize=13, label="the real run")
    ax.set_xscale("log")
    top = max(high for band in bands.values() for _, _, high in band.accuracy)
    ax.set_ylim(_LEAST_SHOWN * target, min(1.0, max(target, top) + 0.03))
    ax.set_xlabel(MEASURES["time_s"].axis_label)
    ax.set_ylabel(MEASURES["test_accuracy"].axis_label)
    outside_legend(figure, ax)
    note(figure, caption)
    return figure
