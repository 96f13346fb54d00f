"""Time, bits and joules to an accuracy: the worth of the paper's halved cost if the model must be as good.

The paper compares schemes after equally many rounds. The tables here also give the cost of each run of Fig. 4 when it
first reached the profile's target accuracy, see `airprune.results.time_to_target`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from airprune.results.measures import TO_TARGET
from airprune.results.tidy import Rows, select, values
from airprune.results.time_to_target import (
    TIME,
    Costs,
    Evaluation,
    Ratio,
    costs_in,
    evaluations_in,
    target_text,
    tidy_row,
)
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.studies.claims import Judgement
from airprune.studies.claims.intervals import judge_ratio
from airprune.studies.paper.claim import Judge, Tables, claims_about
from airprune.studies.paper.profiles import Profile
from airprune.studies.paper.training import TrainingFigure, run_path
from airprune.text import MISSING

REFERENCE = "no-pruning"


def target_rows(figure: TrainingFigure, profile: Profile, seeds: Sequence[int], runs: Path) -> Rows:
    """Returns a row per finished run."""
    return [
        {"preset": preset, **tidy_row(label, seed, _tests(runs, scenario), profile.target_accuracy)}
        for preset, label, seed, scenario in figure.scenarios(profile, seeds)
    ]


def _tests(runs: Path, scenario: Scenario) -> list[Evaluation]:
    return evaluations_in(RunFolder(run_path(runs, scenario)))


def costs_of(rows: Rows, preset: str, series: str, measure: str) -> Costs:
    return costs_in(select(rows, preset=preset, series=series), measure)


def shown_rows(rows: Rows) -> list[tuple[object, ...]]:
    """Returns (preset, series, target, reached, costs …, ratio of times) as text, by preset and series."""
    found: list[tuple[object, ...]] = []
    for preset in values(rows, "preset"):
        for series in values(select(rows, preset=preset), "series"):
            costs = {measure: costs_of(rows, preset, series, measure) for measure in TO_TARGET}
            ratio = MISSING
            if series != REFERENCE:
                ratio = Ratio.of(costs[TIME], costs_of(rows, preset, REFERENCE, TIME)).text
            target = select(rows, preset=preset, series=series)[0]["target_accuracy"]
            cells = (costs[measure].text(measure) for measure in TO_TARGET)
            found.append((preset, series, _target(target), costs[TIME].reached_text, *cells, ratio))
    return found


def _target(value: object) -> str:
    return target_text(value) if isinstance(value, float) else str(value)  # a file may hold anything


def sooner(table: str, series: str) -> Judge:
    """Holds if a series reaches the target in less time than no pruning, seed by seed."""

    def judge(tables: Tables, preset: str) -> Judgement:
        rows = tables[table]
        mine, whole = (costs_of(rows, preset, name, TIME) for name in (series, REFERENCE))
        ratio = Ratio.of(mine, whole)
        target = _target(rows[0]["target_accuracy"])
        numbers = {series: _words(mine), REFERENCE: _words(whole), "ratio": ratio.text}
        sentence = f"to {target}: {series} {numbers[series]}; no pruning {numbers[REFERENCE]}"
        return judge_ratio(ratio, sentence, numbers)

    return judge


def _words(costs: Costs) -> str:
    """Returns the time as text: 0.52 ± 0.04 s, by 5 of 5 seeds; not reached, by 1 of 5 seeds."""
    return f"{costs.text(TIME)}{'' if costs.median is None else ' s'}, by {costs.reached_text} seeds"


CLAIMS = claims_about(
    "fig4_target",
    {
        "optimal-reaches-target-sooner": (
            "abstract",
            "Optimal pruning reaches the same accuracy in less time than no pruning.",
            sooner("fig4_target", "optimal"),
        )
    },
    tuned=False,
)
