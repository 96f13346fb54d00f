"""Fig. 3: deadlines of 25, 30, 35 and 40 ms: loss, accuracy, and the ratio of each device of one edge."""

from __future__ import annotations

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from airprune.figures import curve_axes, new_figure, note, outside_legend
from airprune.paper.table2 import ROWS, paper_problem
from airprune.paper.tidy import Rows
from airprune.paper.training import TrainingFigure
from airprune.schemes import plan

DEADLINES_MS = (25, 30, 35, 40)


def series_label(deadline_ms: int) -> str:
    return f"{deadline_ms} ms"


FIGURE = TrainingFigure(
    name="fig3",
    title="Fig. 3: deadlines",
    series={series_label(ms): {"plan.deadline_s": ms / 1e3} for ms in DEADLINES_MS},
)


def ratio_rows(seeds: range = range(1)) -> Rows:
    """ρ of the five devices of the first edge, nearest first, by the planner alone."""
    rows: Rows = []
    for seed in seeds:
        problem = paper_problem(ROWS[0], seed)
        first = np.flatnonzero(problem.edge == 0)
        order = first[np.argsort(-problem.full_band_rate_bps[first])]
        for ms in DEADLINES_MS:
            for scheme in ("optimal", "min-max"):
                capped = dataclasses.replace(problem, deadline_s=ms / 1e3, max_pruning_ratio=0.95)
                ratio = plan(capped, scheme).pruning_ratio
                for rank, n in enumerate(order, start=1):
                    rows.append(
                        {
                            "seed": seed,
                            "deadline_ms": ms,
                            "scheme": scheme,
                            "device": rank,
                            "pruning_ratio": float(ratio[n]),
                        }
                    )
    return rows


def draw(rows: Rows, ratios: Rows, *, caption: str) -> Figure:
    figure, axes = new_figure(3)
    curve_axes(axes[0], rows, measure="test_loss")
    curve_axes(axes[1], rows, measure="test_accuracy")
    greys = ("#000000", "#0072B2", "#E69F00", "#56B4E9")
    width = 0.2
    for i, (ms, colour) in enumerate(zip(DEADLINES_MS, greys, strict=True)):
        mine = [r for r in ratios if r["deadline_ms"] == ms and r["scheme"] == "optimal" and r["seed"] == 0]
        x = np.array([r["device"] for r in mine]) + (i - 1.5) * width
        axes[2].bar(x, [r["pruning_ratio"] for r in mine], width, color=colour, label=f"{ms} ms")
    axes[2].set_xlabel("device of one edge, nearest first")
    axes[2].set_ylabel("pruning ratio")
    axes[2].legend(frameon=False, fontsize=8)
    outside_legend(figure, axes[0])
    note(figure, caption)
    return figure
