"""Fig. 5: IID against non-IID data, with and without pruning."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from airprune.results.figures.curves import curve_axes, new_figure, note, outside_legend
from airprune.results.tidy import last_by_seed, select
from airprune.studies.claims import Judgement, combined
from airprune.studies.claims.decision import DELTA
from airprune.studies.claims.intervals import judge_better
from airprune.studies.paper.claim import Tables, claims_about
from airprune.studies.paper.training import TrainingFigure

PARTITIONS: dict[str, dict[str, Any]] = {
    "IID": {"data.partition": "iid"},
    "2 classes": {"data.partition": "shards", "data.classes_per_device": 2},
    "Dirichlet 0.5": {"data.partition": "dirichlet", "data.alpha": 0.5},
}
SCHEMES = ("optimal", "no-pruning")


def series_label(partition: str, scheme: str) -> str:
    return f"{partition}, {scheme}"


FIGURE = TrainingFigure(
    name="fig5",
    title="Fig. 5: IID and non-IID",
    series={
        series_label(partition, scheme): {**changes, "plan.scheme": scheme}
        for partition, changes in PARTITIONS.items()
        for scheme in SCHEMES
    },
)


def draw(tables: Tables, caption: str) -> Figure:
    """Draws loss and accuracy by partition and scheme."""
    rows = tables["fig5"]
    figure, axes = new_figure(2, width=5.0)
    curve_axes(axes[0], rows, measure="test_loss")
    curve_axes(axes[1], rows, measure="test_accuracy")
    outside_legend(figure, axes[0])
    note(figure, caption)
    return figure


def _iid_wins(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig5"], preset=preset)
    parts = []
    for scheme in SCHEMES:
        iid = last_by_seed(rows, "test_accuracy", series=series_label("IID", scheme))
        for partition in list(PARTITIONS)[1:]:
            other = last_by_seed(rows, "test_accuracy", series=series_label(partition, scheme))
            parts.append(judge_better(iid, other, delta=DELTA["test_accuracy"], what=scheme, names=("IID", partition)))
    return combined(parts)


CLAIMS = claims_about(
    "fig5",
    {"iid-beats-non-iid": ("Fig. 5", "IID data gives better accuracy than non-IID data.", _iid_wins)},
    tuned=False,
)
