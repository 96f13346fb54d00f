"""`airprune run`: one scenario, from the first round or from where it stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import Engine, ScenarioName, Scheduler, Tls, Workers
from airprune.cli.progress import STOPPED, watched
from airprune.cli.scenario_argument import scenario_from
from airprune.measures import MEASURES, SUMMARY, TO_TARGET

if TYPE_CHECKING:
    from airprune.reaching import Evaluation

# Where the value says the rest.
_SHORT_LABELS = {"uploaded_weights": "uploaded", "mean_pruning_ratio": "mean pruning"}


def run(
    scenario: ScenarioName,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes, e.g. `plan.deadline_s=0.04 seed=3`.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default runs/NAME-seedN.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    engine: Engine = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the last global round as JSON.")] = False,
) -> None:
    """Train a scenario: plan, prune, learn, average, round after round.

    Example: `airprune run paper plan.deadline_s=0.04 --out runs/paper-40ms`
    """
    from airprune.report import write_report
    from airprune.runs import run as run_scenario
    from airprune.runs.evaluations import evaluations_in
    from airprune.runs.layout import RunFolder

    chosen = scenario_from(scenario, overrides or [], engine=engine, workers=workers, scheduler=scheduler, tls=tls)
    out = out or Path("runs") / f"{chosen.name}-seed{chosen.seed}"
    folder = RunFolder(out)
    try:
        with contextlib.closing(run_scenario(chosen, out=out, resume=resume)) as records:
            for _ in watched(records, chosen, label=chosen.name, done=len(folder.records())):
                pass
    except KeyboardInterrupt:
        if folder.has_run:
            say(f"Stopped; {out} keeps what is done. Continue with the same command and --resume.")
        else:
            say("Stopped before there was a run; nothing is kept.")
        raise typer.Exit(STOPPED) from None
    last = next(record for record in reversed(folder.records()) if record["kind"] == "global")
    target = chosen.rounds.target_accuracy
    tests = [] if target is None else evaluations_in(folder)
    if as_json:
        print_json({"folder": str(out), **last, **({} if target is None else {"to_target": _costs(tests, target)})})
        return
    stdout_console().print(_summary(last, chosen.clock.words), markup=False)
    if target is not None:
        stdout_console().print(_to_target(tests, target), markup=False)
    say(f"Report: {write_report(out)}")


def _costs(tests: Sequence[Evaluation], target: float) -> dict[str, Any]:
    from airprune.reaching import tidy_row

    row = tidy_row("", 0, tests, target)
    return {name: row[name] for name in ("target_accuracy", "reached", *TO_TARGET)}


def _to_target(tests: Sequence[Evaluation], target: float) -> str:
    """to 70 %         0.52 s, 12.30 Mbit, 0.41 J, 3 global rounds."""
    from airprune.reaching import NOT_REACHED, target_text

    costs = _costs(tests, target)
    told = [MEASURES[name].with_unit(costs[name]) for name in TO_TARGET]
    words = f"{', '.join(told)} global rounds" if costs["reached"] else NOT_REACHED if tests else "never tested"
    return f"{f'to {target_text(target)}':<16} {words}"


def _summary(last: dict[str, Any], clock: str) -> str:
    told = {name: MEASURES[name].with_unit(last.get(name)) for name in SUMMARY}
    bits = MEASURES["uploaded_bits"].with_unit(last["uploaded_bits"])
    told["uploaded_weights"] = f"{last['uploaded_weights']:,} weights, {bits}"
    told["mean_pruning_ratio"] += " in the last global round"
    if "test_loss" in last and last["test_loss"] is None:
        told["test_loss"] = "not a number: training diverged"
    labels = {name: MEASURES[name].label for name in SUMMARY} | _SHORT_LABELS
    kept = [name for name in SUMMARY if last.get(name) is not None or (name == "test_loss" and name in last)]
    return "\n".join([*(f"{labels[name]:<16} {told[name]}" for name in kept), f"{'clock':<16} {clock}"])
