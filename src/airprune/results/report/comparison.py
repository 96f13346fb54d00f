"""The report of several variants over several seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airprune.planning.schemes import SCHEMES
from airprune.results.findings import Arm, findings
from airprune.results.latex import summary_latex
from airprune.results.measures import MEASURES, SUMMARY
from airprune.results.report.markup import Markup, badge, code_block, details, note, paragraph, table
from airprune.results.report.page import Page, Place, Section
from airprune.results.report.reading import Run, differences, read_run, seed_runs, target_of
from airprune.results.report.sections import (
    beside,
    curve_rows,
    curves_section,
    environment_section,
    repeat_section,
    seeds_text,
)
from airprune.results.report.target import target_section
from airprune.results.statistics import diverged_words, estimate_text, summary
from airprune.results.time_to_target import default_target, evaluations
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.text import MISSING, clocks_text, counted, exact

Runs = Mapping[str, Mapping[int, Run]]


def page(folder: Path, place: Place, target: float | None = None) -> Page:
    runs: dict[str, dict[int, Run]] = {}
    for (variant, seed), path in seed_runs(folder).items():
        runs.setdefault(variant, {})[seed] = read_run(path)
    place.add_table(
        [
            row
            for variant, by_seed in runs.items()
            for seed, run in by_seed.items()
            for row in curve_rows(variant, seed, run.rounds)
        ],
        "curves.csv",
    )
    tests = {
        variant: {seed: evaluations(run.records) for seed, run in _counted(by_seed).items()}
        for variant, by_seed in runs.items()
    }
    target = target_of(_all(runs)) if target is None else target
    target = default_target(tests.values()) if target is None else target
    curves = {variant: [run.rounds for run in by_seed.values()] for variant, by_seed in runs.items()}
    about = "Mean over seeds; the band reaches from the lowest to the highest seed and ends with the shortest one."
    environment, remark = _environment(runs)
    return Page(
        kind="Comparison",
        name=folder.resolve().name,
        lead=_lead(runs),
        sections=[
            *_findings(runs),
            Section("Summary", _summary(runs, place)),
            *([] if target is None else [target_section(folder, tests, _first_scenarios(runs), place, target)]),
            curves_section(curves, place, about=about),
            Section("Differences between variants", _differences(runs)),
            Section("Runs", _runs_table(runs, place)),
            Section("Scenario", _scenario(runs)),
            environment_section(environment, remark),
            _repeat(folder, runs),
        ],
    )


def _findings(runs: Runs) -> list[Section]:
    """Begins the report with the sentences that end the comparison in a terminal."""
    scenarios = _first_scenarios(runs)
    last = {
        variant: {seed: run.rounds[-1] for seed, run in _counted(by_seed).items()} for variant, by_seed in runs.items()
    }
    arms = [Arm.of(variant, scenario, last[variant]) for variant, scenario in scenarios.items()]
    sentences = findings([arm for arm in arms if arm is not None])
    return [Section("What this comparison shows", [paragraph(sentence) for sentence in sentences])] if sentences else []


def _all(runs: Runs) -> list[Run]:
    return [run for by_seed in runs.values() for run in by_seed.values()]


def _lead(runs: Runs) -> Markup:
    everything = _all(runs)
    finished = sum(run.is_finished or bool(run.divergence) for run in everything)
    seeds = {seed for by_seed in runs.values() for seed in by_seed}
    state = "finished" if finished == len(everything) else f"unfinished: {finished} of {len(everything)} runs"
    clocks = clocks_text(RunFolder(run.path).clock_words(run.scenario) for run in everything if run.scenario)
    words = f" {counted(len(runs), 'variant')} over {counted(len(seeds), 'seed')}. {clocks}"
    return paragraph(badge(state, "good" if state == "finished" else "fair"), words)


def _counted(by_seed: Mapping[int, Run]) -> dict[int, Run]:
    """Returns the runs of the estimates: finished ones; all, if none is; none if one has diverged."""
    if any(run.divergence for run in by_seed.values()):
        return {}
    with_rounds = {seed: run for seed, run in by_seed.items() if run.rounds}
    return {seed: run for seed, run in with_rounds.items() if run.is_finished} or with_rounds


def _summary(runs: Runs, place: Place) -> list[Markup]:
    chosen = {variant: [run.rounds for run in _counted(by_seed).values()] for variant, by_seed in runs.items()}
    estimates = summary({variant: rounds for variant, rounds in chosen.items() if rounds})
    rates = {variant: scenario.train.learning_rate for variant, scenario in _first_scenarios(runs).items()}
    rates = rates if len(set(rates.values())) > 1 else {}
    rows = [
        (
            variant,
            *([f"{rates[variant]:g}" if variant in rates else MISSING] if rates else []),
            _seeds_word(by_seed, len(chosen[variant])),
            *(estimate_text(estimates.get(variant, {}).get(name), name) for name in SUMMARY),
        )
        for variant, by_seed in runs.items()
    ]
    header = ("variant", *(["learning rate"] if rates else []), "seeds", *(MEASURES[name].heading for name in SUMMARY))
    about = (
        "Last global round: mean over seeds ± half-width of the 95 % interval (Student's t). A single seed has no "
        "interval. Runs that are not finished count only where a variant has no other."
    )
    latex = summary_latex(["variant"], (([variant], found) for variant, found in estimates.items()))
    return [
        table(header, rows, label="Last global round", words=("variant", "seeds"), class_="estimates"),
        note(about, " ", place.add_text(latex, "summary.tex")),
    ]


def _seeds_word(by_seed: Mapping[int, Run], used: int) -> str:
    if num_diverged := sum(bool(run.divergence) for run in by_seed.values()):
        return diverged_words(num_diverged, len(by_seed))
    if not any(run.is_finished for run in by_seed.values()):
        return f"{used}, unfinished"
    return str(used) if used == len(by_seed) else f"{used} of {len(by_seed)}"


def _first_scenarios(runs: Runs) -> dict[str, Scenario]:
    """Returns each variant's scenario, of its lowest seed that can be read."""
    found = {}
    for variant, by_seed in runs.items():
        readable = [run.scenario for run in by_seed.values() if run.scenario is not None]
        if readable:
            found[variant] = readable[0]
    return found


