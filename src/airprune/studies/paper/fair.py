"""Fig. 4 once more with fair shares and larger learning rates: does pruning cost accuracy, or its allocation?

The sum of ratios is least if some devices are pruned to the cap. Shares that equalise the ratios of an edge (`min-max`)
or add the least variance (`variance`) prune as much in all. The rates are those that a recorded league
chose on held-out images: 0.1 for `optimal` and `variance`, 0.03 without pruning. `min-max` was not in that league and
takes 0.1 as well, so the comparison does not count as tuned.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from airprune.results.figures.curves import curve_axes, new_figure, note, outside_legend
from airprune.results.tidy import Rows, last_by_seed, select, values
from airprune.studies.claims import Judgement
from airprune.studies.claims.decision import DELTA, Aim
from airprune.studies.claims.intervals import judge_difference, points_text
from airprune.studies.paper.claim import Tables, claims_about
from airprune.studies.paper.training import TrainingFigure

PRUNING_RATE, WHOLE_RATE = 0.1, 0.03
WHOLE = "no-pruning"
FIGURE = TrainingFigure(
    name="fair",
    title="Fig. 4 with fair shares",
    series={
        **{
            scheme: {"plan.scheme": scheme, "plan.deadline_s": 0.030, "train.learning_rate": PRUNING_RATE}
            for scheme in ("min-max", "variance", "optimal")
        },
        WHOLE: {"plan.scheme": WHOLE, "train.learning_rate": WHOLE_RATE},
    },
)


def draw(tables: Tables, caption: str) -> Figure:
    """Draws accuracy per global round and over simulated time."""
    figure, axes = new_figure(2, width=5.0)
    curve_axes(axes[0], tables["fair"], measure="test_accuracy")
    curve_axes(axes[1], tables["fair"], measure="test_accuracy", against="time_s")
    outside_legend(figure, axes[0])
    note(figure, caption)
    return figure


def sentence(rows: Rows, preset: str) -> str:
    """Returns what fair shares at a larger learning rate lose; empty without their runs."""
    mine = select(rows, preset=preset) if rows else []
    if not {"min-max", WHOLE} <= set(values(mine, "series") if mine else []):
        return ""
    fair, whole = (last_by_seed(mine, "test_accuracy", series=name) for name in ("min-max", WHOLE))
    return (
        f"With fair shares (min-max) and larger learning rates ({PRUNING_RATE:g}, without pruning {WHOLE_RATE:g}) the "
        f"paper's masks differ from no pruning by {points_text(fair - whole)} points."
    )


def _fair_is_close(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fair"], preset=preset)
    fair, whole = (last_by_seed(rows, "test_accuracy", series=name) for name in ("min-max", WHOLE))
    names, delta = ("min-max", "no pruning"), DELTA["test_accuracy"]
    return judge_difference(fair, whole, aim=Aim.NO_WORSE, delta=delta, what="accuracy", names=names)


CLAIMS = claims_about(
    "fair",
    {
        "fair-shares-close-to-no-pruning": (
            "Fig. 4(b), abstract; fair shares",
            "With shares that equalise pruning ratios, pruning at 30 ms is about as accurate as no pruning.",
            _fair_is_close,
        )
    },
    tuned=False,
)
