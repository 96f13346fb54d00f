"""`airprune advise`: the method for a fleet, with forecasts of time, bits and energy to a target accuracy."""

from __future__ import annotations

import contextlib
import csv
import io
import json
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
        str, typer.Option(metavar="NAMES", help="Methods (`airprune methods`) to choose from, separated by commas.")
    ] = "no-pruning,adaptive-pruning,frozen-pruning,adaptive-bits",
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
    from airprune.studies.advice import candidates, outcome_of, run_pilots
    from airprune.studies.advice.pilots import described

    if target is not None:
        quantity("--target", target, above=0.0, at_most=1.0, way_out="Example: --target 0.85")
    quantity("--budget", budget, above=0.0, way_out="Example: --budget 120")
    if rounds is not None:
        whole_number("--rounds", rounds, at_least=1)
    name, changes = _split(words or [])
    base = scenario_from(name, [f"network.table={fleet}"], engine=engine, workers=workers)
    chosen = candidates(base, names_in(methods), changes)
    experiment = Experiment.of(chosen[0].scenario)
    report = _progress(timed=rounds is None)
    with _stopping("Stopped before there was a recommendation."):
        pilots = run_pilots(chosen, experiment, budget_s=budget, rounds=rounds, report=report)
    say(described(pilots))
    advice = advise_on(chosen, experiment, pilots, target=target)
    command = _command(name, fleet, advice.best)
    document = _document(advice, pilots, experiment, fleet, name, command)
    if out is not None:
        _write(out, advice, document, title=f"{fleet.name}, {name}; ")
    if not as_json:
        _show(advice, command)
    if check:
        scenario = next(method.scenario for method in chosen if method.name == advice.best.method)
        with _stopping("Stopped; the forecast is not checked."):
            outcome = outcome_of(
                scenario,
                advice.target,
                watched=lambda records, real: show_progress(records, real, label=f"check of {advice.best.method}"),
            )
        document["check"] = outcome.as_json(advice.best)
        if out is not None:
            _write(out, advice, document, outcome, title=f"{fleet.name}, {name}; ")
        if not as_json:
            stdout_console().print(outcome.sentence(advice.best, advice.target), markup=False, soft_wrap=True)
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


def _show(advice: Advice, command: str) -> None:
    print_table(_table(advice))
    console = stdout_console()
    console.print(advice.sentence, markup=False, soft_wrap=True)
    console.print(command, markup=False, soft_wrap=True)


def _table(advice: Advice) -> Table:
    bits, joules = MEASURES["uploaded_bits"], MEASURES["energy_j"]
    numbers = (
        *(MEASURES["bits_per_weight"].label, "deadline ms", "ms per round", "edge rounds"),
        *(MEASURES["time_s"].brief, bits.unit, joules.unit),
    )
    table = plain_table(
        *("method", *numbers, "sure?"),
        numbers=numbers,
        title=f"To {advice.target:.1%} test accuracy, median and 80 % interval",
        caption=clocks_text([advice.clock]),
    )
    for forecast in advice.forecasts:
        cost = forecast.cost
        table.add_row(
            forecast.method,
            number(cost.bits_per_weight, ".3g"),
            number(cost.deadline_s, ".3g", scale=1e3) + ("" if cost.meets_deadline else " missed"),
            number(cost.seconds, ".3g", scale=1e3),
            number(forecast.rounds.median, ".2g"),
            _interval(forecast.time_s),
            number(forecast.uploaded_bits.median, ".3g", scale=bits.scale),
            number(forecast.energy_j.median, ".3g", scale=joules.scale),
            forecast.sure,
            style="bold" if forecast is advice.best else None,
        )
    return table


def _interval(interval: Interval) -> str:
    """Returns e.g. `12 (9.1…20)`; a dash stands for never."""
    low, high = (number(end, ".2g") for end in (interval.low, interval.high))
    median = number(interval.median, ".2g")
    return MISSING if low == median == MISSING else f"{median} ({low}…{high})"


def _document(
    advice: Advice, pilots: Pilots, experiment: Experiment, fleet: Path, name: str, command: str
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
        "recommended": {"method": advice.best.method, "sentence": advice.sentence, "command": command},
        "pilots": {
            "seconds": round(pilots.seconds, 1),
            "seeds": list(pilots.seeds),
            "samples": pilots.small_samples,
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
    if outcome is not None and outcome.reached and outcome.at.time_s is not None:
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
