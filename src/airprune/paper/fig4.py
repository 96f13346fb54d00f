"""Fig. 4: the schemes side by side: loss, accuracy, uploaded weights; and accuracy against simulated time."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from airprune.figures import curve_axes, new_figure, note, outside_legend, styles_for
from airprune.paper.tidy import Rows, last_by_seed, values
from airprune.paper.training import TrainingFigure

# Non-hierarchical pruning twice: all 25 devices over the long link to the cloud, and one edge on its own.
FIGURE = TrainingFigure(
    name="fig4",
    title="Fig. 4: schemes",
    series={
        "optimal": {"plan.deadline_s": 0.030},
        "equal-reused": {"plan.scheme": "equal-reused"},
        "equal-resolved": {"plan.scheme": "equal-resolved"},
        "no-pruning": {"plan.scheme": "no-pruning"},
        "flat": {"network.topology": "flat", "plan.deadline_s": 0.350},
        "one edge": {"network.num_edges": 1},
    },
)


def draw(rows: Rows, *, caption: str) -> Figure:
    figure, axes = new_figure(4)
    curve_axes(axes[0], rows, measure="test_loss")
    curve_axes(axes[1], rows, measure="test_accuracy")
    curve_axes(axes[2], rows, measure="test_accuracy", against="time_s")
    axes[2].set_xscale("log")
    names = values(rows, "series")
    styles = styles_for(names)
    weights = [last_by_seed(rows, "uploaded_weights", series=name).mean() / 1e6 for name in names]
    hatches = ("", "//", "\\\\", "..", "xx", "--")
    for i, name in enumerate(names):
        axes[3].bar(i, weights[i], color=styles[name].colour, hatch=hatches[i % len(hatches)], edgecolor="white")
    axes[3].set_xticks(np.arange(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes[3].set_ylabel("uploaded weights (millions)")
    outside_legend(figure, axes[0])
    note(figure, caption)
    return figure
