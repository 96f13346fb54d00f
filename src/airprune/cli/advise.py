"""`airprune advise`: the method for a fleet, with forecasts of time, bits and energy to a target accuracy."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.checks import quantity, whole_number
from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import Engine, TableAsJson, Workers, names_in
from airprune.cli.progress import show_progress
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.stopping import STOPPED
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError
from airprune.planning.plan import round_up_ms
from airprune.results.measures import MEASURES
from airprune.tables import write_text_atomic
from airprune.text import MISSING, clocks_text, number

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.rounds.experiment import Experiment
    from airprune.studies.advice import Advice, Forecast, Outcome, Pilots
    from airprune.studies.advice.forecast import Interval

DEFAULT_SCENARIO = "paper-converged"


def advise(
    fleet: Annotated[
        Path,
        typer.Argument(
            metavar="FLEET",
            help="CSV or JSON table, one row per device: `device,edge` and `snr_db`, `distance_m` or coordinates.",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCENARIO KEY=VALUE",
            help=f"Preset or TOML file, and changes to it.  [default: {DEFAULT_SCENARIO}]",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Methods (`airprune methods`) to choose from, separated by commas.  [default: no-pruning, "
            "adaptive-pruning, frozen-pruning, adaptive-bits; adaptive-work on a device clock]",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="ACCURACY",
            help="Target, e.g. `0.85`.  [default: `rounds.target_accuracy`, else 2 points below the forecast end]",
        ),
    ] = None,
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Wall-clock time for pilot runs.")] = 120.0,
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Edge rounds of each pilot run, in place of --budget: the same answer everywhere."
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Then run the recommended method to the target and print the forecast's error."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for advice.json, advice.csv and the figure advice.png.")
    ] = None,
    engine: Engine = None,
    workers: Workers = None,
    as_json: TableAsJson = False,
) -> None:
    """Recommend a method for a fleet, from pilot runs.

    Forecasts time, uploaded bits and energy to a target accuracy, for each method.

    Example: `airprune advise fleet.csv paper-converged --target 0.85`
    """
    from airprune.rounds.experiment import Experiment
    from airprune.studies.advice import advise as advise_on
    from airprune.studies.advice import candidates, default_candidates, outcome_of, run_pilots, without_plan
    from airprune.studies.advice.pilots import described

    if target is not None:
        quantity("--target", target, above=0.0, at_most=1.0, way_out="Example: --target 0.85")
    quantity("--budget", budget, above=0.0, way_out="Example: --budget 120")
    if rounds is not None:
        whole_number("--rounds", rounds, at_least=1)
    name, changes = _split(words or [])
    base = scenario_from(name, [f"network.table={fleet}"], engine=engine, workers=workers)
    names = default_candidates(base.with_overrides(changes)) if methods is None else names_in(methods)
    chosen = candidates(base, names, changes)
    experiment = Experiment.of(chosen[0].scenario)
    no_plan = without_plan(chosen, experiment)
    chosen = [method for method in chosen if method.name not in no_plan]
    for method, smallest_s in no_plan.items():
        say(f"note: {method} has no plan for its deadline; {_way_out(smallest_s)}.")
    report = _progress(timed=rounds is None)
    with _stopping("Stopped before there was a recommendation."):
        pilots = run_pilots(chosen, experiment, budget_s=budget, rounds=rounds, report=report)
    say(described(pilots))
    advice = advise_on(chosen, experiment, pilots, target=target, no_plan=no_plan)
    command = None if advice.best is None else _command(name, fleet, advice.best)
    document = _document(advice, pilots, experiment, fleet, name, command)
    if out is not None:
        _write(out, advice, document, title=f"{fleet.name}, {name}; ")
    if not as_json:
        _show(advice, command)
    if check and (best := advice.best) is not None:
        label = f"check of {best.method}"
        scenario = next(method.scenario for method in chosen if method.name == best.method)
        with _stopping("Stopped; the forecast is not checked."):
            outcome = outcome_of(
                scenario,
                advice.target,
                watched=lambda records, real: show_progress(records, real, label=label),
            )
        document["check"] = outcome.as_json(best)
        if out is not None:
            _write(out, advice, document, outcome, title=f"{fleet.name}, {name}; ")
        if not as_json:
            stdout_console().print(outcome.sentence(best, advice.target), markup=False, soft_wrap=True)
    if as_json:
        print_json(document)


@contextlib.contextmanager
def _stopping(sentence: str) -> Iterator[None]:
    """Ends the command with a sentence at Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        say(sentence)
        raise typer.Exit(STOPPED) from None


def _split(words: list[str]) -> tuple[str, list[str]]:
    """Returns (scenario, changes); the first word is a scenario unless it is a change."""
    if not words or "=" in words[0]:
        return DEFAULT_SCENARIO, words
    if extra := [word for word in words[1:] if "=" not in word]:
        raise UsageError(f"advise takes FLEET, one SCENARIO and KEY=VALUE changes, got {extra[0]!r} as well.")
    return words[0], words[1:]


def _progress(*, timed: bool) -> Any:
    def report(done: int, total: int, left_s: float) -> None:
        left = f", about {left_s:.0f} s left" if timed and done < total else ""
        say(f"pilots: {done} of {total} done{left}")

    return report


def _command(name: str, fleet: Path, best: Forecast) -> str:
    return shlex.join(["airprune", "run", name, f"network.table={fleet}", *best.words])


