"""Fig. 4: the schemes side by side: loss, accuracy, uploaded weights; and accuracy against simulated time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from airprune.results.figures.curves import curve_axes, new_figure, note, outside_legend
from airprune.results.figures.styles import styles_for
from airprune.results.measures import MEASURES
from airprune.results.statistics import Estimate
from airprune.results.tidy import last_by_seed, select, values
from airprune.studies.claims import Judgement, Verdict, combined
from airprune.studies.claims.decision import DELTA, ERROR, Aim, Decision, interval_of
from airprune.studies.claims.intervals import ONE_SEED, judge_better, judge_difference
from airprune.studies.paper import fair
from airprune.studies.paper.claim import Judge, Tables, claims_about
from airprune.studies.paper.training import TrainingFigure

# Non-hierarchical pruning twice: all 25 devices over the long link to the cloud, and one edge on its own.
FIGURE = TrainingFigure(
    name="fig4",
    title="Fig. 4: schemes",
    series={
        "optimal": {"plan.deadline_s": 0.030},
        "equal-reused": {"plan.scheme": "equal-reused"},
        "equal-resolved": {"plan.scheme": "equal-resolved"},
        "no-pruning": {"plan.scheme": "no-pruning"},
        "flat": {"topology.name": "flat", "plan.deadline_s": 0.350},
        "one edge": {"network.num_edges": 1},
    },
)


def draw(tables: Tables, caption: str) -> Figure:
    """Draws loss, accuracy and uploaded weights of the schemes."""
    rows = tables["fig4"]
    figure, axes = new_figure(2, rows=2)
    curve_axes(axes[0], rows, measure="test_loss")
    curve_axes(axes[1], rows, measure="test_accuracy")
    curve_axes(axes[2], rows, measure="test_accuracy", against="time_s")
    names = values(rows, "series")
    styles = styles_for(names)
    uploaded = MEASURES["uploaded_weights"]
    weights = [last_by_seed(rows, uploaded.name, series=name).mean() * uploaded.scale for name in names]
    hatches = ("", "//", "\\\\", "..", "xx", "--")
    for i, name in enumerate(names):
        axes[3].bar(i, weights[i], color=styles[name].colour, hatch=hatches[i % len(hatches)], edgecolor="white")
    axes[3].set_xticks(np.arange(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes[3].set_ylabel(uploaded.heading)
    outside_legend(figure, axes[0])
    note(figure, caption)
    return figure


# "Close" and "about 50 %" need a number before the numbers are seen.
CLOSE_ACCURACY = 0.02
ABOUT_HALF = (0.40, 0.60)


def _close_to_no_pruning(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig4"], preset=preset)
    found = judge_difference(
        last_by_seed(rows, "test_accuracy", series="optimal"),
        last_by_seed(rows, "test_accuracy", series="no-pruning"),
        aim=Aim.NO_WORSE,
        delta=CLOSE_ACCURACY,
        what="accuracy",
        names=("optimal", "no pruning"),
    )
    if found.verdict is not Verdict.FAILS:
        return found
    why = (
        "At 30 ms the exact optimum of the sum of ratios prunes the far devices of an edge to the cap and leaves the "
        f"near ones whole, at a small learning rate. {fair.sentence(tables.get('fair', []), preset)}"
    )
    return replace(found, reason=f"{found.reason} {why}".strip())


def _about_half(measure: str, what: str) -> Judge:
    def judge(tables: Tables, preset: str) -> Judgement:
        rows = select(tables["fig4"], preset=preset)
        saved = 1.0 - last_by_seed(rows, measure, series="optimal") / last_by_seed(rows, measure, series="no-pruning")
        mean, lowest, highest = interval_of(saved, 1.0 - ERROR)
        low, high = ABOUT_HALF
        numbers = {"saved": Estimate.of(list(saved)).text(".2f", scale=100)}
        sentence = f"{what} falls by {numbers['saved']} % (about half: {low:.0%} to {high:.0%})"
        if len(saved) < 2:
            return Judgement(Verdict.UNDECIDED, f"{sentence}; {ONE_SEED}.", numbers)
        is_decided = lowest >= low and highest <= high, highest < low or lowest > high
        verdict = Verdict.of(is_decided[0], partly=mean > 0.25) if any(is_decided) else Verdict.UNDECIDED
        ending = "" if any(is_decided) else f"; the interval contains {low if lowest < low else high:.0%}"
        decision = Decision(
            verdict=verdict,
            seeds=len(saved),
            effect=mean,
            low=lowest,
            high=highest,
            delta=(high - low) / 2.0,
            unit="share saved",
        )
        return Judgement(verdict, f"{sentence}{ending}.", numbers, decision)

    return judge


def _hierarchy_wins(tables: Tables, preset: str) -> Judgement:
    rows = select(tables["fig4"], preset=preset)
    optimal = last_by_seed(rows, "test_accuracy", series="optimal")
    return combined(
        [
            judge_better(
                optimal,
                last_by_seed(rows, "test_accuracy", series=other),
                delta=DELTA["test_accuracy"],
                much=True,
                what=f"against {meaning}",
                names=("hierarchical", other),
            )
            for other, meaning in (
                ("one edge", "one edge with its own five devices"),
                ("flat", "all devices on the cloud"),
            )
        ]
    )


CLAIMS = (
    claims_about(
        "fig4",
        {
            "optimal-close-to-no-pruning": (
                "Fig. 4(b), abstract",
                "Optimal pruning at 30 ms is about as accurate as no pruning.",
                _close_to_no_pruning,
            )
        },
        tuned=False,
    )
    + claims_about(
        "fig4",
        {
            "latency-halved": (
                "Section VI, conclusions",
                "Optimal pruning needs about 50 % less time than no pruning.",
                _about_half("time_s", "simulated time of the whole run"),
            ),
            "communication-halved": (
                "Fig. 4(c), abstract",
                "Optimal pruning uploads about 50 % fewer weights than no pruning.",
                _about_half("uploaded_weights", "the number of uploaded weights"),
            ),
        },
    )
    + claims_about(
        "fig4",
        {
            "hierarchy-beats-flat": (
                "Fig. 4(a), (b)",
                "Hierarchical pruning is much more accurate than pruning without hierarchy.",
                _hierarchy_wins,
            )
        },
        tuned=False,
    )
)