def _differences(runs: Runs) -> list[Markup]:
    scenarios = _first_scenarios(runs)
    troubles = [note(text) for text in dict.fromkeys(run.trouble for run in _all(runs) if run.trouble)]
    if not scenarios:
        return [note("No scenario can be read."), *troubles]
    values = {key: found for key, found in differences(scenarios).items() if key not in ("seed", "name")}
    if not values:
        return [note("The variants' scenarios are the same but for seeds and names."), *troubles]
    rows = [(key, *map(exact, by_variant.values())) for key, by_variant in values.items()]
    header = ("key", *scenarios)
    return [table(header, rows, label="Differences between variants", words=header), *troubles]


def _runs_table(runs: Runs, place: Place) -> list[Markup]:
    rows = [
        (
            variant,
            seed,
            badge(run.state, run.badge_kind),
            place.link_to(run.path),
        )
        for variant, by_seed in runs.items()
        for seed, run in by_seed.items()
    ]
    return [
        table(("variant", "seed", "state", "folder"), rows, label="Runs", words=("variant", "state", "folder")),
        note("airprune report FOLDER makes the report of a single run."),
    ]


def _scenario(runs: Runs) -> list[Markup]:
    run = next((run for run in _all(runs) if run.scenario_text), None)
    if run is None:
        return [note("No scenario.toml can be read.")]
    return [details(f"{run.path.name}/scenario.toml", code_block(run.scenario_text))]


def _environment(runs: Runs) -> tuple[dict[str, Any], str]:
    """Returns the environment of the first run that has one, and a remark on the others."""
    known = [run.environment for run in _all(runs) if run.environment]
    if not known:
        return {}, ""
    others = [environment for environment in known if environment != known[0]]
    if not others:
        return known[0], "The same for all runs."
    keys = sorted(
        {str(key) for other in others for key in known[0].keys() | other.keys() if other.get(key) != known[0].get(key)}
    )
    return known[0], f"The machine of the first run; {counted(len(others), 'run')} differ in {', '.join(keys)}."


def _repeat(folder: Path, runs: Runs) -> Section:
    scenarios = _first_scenarios(runs)
    if not scenarios or any(RunFolder(run.path).flower() for run in _all(runs)):  # apps are not in scenarios
        return Section("Repeat it", [])
    unread = [variant for variant in runs if variant not in scenarios]
    base_name = next((name for name in scenarios if name in SCHEMES), next(iter(scenarios)))
    base = scenarios[base_name]
    base_file = next(run.path for run in runs[base_name].values() if run.scenario is not None) / "scenario.toml"
    schemes, also = [], []
    for variant, scenario in scenarios.items():
        changes = {key: theirs for key, _, theirs in base.diff(scenario) if key not in ("seed", "name")}
        if variant == scenario.plan.scheme and set(changes) <= {"plan.scheme"}:
            schemes.append(variant)
        else:
            also += [
                "--also",
                f"{variant}: {' '.join(f'{key}={_word(value)}' for key, value in changes.items())}".strip(),
            ]
    seeds = sorted({seed for by_seed in runs.values() for seed in by_seed})
    imports = {tuple(run.import_words) for run in _all(runs)}
    options = ["--schemes", ",".join(schemes), *also, "--seeds", seeds_text(seeds), "--out", beside(folder)]
    options += sorted(imports, key=len)[-1]
    return repeat_section(
        [["airprune", "compare", str(base_file), *options]],
        "A model or data set of your own, given in Python, is not part of the scenarios and must be given again.",
        *([f"Not in the command, since their scenarios cannot be read here: {', '.join(unread)}."] if unread else []),
    )


def _word(value: Any) -> str:
    """Returns a value as `--also` takes it: without blanks."""
    return exact(value).replace(", ", ",")