def _way_out(smallest_s: float) -> str:
    if math.isfinite(smallest_s):
        return f"the smallest that works is {round_up_ms(smallest_s)} ms"
    return "no deadline works, since a device has no uplink rate"


def _show(advice: Advice, command: str | None) -> None:
    print_table(_table(advice))
    console = stdout_console()
    console.print(advice.sentence, markup=False, soft_wrap=True)
    if command is not None:
        console.print(command, markup=False, soft_wrap=True)


def _table(advice: Advice) -> Table:
    """Returns one row per method; all columns fit 80 characters."""
    from airprune.studies.advice.forecast import TOO_SHORT

    bits, joules = MEASURES["uploaded_bits"], MEASURES["energy_j"]
    per_weight = MEASURES["bits_per_weight"].label
    numbers = (per_weight, "ms per round", "edge rounds", MEASURES["time_s"].brief, bits.unit, joules.unit)
    late = [one for one in advice.forecasts if not one.cost.meets_deadline]
    notes = [clocks_text([advice.clock])]
    if late:
        notes.append(f"* misses the deadline of {number(late[0].cost.deadline_s, '.4g', ' ms', scale=1e3)}.")
    title = f"To {advice.target:.1%} test accuracy, median and 80 % interval"
    table = plain_table(
        *("method", *numbers, "sure?"),
        numbers=numbers,
        title="Costs of a round" if advice.best is None else title,
        caption=" ".join(notes),
    )
    for forecast in advice.forecasts:
        cost, is_known = forecast.cost, forecast.sure != TOO_SHORT
        known = (
            number(forecast.rounds.median, ".2g"),
            _interval(forecast.time_s),
            number(forecast.uploaded_bits.median, ".3g", scale=bits.scale),
            number(forecast.energy_j.median, ".3g", scale=joules.scale),
        )
        table.add_row(
            forecast.method,
            number(cost.bits_per_weight, ".3g"),
            number(cost.seconds, ".3g", scale=1e3) + ("" if cost.meets_deadline else "*"),
            *(known if is_known else (MISSING,) * len(known)),
            forecast.sure,
            style="bold" if forecast is advice.best else None,
        )
    for method in advice.no_plan:
        table.add_row(method, *(MISSING,) * len(numbers), "no plan")
    return table


def _interval(interval: Interval) -> str:
    """Returns e.g. `12 (9.1…20)`; a dash stands for never."""
    low, high = (number(end, ".2g") for end in (interval.low, interval.high))
    median = number(interval.median, ".2g")
    return MISSING if low == median == MISSING else f"{median} ({low}…{high})"


def _document(
    advice: Advice, pilots: Pilots, experiment: Experiment, fleet: Path, name: str, command: str | None
) -> dict[str, Any]:
    """Returns the recommendation for machines."""
    from airprune.studies.advice.forecast import INTERVAL

    return {
        "fleet": str(fleet),
        "scenario": name,
        "num_devices": experiment.network.num_devices,
        "num_edges": experiment.network.num_edges,
        "clock": advice.clock,
        "target_accuracy": advice.target,
        "edge_rounds": advice.schedule,
        "interval": INTERVAL,
        "methods": [forecast.as_json() for forecast in advice.forecasts],
        "no_plan": {
            method: {"smallest_deadline_s": found if math.isfinite(found) else None}
            for method, found in advice.no_plan.items()
        },
        "recommended": {
            "method": None if advice.best is None else advice.best.method,
            "sentence": advice.sentence,
            "command": command,
        },
        "pilots": {
            "seconds": round(pilots.seconds, 1),
            "seeds": list(pilots.seeds),
            "samples": pilots.small_samples,
            "devices": pilots.small_devices,
            "accuracy": {method: [list(pilot.accuracy) for pilot in found] for method, found in pilots.small.items()},
            "reference": {"share_of_devices": pilots.share, "accuracy": list(pilots.reference.accuracy)},
        },
        "check": None,
    }


def _write(out: Path, advice: Advice, document: dict[str, Any], outcome: Outcome | None = None, *, title: str) -> None:
    from airprune.results.figures.curves import figure_files, save_figure
    from airprune.results.figures.forecasts import Band, RealRun, forecast_figure
    from airprune.studies.advice.forecast import INTERVAL

    out.mkdir(parents=True, exist_ok=True)
    write_text_atomic(out / "advice.json", json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    write_text_atomic(out / "advice.csv", _csv(document["methods"]))
    real_run = None
    if advice.best is not None and outcome is not None and outcome.reached and outcome.at.time_s is not None:
        real_run = RealRun(advice.best.method, outcome.at.time_s, outcome.at.test_accuracy)
    figure = forecast_figure(
        {one.method: Band(one.curve_time_s, one.curve) for one in advice.forecasts},
        advice.target,
        caption=f"{title}forecast median and {INTERVAL:.0%} interval; clock: {advice.clock}",
        real_run=real_run,
    )
    save_figure(figure, *figure_files(out / "advice"))
    say(f"Advice: {out / 'advice.json'}, {out / 'advice.csv'}, {out / 'advice.png'}")


def _csv(methods: list[dict[str, Any]]) -> str:
    """Returns one row per method, with each interval as three columns."""
    rows = []
    for method in methods:
        row: dict[str, Any] = {}
        for key, value in method.items():
            row |= {f"{key}_{end}": part for end, part in value.items()} if isinstance(value, dict) else {key: value}
        rows.append(row)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
