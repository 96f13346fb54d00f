"""`airprune compare`: schemes side by side over several seeds."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.durations import tell_duration
from airprune.cli.estimates import estimates_json, estimates_table
from airprune.cli.options import Engine, ScenarioName, Scheduler, TableAsJson, Target, Tls, Workers
from airprune.cli.progress import STOPPED, watched
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.target import target_table
from airprune.errors import UsageError
from airprune.measures import DRAWN

if TYPE_CHECKING:
    from airprune.reaching import ToTarget
    from airprune.runs.compare import Variant
    from airprune.scenario import Scenario

MAX_RUNS = 10_000


def compare(
    scenario: ScenarioName,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes that apply to all, e.g. `seed=3`.")
    ] = None,
    schemes: Annotated[
        str | None, typer.Option(help="Schemes to compare, separated by commas; by default optimal,no-pruning.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods (`airprune methods`) to compare, separated by commas.")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="One more variant, `NAME: key=value key=value`; may be given several times."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. `0-4` or `1,5,9`.")] = "0",
    target: Target = None,
    out: Annotated[Path, typer.Option(help="Folder for all runs, the table and the curves.")] = Path("runs/compare"),
    engine: Engine = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    as_json: TableAsJson = False,
) -> None:
    """Compare schemes or methods over seeds on the same network, samples and fading; finished runs are not repeated.

    Example: `airprune compare smoke --methods adaptive-pruning,frozen-pruning,fp32 --seeds 0-2`
    """
    base = scenario_from(scenario, overrides or [], engine=engine, workers=workers, scheduler=scheduler, tls=tls)
    if schemes is None:
        schemes = "" if methods is not None else "optimal,no-pruning"
    variants = variants_of(base, _names(schemes), _names(methods or ""), also or [])
    chosen = parse_seeds(seeds)
    if len(variants) * len(chosen) > MAX_RUNS:
        raise UsageError(
            f"--seeds and the variants ask for {len(variants) * len(chosen):,} runs; at most {MAX_RUNS:,}."
        )
    for variant, seed in itertools.product(variants, chosen):
        if (folder := variant.folder(out, seed)).has_run:
            folder.check_scenario(variant.scenario.with_("seed", seed))

    from airprune.estimates import summary
    from airprune.report import write_report
    from airprune.runs.compare import curves

    run_all(variants, chosen, out)
    results = curves(variants, chosen, out)
    table = summary(results)
    target = base.rounds.target_accuracy if target is None else target
    reached = {} if target is None else _reached(variants, chosen, out, target)
    title = f"{base.name}, {len(chosen)} seed{'s' if len(chosen) > 1 else ''}"
    _draw(results, out, title=title, target=target)
    if as_json:
        rows = {name: estimates_json(row) for name, row in table.items()}
        print_json({name: row | _target_json(reached.get(name)) for name, row in rows.items()})
        return
    clocks = [variant.scenario.clock.words for variant in variants]
    stdout_console().print(estimates_table(["variant"], (([name], row) for name, row in table.items()), clocks=clocks))
    if target is not None:
        stdout_console().print()
        stdout_console().print(target_table(["variant"], (([name], row) for name, row in reached.items()), target))
    say(f"Report: {write_report(out, target=target)}")


def _reached(variants: Sequence[Variant], seeds: Sequence[int], out: Path, target: float) -> dict[str, ToTarget]:
    """What it took every variant, against the one that does not prune, else the first."""
    from airprune.reaching import reference_among, to_target
    from airprune.runs.compare import evaluations

    reference = reference_among({variant.name: variant.scenario.plan.scheme for variant in variants})
    return to_target(evaluations(variants, seeds, out), target, reference=reference)


def _target_json(reached: ToTarget | None) -> dict[str, Any]:
    return {} if reached is None else {"to_target": reached.as_json()}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def variants_of(base: Scenario, schemes: Sequence[str], methods: Sequence[str], also: Sequence[str]) -> list[Variant]:
    """The schemes, the methods, and the variants spelled out by the user."""
    from airprune.runs.compare import Variant, method_variants, scheme_variants

    variants = scheme_variants(base, schemes) + method_variants(base, methods)
    for words in also:
        name, colon, changes = words.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--also must read `NAME: key=value …`, got {words!r}.")
        variants.append(Variant(name=name.strip(), scenario=base.with_overrides(changes.split())))
    names = [variant.name for variant in variants]
    if not variants or len({variant.folder_name for variant in variants}) != len(names):
        got = ", ".join(names)
        raise UsageError(f"--schemes, --methods and --also must name at least one variant, each once, got {got}.")
    return variants


def run_all(variants: Sequence[Variant], seeds: Sequence[int], out: Path) -> None:
    """Runs everything that is not finished, showing each run."""
    from airprune.runs.compare import compare as runs_of

    places = [(variant, seed) for seed in seeds for variant in variants]
    tell_duration(
        [
            variant.scenario
            for variant, seed in places
            if not variant.folder(out, seed).has_finished(variant.scenario.with_("seed", seed))
        ]
    )
    try:
        for variant, seed, records in runs_of(variants, seeds, out):
            label = f"[{places.index((variant, seed)) + 1}/{len(places)}] {variant.name}, seed {seed}"
            with contextlib.closing(records):
                for _ in watched(records, variant.scenario, label=label, done=len(variant.folder(out, seed).records())):
                    pass
    except KeyboardInterrupt:
        say(f"Stopped; {out} keeps what is done. The same command continues.")
        raise typer.Exit(STOPPED) from None


def parse_seeds(text: str) -> list[int]:
    """`0-4` or `1,5,9` or both mixed."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = int(first), int(last) if dash else int(first)
        except ValueError:
            raise UsageError(f"--seeds must be like 0-4 or 1,5,9, got {text!r}.") from None
        if high < low or high - low >= MAX_RUNS:
            raise UsageError(f"--seeds must be like 0-4 or 1,5,9, got {text!r}.")
        seeds.extend(range(low, high + 1))
    if len(set(seeds)) != len(seeds):
        raise UsageError(f"--seeds must name each seed once, got {text!r}.")
    return seeds


def _draw(results: dict[str, list[list[dict[str, Any]]]], out: Path, *, title: str, target: float | None) -> None:
    from airprune.figures import comparison_figure, save_figure

    def drawable(record: dict[str, Any]) -> dict[str, Any]:
        """What was not measured, or was not a number, leaves a gap."""
        gaps = {measure: math.nan for measure in DRAWN if record.get(measure) is None}
        return record | gaps

    shown = {name: [[drawable(record) for record in records] for records in runs] for name, runs in results.items()}
    figure = comparison_figure(shown, title=title, target=target)
    save_figure(figure, out / "curves.png", out / "curves.pdf")
    say(f"Curves: {out / 'curves.png'}")
