"""Fig. 3: deadlines of 25, 30, 35 and 40 ms: loss, accuracy, and the ratio of each device of one edge."""

from __future__ import annotations

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from airprune.planning.problem import CLASSIFIER_CAP
from airprune.planning.schemes import plan
from airprune.results.figures.curves import curve_axes, new_figure, note, outside_legend
from airprune.results.figures.styles import styles_for
from airprune.results.measures import MEASURES
from airprune.results.tidy import Rows, column, select
from airprune.studies.claims import Judgement, Verdict
from airprune.studies.paper.claim import Judge, Tables, claims_about, series_trend
from airprune.studies.paper.table2 import ROWS, paper_problem
from airprune.studies.paper.training import TrainingFigure

DEADLINES_MS = (25, 30, 35, 40)


def series_label(deadline_ms: int) -> str:
    return f"{deadline_ms} ms"


FIGURE = TrainingFigure(
    name="fig3",
    title="Fig. 3: deadlines",
    series={series_label(ms): {"plan.deadline_s": ms / 1e3} for ms in DEADLINES_MS},
)


def ratio_rows(seeds: range = range(1)) -> Rows:
    """Returns ρ of the five devices of the first edge, nearest first, by the planner alone."""
    rows: Rows = []
    for seed in seeds:
        problem = paper_problem(ROWS[0], seed)
        first = np.flatnonzero(problem.edge == 0)
        order = first[np.argsort(-problem.full_band_rate_bps[first])]
        for ms in DEADLINES_MS:
            for scheme in ("optimal", "min-max"):
                capped = dataclasses.replace(problem, deadline_s=ms / 1e3, max_pruning_ratio=CLASSIFIER_CAP)
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


def draw(tables: Tables, caption: str) -> Figure:
    """Draws loss and accuracy by deadline, and the ratio of each device."""
    rows, ratios = tables["fig3"], tables["fig3_ratios"]
    figure, axes = new_figure(3)
    curve_axes(axes[0], rows, measure="test_loss")
    curve_axes(axes[1], rows, measure="test_accuracy")
    styles = styles_for([series_label(ms) for ms in DEADLINES_MS])
    width = 0.2
    for i, ms in enumerate(DEADLINES_MS):
        mine = [r for r in ratios if r["deadline_ms"] == ms and r["scheme"] == "optimal" and r["seed"] == 0]
        x = np.array([r["device"] for r in mine]) + (i - 1.5) * width
        axes[2].bar(x, [r["pruning_ratio"] for r in mine], width, color=styles[series_label(ms)].colour)
    axes[2].set_xlabel("device of one edge, nearest first")
    axes[2].set_ylabel(MEASURES["pruning_ratio"].label)
    outside_legend(figure, axes[0])
    note(figure, caption)
    return figure


def _deadline_trend(measure: str, rising: bool) -> Judge:
    def judge(tables: Tables, preset: str) -> Judgement:
        rows = select(tables["fig3"], preset=preset)
        return series_trend(rows, measure, {label: label for label in FIGURE.series}, rising=rising)

    return judge


def _longer_deadline_prunes_less(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig3_ratios"], scheme="optimal")
    ratio = np.array([column(select(rows, deadline_ms=float(ms)), "pruning_ratio") for ms in DEADLINES_MS])
    worst = float(np.max(np.diff(ratio, axis=0)))
    numbers = {f"{ms} ms": f"{r.mean():.3f}" for ms, r in zip(DEADLINES_MS, ratio, strict=True)}
    holds = worst <= 1e-9 and ratio[-1].mean() < ratio[0].mean()
    listed = ", ".join(f"{key}: {value}" for key, value in numbers.items())
    reason = f"mean ratio of the edge's devices {listed}; no single device is pruned more at a longer deadline."
    if not holds:
        reason = f"mean ratio {listed}; a device's ratio grows by up to {worst:.3f} from one deadline to the next."
    return Judgement(Verdict.of(holds), reason, numbers)


CLAIMS = claims_about(
    "fig3",
    {
        "longer-deadline-lower-loss": (
            "Fig. 3(a)",
            "A longer deadline gives a lower test loss.",
            _deadline_trend("test_loss", rising=False),
        ),
        "longer-deadline-higher-accuracy": (
            "Fig. 3(b)",
            "A longer deadline gives a higher test accuracy.",
            _deadline_trend("test_accuracy", rising=True),
        ),
    },
    tuned=False,
) + claims_about(
    "fig3_ratios",
    {
        "longer-deadline-prunes-less": (
            "Fig. 3(c)",
            "A longer deadline needs smaller pruning ratios.",
            _longer_deadline_prunes_less,
        )
    },
    by_preset=False,
)
