"""The section on time, bits and joules to the target accuracy, and where variants change places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airprune.results.crossover import Swept, crossover_of
from airprune.results.figures.crossover import crossover_figure
from airprune.results.latex import target_latex
from airprune.results.measures import MEASURES, TO_TARGET
from airprune.results.report.markup import Markup, note, table
from airprune.results.report.page import Place, Section
from airprune.results.time_to_target import TIME, Runs, ToTarget, reference_among, target_text, tidy_row, to_target
from airprune.runs.lines import read_json
from airprune.scenario import Scenario
from airprune.settings.toml_text import flat
from airprune.text import MISSING

_ABOUT = (
    "The first recorded test that is at least as good; nothing is interpolated. Mean over seeds ± half-width of the "
    "95 % interval if every seed got there, otherwise the median over all seeds, which is “not reached” once half of "
    "them have not. Ratios are taken seed by seed: geometric mean and 95 % interval."
)


def target_section(
    folder: Path, runs: Mapping[str, Runs], scenarios: Mapping[str, Scenario], place: Place, target: float
) -> Section:
    """Returns the section on all variants, from the tests of their runs; `scenarios` are those that can be read."""
    schemes = {variant: scenarios[variant].plan.scheme if variant in scenarios else "" for variant in runs}
    sweep = read_json(folder / "sweep.json")
    reference = reference_among(schemes) if sweep is None else None  # a sweep has one for each value
    reached = to_target(runs, target, reference=reference)
    tidy = [tidy_row(name, seed, tests, target) for name, by_seed in runs.items() for seed, tests in by_seed.items()]
    place.add_table(tidy, "target.csv")
    header = ["variant", "reached", *(MEASURES[name].heading for name in TO_TARGET)]
    header += [] if reference is None else [f"time ÷ that of {reference}"]
    rows = []
    for variant, row in reached.items():
        ratio = [] if reference is None else [row.time_ratio.text if row.time_ratio else MISSING]
        rows.append((variant, row.reached_text, *(row.costs[name].text(name) for name in TO_TARGET), *ratio))
    title = f"To {target_text(target)} test accuracy"
    latex = place.add_text(
        target_latex(["variant"], (([name], row) for name, row in reached.items()), target), "target.tex"
    )
    shown = table(header, rows, label=title, words=("variant", "reached"), class_="estimates")
    found = [shown, note(_ABOUT, " ", latex)]
    return Section(title, [*found, *_crossover(sweep, scenarios, reached, place, target)])


def _crossover(
    sweep: Any, scenarios: Mapping[str, Scenario], reached: Mapping[str, ToTarget], place: Place, target: float
) -> list[Markup]:
    """Returns the crossover of a sweep, whose note names the swept keys; nothing for a comparison."""
    keys = sweep.get("swept") if isinstance(sweep, dict) else None
    if not isinstance(keys, list):
        return []
    entries = []
    for variant, scenario in scenarios.items():
        values = flat(scenario.to_dict())
        swept = {str(key): values.get(str(key)) for key in keys}
        entries.append(Swept(values=swept, scheme=scenario.plan.scheme, costs=reached[variant].costs[TIME]))
    found = crossover_of(entries)
    if found is None:
        return []
    place.add_table(found.rows(), "crossover.csv")
    words = " ".join([f"Time to {target_text(target)} test accuracy over {found.key}.", *found.sentences])
    figure = crossover_figure(found, target)
    return [place.add_figure(figure, "crossover", alt=words, caption=words, table="crossover.csv")]
