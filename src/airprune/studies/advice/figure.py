"""Accuracy against simulated time, as forecast."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from airprune.results.figures.curves import new_figure, note, outside_legend
from airprune.results.figures.styles import styles_for
from airprune.results.measures import MEASURES
from airprune.studies.advice.checking import Outcome
from airprune.studies.advice.forecast import INTERVAL, Advice

_LEAST_SHOWN = 0.5  # of the target; what happens in the first rounds is no news


def advice_figure(advice: Advice, *, title: str = "", outcome: Outcome | None = None) -> Figure:
    """One curve and band per method; when each is forecast to reach the target, and when the best one did."""
    figure, (ax,) = new_figure(1, width=6.4, height=4.0)
    styles = styles_for([forecast.method for forecast in advice.forecasts])
    for forecast in advice.forecasts:
        style = styles[forecast.method]
        low, median, high = np.array(forecast.curve).T
        ax.plot(
            forecast.curve_time_s,
            median,
            style.line,
            color=style.colour,
            marker=style.marker,
            markevery=12,
            markersize=4,
            label=forecast.method,
        )
        ax.fill_between(forecast.curve_time_s, low, high, color=style.colour, alpha=0.15, linewidth=0)
    ax.axhline(advice.target, color="#555555", linewidth=0.8)
    ax.annotate(
        f"{advice.target:.1%}",
        (0.01, advice.target),
        xycoords=("axes fraction", "data"),
        va="bottom",
        ha="left",
        size=8,
    )
    if outcome is not None and outcome.reached and outcome.at.time_s is not None:
        colour = styles[advice.best.method].colour
        ax.plot(outcome.at.time_s, outcome.at.test_accuracy, "*", color=colour, markersize=13, label="the real run")
    ax.set_xscale("log")
    tops = [interval.high for forecast in advice.forecasts for interval in forecast.curve]
    ax.set_ylim(_LEAST_SHOWN * advice.target, min(1.0, max(advice.target, *tops) + 0.03))
    ax.set_xlabel(MEASURES["time_s"].axis_label)
    ax.set_ylabel(MEASURES["test_accuracy"].axis_label)
    outside_legend(figure, ax)
    note(figure, f"{title}forecast median and {INTERVAL:.0%} interval; clock: {advice.clock}")
    return figure
