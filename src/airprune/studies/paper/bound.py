"""Theorem 1 over a run: the measured mean squared gradient, and the bound, corrected and as printed, with constants
estimated from the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from airprune.results.figures.curves import new_figure, note
from airprune.results.measures import MEASURES
from airprune.results.tidy import Rows, column
from airprune.studies.claims import Judgement, Verdict
from airprune.studies.paper.claim import Tables, claims_about
from airprune.studies.paper.training import TrainingFigure
from airprune.theory.convergence import convergence_bound

# The probe of Assumption 2–4's constants costs several full passes per device and round, so one short run serves.
FIGURE = TrainingFigure(
    name="bound",
    title="Theorem 1",
    series={"optimal": {"diagnostics.gradients": True, "plan.deadline_s": 0.030}},
)


def estimated_constants(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns L, φ, σ̂, D and Γ* as the largest (Γ*: smallest) values in the edge rounds of a run with diagnostics."""
    edges = [record for record in records if record["kind"] == "edge"]

    def largest(name: str) -> float:
        return max(value for record in edges for value in record[name] if value is not None)

    pruned = [
        error / ratio
        for record in edges
        for error, ratio in zip(record["pruning_error_sq"], record["pruning_ratio"], strict=True)
        if ratio
    ]
    return {
        "smoothness": largest("smoothness"),
        "gradient_bound": float(np.sqrt(largest("gradient_sq_max"))),
        "gradient_noise": float(np.sqrt(largest("gradient_noise_sq"))),
        "pruning_noise": float(np.sqrt(max(pruned, default=0.0))),
        "min_coverage": min(item["min_count"] for record in edges for item in record["coverage"]),
    }


def rows(records: Sequence[dict[str, Any]], *, learning_rate: float, local_steps: int, num_weights: int) -> Rows:
    """Returns a row per global round: running mean of ‖∇F‖²/W, the two bounds, and that of Assumption 3 alone.

    T of the theorem is the number of minibatch steps a device takes in an edge round. F is the mean test loss; F(w*) is
    taken as 0, its lower limit.
    """
    constants = estimated_constants(records)
    globals_ = [record for record in records if record["kind"] == "global"]
    edges = [record for record in records if record["kind"] == "edge"]
    edge_rounds = len(edges) // len(globals_)
    ratio_sum = (
        float(np.mean([sum(r for r in record["pruning_ratio"] if r is not None) for record in edges])) * edge_rounds
    )
    start = edges[0]["train_loss"]
    found: Rows = []
    for q in range(1, len(globals_) + 1):
        settings = {
            "initial_loss_gap": start,
            "learning_rate": learning_rate,
            "num_global_rounds": q,
            "num_edge_rounds": edge_rounds,
            "num_local_iterations": local_steps,
            "num_weights": num_weights,
            "num_devices": len(edges[0]["device"]),
            "pruning_ratio_sum": ratio_sum,
            **constants,
        }
        found.append(
            {
                "global_round": q,
                "measured": float(np.mean([r["gradient_sq"] for r in globals_[:q]])) / num_weights,
                "corrected": float(convergence_bound(**settings).total),
                "paper": float(convergence_bound(**settings, variant="paper").total),
                "trivial": constants["gradient_bound"] ** 2 / num_weights,
                **constants,
            }
        )
    return found


def draw(tables: Tables, caption: str) -> Figure:
    """Draws the measured gradient and both bounds."""
    table = tables["bound"]
    figure, (ax,) = new_figure(1, width=6.0, height=4.0)
    x = column(table, "global_round")
    for name, label, style, colour in (
        ("measured", "measured mean of ‖∇F‖² / W", "o-", "#000000"),
        ("corrected", "Theorem 1, corrected", "s-", "#0072B2"),
        ("paper", "Theorem 1, as printed", "^--", "#E69F00"),
        ("trivial", "φ² / W: Assumption 3 alone", ":", "#009E73"),
    ):
        ax.plot(x, column(table, name), style, color=colour, label=label)
    ax.set_yscale("log")
    ax.set_xlabel(MEASURES["global_round"].label)
    ax.set_ylabel("squared gradient per weight")
    ax.legend(frameon=False, fontsize=8)
    note(figure, caption)
    return figure


def _bound_is_vacuous(tables: Tables, preset: str) -> Judgement:
    rows = tables["bound"]
    last = rows[-1]
    measured, corrected, printed = (float(last[k]) for k in ("measured", "corrected", "paper"))
    trivial = float(last["trivial"])
    verdict = Verdict.of(measured <= corrected)
    reason = (
        f"measured {measured:.3g}, bound {corrected:.3g} (as printed {printed:.3g}); the assumption on gradients alone "
        f"gives {trivial:.3g}, so the theorem says {'less' if corrected > trivial else 'more'} than its own premise."
    )
    return Judgement(verdict, reason, {"measured": measured, "corrected": corrected, "paper": printed})


CLAIMS = claims_about(
    "bound",
    {
        "theorem-1-holds": (
            "Theorem 1",
            "The mean squared gradient stays below the bound (corrected constants).",
            _bound_is_vacuous,
        )
    },
    by_preset=False,
)
