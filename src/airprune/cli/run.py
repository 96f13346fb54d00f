"""`airprune run`: one scenario, from the first round or from where it stopped."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import Engine, ScenarioName, Scheduler, Tls, Workers
from airprune.cli.progress import STOPPED, watched
from airprune.cli.scenario_argument import scenario_from


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
    if as_json:
        print_json({"folder": str(out), **last})
        return
    stdout_console().print(_summary(last), markup=False)
    say(f"Report: {write_report(out)}")


def _summary(last: dict[str, Any]) -> str:
    lines = []
    if last.get("test_accuracy") is not None:
        lines.append(f"test accuracy    {last['test_accuracy']:.2%}")
    if "test_loss" in last:
        loss = last["test_loss"]
        lines.append(f"test loss        {'not a number: training diverged' if loss is None else format(loss, '.4f')}")
    lines.append(f"simulated time   {last['time_s']:.3f} s")
    lines.append(f"uploaded         {last['uploaded_weights']:,} weights, {last['uploaded_bits'] / 8e6:,.1f} MB")
    lines.append(f"energy           {last['energy_j']:.2f} J")
    if last["mean_pruning_ratio"] is not None:
        lines.append(f"mean pruning     {last['mean_pruning_ratio']:.3f} in the last global round")
    return "\n".join(lines)
