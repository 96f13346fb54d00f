"""Theorem 1 over a run: the measured mean squared gradient, and the bound, corrected, as printed and tight, with
constants estimated from the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from airprune.results.bound import estimated_constants, left_side, not_covered, settings_of, worth_of
from airprune.results.figures.curves import new_figure, note
from airprune.results.measures import MEASURES
from airprune.results.tidy import Rows, column
from airprune.studies.claims import Judgement, Verdict
from airprune.studies.paper.claim import Tables, claims_about
from airprune.studies.paper.training import TrainingFigure
from airprune.theory.convergence import convergence_bound

# The probe of Assumption 2–4's constants costs several full passes per device and round, so one short run serves. The
# theorem is about plain SGD, and about weights that some device of every edge keeps: at 40 ms one of each is whole.
FIGURE = TrainingFigure(
    name="bound",
    title="Theorem 1",
    series={"optimal": {"diagnostics.gradients": True, "plan.deadline_s": 0.040, "train.momentum": 0.0}},
)


def rows(
    records: Sequence[dict[str, Any]],
    *,
    learning_rate: float,
    local_steps: int,
    num_weights: int,
    departures: Sequence[str] = (),
) -> Rows:
    """Returns a row per global round: running mean of ‖∇F‖²/W, the bounds, and that of Assumption 3 alone.

    T of the theorem is the number of minibatch steps a device takes in an edge round. F is the mean test loss; F(w*) is
    taken as 0, its lower limit. `departures` name what the run does that the theorem does not cover.
    """
    of_all, of_one_edge = settings_of(
        records, learning_rate=learning_rate, local_steps=local_steps, num_weights=num_weights
    )
    constants = estimated_constants(records)
    globals_ = [record for record in records if record["kind"] == "global"]
    found: Rows = []
    for q in range(1, len(globals_) + 1):
        of_all["num_global_rounds"] = of_one_edge["num_global_rounds"] = q
        found.append(
            {
                "global_round": q,
                "measured": left_side(globals_[:q], num_weights),
                "corrected": float(convergence_bound(**of_all).total),
                "paper": float(convergence_bound(**of_all, variant="paper").total),
                "tight": float(convergence_bound(**of_one_edge, variant="tight").total),
                "trivial": constants["gradient_bound"] ** 2 / num_weights,
                **constants,
                "departures": "; ".join(departures),
            }
        )
    return found


def draw(tables: Tables, caption: str) -> Figure:
    """Draws the measured gradient and the bounds."""
    table = tables["bound"]
    figure, (ax,) = new_figure(1, width=6.0, height=4.0)
    x = column(table, "global_round")
    for name, label, style, colour in (
        ("measured", "measured mean of ‖∇F‖² / W", "o-", "#000000"),
        ("corrected", "Theorem 1, corrected", "s-", "#0072B2"),
        ("paper", "Theorem 1, as printed", "^--", "#E69F00"),
        ("tight", "Theorem 1, tight", "d-", "#CC79A7"),
        ("trivial", "φ² / W: Assumption 3 alone", ":", "#009E73"),
    ):
        ax.plot(x, column(table, name), style, color=colour, label=label)
    ax.set_yscale("log")
    ax.set_xlabel(MEASURES["global_round"].label)
    ax.set_ylabel("squared gradient per weight")
    ax.legend(frameon=False, fontsize=8)
    note(figure, caption)
    return figure


def _stays_below(tables: Tables, preset: str) -> Judgement:
    rows = tables["bound"]
    last = rows[-1]
    measured, corrected, printed, tight, trivial = (
        float(last[k]) for k in ("measured", "corrected", "paper", "tight", "trivial")
    )
    departures = str(last.get("departures") or "")
    # A bound above that of bounded gradients alone is met by every run, so that no run can test it.
    is_test = not departures and (tight < trivial or measured > corrected)
    verdict = Verdict.of(measured <= corrected) if is_test else Verdict.NOT_TESTABLE
    said = worth_of(measured=measured, corrected=corrected, tight=tight, trivial=trivial) + not_covered(departures)
    if verdict is Verdict.NOT_TESTABLE:
        said += " A model of a few weights would test it: the theorem adds something only if 3ηLETW² < 1."
    reason = f"measured {measured:.3g}, bound {corrected:.3g} (as printed {printed:.3g}, tight {tight:.3g}). {said}"
    return Judgement(verdict, reason, {"measured": measured, "corrected": corrected, "paper": printed, "tight": tight})


CLAIMS = claims_about(
    "bound",
    {
        "theorem-1-holds": (
            "Theorem 1",
            "The mean squared gradient stays below the bound (corrected constants).",
            _stays_below,
        )
    },
    by_preset=False,
)
