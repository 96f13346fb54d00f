"""Figs. 2–5 once more with `frozen-pruning`: same plan and masks, but pruned weights keep their received value.

The paper's claims are judged for it as well, by the same tests, with its runs in place of those that prune by zeroing.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from airprune.results.figures.curves import curve_axes, new_figure, note
from airprune.results.tidy import Rows
from airprune.studies.claims import Judgement
from airprune.studies.paper import fig2, fig3, fig4, fig5
from airprune.studies.paper.claim import PaperClaim, Tables, claims_about
from airprune.studies.paper.to_target import REFERENCE, sooner
from airprune.studies.paper.training import TrainingFigure

METHOD = "frozen-pruning"

# By figure, the series that prune, which its claims are about; without pruning there is nothing to freeze.
_PRUNING = {
    fig2: [fig2.series_label(dataset, ratio) for dataset in fig2.DATASETS for ratio in fig2.RATIOS if ratio > 0.0],
    fig3: [fig3.series_label(ms) for ms in fig3.DEADLINES_MS],
    fig4: ["optimal", "flat", "one edge"],
    fig5: [fig5.series_label(partition, "optimal") for partition in fig5.PARTITIONS],
}


def _label(figure: str, series: str) -> str:
    return f"{figure}: {series}"


FIGURE = TrainingFigure(
    name="frozen",
    title="Figs. 2–5 with frozen weights",
    series={
        _label(module.FIGURE.name, label): {**module.FIGURE.series[label], "method": METHOD}
        for module, labels in _PRUNING.items()
        for label in labels
    },
)
# Compared by time, bits and joules to the target accuracy.
COMPARED = TrainingFigure(
    name="frozen_target",
    title="Fig. 4 with frozen weights",
    series={
        METHOD: FIGURE.series[_label("fig4", "optimal")],
        "optimal": fig4.FIGURE.series["optimal"],
        REFERENCE: fig4.FIGURE.series[REFERENCE],
    },
)


def draw(tables: Tables, caption: str) -> Figure:
    """Draws accuracy under fixed ratios, over simulated time under deadlines, and on non-IID data."""
    figure, axes = new_figure(3)
    shown = ("fig2", "global_round"), ("fig3", "time_s"), ("fig5", "global_round")
    for ax, (name, against) in zip(axes, shown, strict=True):
        mine = [
            row for row in in_place(name, [], tables["frozen"]) if not row["series"].startswith("mnist")
        ]  # the easier data
        curve_axes(ax, mine, measure="test_accuracy", against=against)
        ax.legend(frameon=False, fontsize=6)
        ax.set_title(f"{name.replace('fig', 'Fig. ')}, frozen", fontsize=10)
    note(figure, caption)
    return figure


def in_place(figure: str, rows: Rows, frozen: Rows) -> Rows:
    """Returns a figure's table with frozen runs in place of those that zeroed."""
    prefix = _label(figure, "")
    mine = [{**row, "series": row["series"].removeprefix(prefix)} for row in frozen if row["series"].startswith(prefix)]
    exchanged = {row["series"] for row in mine}
    return [row for row in rows if row["series"] not in exchanged] + mine


def _within_a_sentence(text: str) -> str:
    """Returns a sentence without its first capital, unless that begins an abbreviation."""
    return text if text[1].isupper() else text[0].lower() + text[1:]


def _frozen(claim: PaperClaim) -> PaperClaim:
    (figure,) = claim.tables

    def judge(tables: Tables, preset: str) -> Judgement:
        return claim.judge({figure: in_place(figure, tables[figure], tables["frozen"])}, preset)

    return PaperClaim(
        name=f"frozen-{claim.name}",
        where=f"{claim.where}; frozen",
        text=f"With frozen weights: {_within_a_sentence(claim.text)}",
        tables=(figure, "frozen"),
        judge=judge,
        tuned=claim.tuned,
    )


CLAIMS = tuple(_frozen(claim) for module in _PRUNING for claim in module.CLAIMS if claim.by_preset) + claims_about(
    "frozen_target",
    {
        "frozen-reaches-target-sooner": (
            "abstract; frozen",
            "With frozen weights, pruning reaches the same accuracy in less time than no pruning.",
            sooner("frozen_target", METHOD),
        )
    },
    tuned=False,
)
