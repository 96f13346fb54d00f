"""Fig. 2: test loss and accuracy under fixed pruning ratios, on MNIST and Fashion-MNIST."""

from __future__ import annotations

from matplotlib.figure import Figure

from airprune.results.figures.curves import curve_axes, new_figure, note, outside_legend
from airprune.results.measures import MEASURES
from airprune.results.tidy import last_by_seed, select
from airprune.studies.claims import Judgement, combined
from airprune.studies.paper.claim import Judge, Tables, claims_about, series_trend
from airprune.studies.paper.training import TrainingFigure

RATIOS = (0.0, 0.3, 0.5, 0.7, 0.9)
DATASETS = ("mnist", "fashion-mnist")


def series_label(dataset: str, ratio: float) -> str:
    return f"{dataset}, ρ = {ratio:g}"


# A deadline that no device misses, and bounds that leave one ratio.
FIGURE = TrainingFigure(
    name="fig2",
    title="Fig. 2: fixed pruning ratios",
    series={
        series_label(dataset, ratio): {
            "data.name": dataset,
            "plan.deadline_s": 1.0,
            "plan.min_pruning_ratio": ratio,
            "plan.max_pruning_ratio": max(ratio, 1e-9),
        }
        for dataset in DATASETS
        for ratio in RATIOS
    },
)


def draw(tables: Tables, caption: str) -> Figure:
    """Draws the loss per global round on either data set, and the final accuracy by ratio."""
    rows = tables["fig2"]
    figure, axes = new_figure(3)
    for ax, dataset in zip(axes, DATASETS, strict=False):
        mine = [row for row in rows if row["series"].startswith(f"{dataset},")]
        shortened = [{**row, "series": row["series"].split(", ")[1]} for row in mine]
        curve_axes(ax, shortened, measure="test_loss")
        ax.set_title(dataset, fontsize=10)
    for dataset, marker, line in zip(DATASETS, "os", ("-", "--"), strict=True):
        accuracy = [last_by_seed(rows, "test_accuracy", series=series_label(dataset, r)).mean() for r in RATIOS]
        axes[2].plot(
            RATIOS, accuracy, line, marker=marker, color="#000000" if marker == "o" else "#0072B2", label=dataset
        )
    axes[2].set_xlabel(MEASURES["pruning_ratio"].label)
    axes[2].set_ylabel(f"final {MEASURES['test_accuracy'].label}")
    axes[2].legend(frameon=False, fontsize=8)
    outside_legend(figure, axes[0])
    note(figure, caption)
    return figure


def _ratio_trend(measure: str, rising: bool) -> Judge:
    def judge(tables: Tables, preset: str) -> Judgement:
        rows = select(tables["fig2"], preset=preset)
        parts = []
        for dataset in DATASETS:
            series = {f"ρ = {ratio:g}": series_label(dataset, ratio) for ratio in RATIOS}
            parts.append(series_trend(rows, measure, series, rising=rising, about=f"{dataset}, "))
        return combined(parts)

    return judge


CLAIMS = claims_about(
    "fig2",
    {
        "loss-grows-with-ratio": (
            "Fig. 2(a), (b)",
            "Test loss grows with the pruning ratio on MNIST and Fashion-MNIST.",
            _ratio_trend("test_loss", rising=True),
        ),
        "accuracy-falls-with-ratio": (
            "Fig. 2(c)",
            "Test accuracy falls as the pruning ratio grows.",
            _ratio_trend("test_accuracy", rising=False),
        ),
    },
    tuned=False,
)
