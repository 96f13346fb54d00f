"""`airprune run`: one scenario, from the first round or from its last checkpoint."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune import files
from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import (
    Changes,
    Engine,
    FleetTable,
    LastRoundAsJson,
    Log,
    Resume,
    Scheduler,
    Tls,
    Workers,
    preset_names,
)
from airprune.cli.progress import announce_duration, show_progress
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.stopping import STOPPED
from airprune.cli.tables import print_table
from airprune.cli.what_if import compared, comparison_table, say_assumptions
from airprune.errors import UsageError
from airprune.extras import need
from airprune.results.measures import MEASURES, SUMMARY, TO_TARGET
from airprune.text import counted, number
from airprune.theory.privacy import privacy_notes

if TYPE_CHECKING:
    from airprune.deployment.what_if import PredictedRound
    from airprune.results.time_to_target import Evaluation
    from airprune.runs.layout import RunFolder

# Short, where the value has the rest.
_SHORT_LABELS = {"uploaded_weights": "uploaded", "mean_pruning_ratio": "mean pruning"}


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Name of a preset, or a TOML file; a replay has its own.",
            autocompletion=preset_names,
        ),
    ] = None,
    overrides: Changes = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Run folder.  [default: runs/NAME-CHANGES-seedN, or RUN-replay]"),
    ] = None,
    resume: Resume = False,
    extend: Annotated[
        bool,
        typer.Option("--extend", help="Continue the finished run in the folder to a larger rounds.global_rounds."),
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Repeat a deployment in simulation: its rounds, plans and lost uploads."),
    ] = None,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="Of a replay: predict its uploads under the changed settings that follow."),
    ] = False,
    fleet: FleetTable = None,
    engine: Engine = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    log: Log = None,
    as_json: LastRoundAsJson = False,
) -> None:
    """Train one scenario: plan, prune, train, aggregate.

    Example: `airprune run paper plan.deadline_s=0.04 --out runs/paper-40ms`
    """
    from airprune.runs.layout import RunFolder
    from airprune.runs.naming import default_folder

    if replay is not None and not RunFolder(replay).has_run:
        raise UsageError(f"{replay} holds no run; give the run folder of `airprune deploy cloud`.")
    name, changes = _named(scenario, overrides or [], replay)
    chosen = scenario_from(name, changes, engine=engine, workers=workers, scheduler=scheduler, tls=tls, fleet=fleet)
    if out is None:
        suffix = "what-if" if what_if else "replay"
        out = default_folder(Path("runs"), chosen, changes) if replay is None else Path(f"{replay}-{suffix}")
    folder = RunFolder(out)
    if what_if and replay is None:
        raise UsageError("--what-if needs --replay RUN, the run folder of a deployment.")
    if folder.has_run and not resume and not extend:
        raise UsageError(_used(folder))
    if replay is None:
        chosen.check_names()
    need("train", "airprune run")

    # Only now: these take seconds to import.
    from airprune.results.time_to_target import evaluations_in
    from airprune.runs import run as run_scenario
    from airprune.studies.write_report import write_report

    if not folder.has_run and replay is None:
        for note in privacy_notes(chosen):
            say(note)
        announce_duration([chosen])
    predicted: list[PredictedRound] = []
    if what_if:
        say_assumptions(changes)
    try:
        with contextlib.closing(
            run_scenario(
                chosen,
                out=out,
                resume=resume,
                extend=extend,
                replay=replay,
                what_if=predicted.append if what_if else None,
                callbacks=log or [],
            )
        ) as records:
            for _ in show_progress(records, chosen, label=chosen.name, done=len(folder.records())):
                pass
    except KeyboardInterrupt:
        if folder.has_run:
            say(f"Stopped; {out} keeps what is done. Continue with the same command and --resume.")
        else:
            say("Stopped before there was a run; nothing is kept.")
        raise typer.Exit(STOPPED) from None
    if replay is not None and not (what_if and changes):
        say(_likeness(folder, RunFolder(replay)))
    comparison = compared(RunFolder(replay), predicted, folder) if what_if and replay is not None else None
    last = next(record for record in reversed(folder.records()) if record["kind"] == "global")
    if last.get("stopped"):
        say(f"Ended early: {last['stopped']}.")
    target = chosen.rounds.target_accuracy
    tests = [] if target is None else evaluations_in(folder)
    if as_json:
        print_json(
            {
                "folder": str(out),
                **last,
                **({} if target is None else {"to_target": target_costs(tests, target)}),
                **({} if comparison is None else {"what_if": comparison}),
            }
        )
        return
    stdout_console().print(_summary(last, chosen.clock.words), markup=False)
    if target is not None:
        stdout_console().print(to_target(tests, target), markup=False)
    if comparison is not None:
        print_table(comparison_table(comparison))
    say(f"Report: {write_report(out)}")


def _used(folder: RunFolder) -> str:
    """Returns the sentence that refuses a folder with a run, with the way out."""
    path, records = folder.path, folder.records()
    if folder.is_finished:
        return f"{path} already holds a run, finished: `airprune report {path}` shows it; or choose another --out."
    if folder.divergence:
        return f"{path} already holds a run, diverged: `airprune report {path}` shows it; choose another --out."
    done = sum(record["kind"] == "global" for record in records)
    state = "is still going on" if folder.is_running else f"stopped after {counted(done, 'global round')}"
    return f"{path} already holds a run, which {state}; continue it with --resume or choose another --out."


def _named(scenario: str | None, overrides: list[str], replay: Path | None) -> tuple[str, list[str]]:
    """Returns (the scenario's name, its changes); a replay has its own scenario, so the first word may be a change."""
    if replay is None:
        if scenario is None:
            raise UsageError(
                "SCENARIO must be a preset's name or a TOML file, got nothing. Example: airprune run smoke"
            )
        return scenario, overrides
    if scenario is not None and "=" not in scenario:
        return scenario, overrides
    return str(replay / "scenario.toml"), [*filter(None, [scenario]), *overrides]


def _likeness(ours: RunFolder, theirs: RunFolder) -> str:
    """Returns a sentence that compares a replay with its deployment."""
    pairs = zip(ours.reader.lines(), theirs.reader.lines(), strict=False)
    first = next((line for line, (own, other) in enumerate(pairs, start=1) if own != other), None)
    if first is not None:
        return f"The replay differs from {theirs.path} from line {first} of records.jsonl on."
    if not _same_bytes(ours.final_file, theirs.final_file):
        return f"The replay's records are those of {theirs.path} as far as both go; the final models differ."
    return f"Bit for bit: records and final model are those of {theirs.path}."


def _same_bytes(one: Path, other: Path) -> bool:
    try:
        with files.open_to_read(one) as mine, files.open_to_read(other) as theirs:
            digests = [hashlib.file_digest(file, "sha256").digest() for file in (mine, theirs)]
    except OSError:
        return False
    return digests[0] == digests[1]


def target_costs(tests: Sequence[Evaluation], target: float) -> dict[str, Any]:
    from airprune.results.time_to_target import tidy_row

    row = tidy_row("", 0, tests, target)
    return {name: row[name] for name in ("target_accuracy", "reached", *TO_TARGET)}


def to_target(tests: Sequence[Evaluation], target: float) -> str:
    """Returns e.g. `to 70 %   0.52 s, 12.30 Mbit, 0.41 J, 3 global rounds`."""
    from airprune.results.time_to_target import NOT_REACHED, target_text

    costs = target_costs(tests, target)
    values = [MEASURES[name].with_unit(costs[name]) for name in TO_TARGET]
    words = f"{', '.join(values)} global rounds" if costs["reached"] else NOT_REACHED if tests else "never tested"
    return f"{f'to {target_text(target)}':<16} {words}"


def _summary(last: dict[str, Any], clock: str) -> str:
    values = {name: MEASURES[name].with_unit(last.get(name)) for name in SUMMARY}
    bits = MEASURES["uploaded_bits"].with_unit(last["uploaded_bits"])
    values["uploaded_weights"] = f"{last['uploaded_weights']:,} weights, {bits}"
    values["mean_pruning_ratio"] += " in the last global round"
    if "test_loss" in last and last["test_loss"] is None:
        values["test_loss"] = "not a number: training diverged"
    labels = {name: MEASURES[name].label for name in SUMMARY} | _SHORT_LABELS
    kept = [name for name in SUMMARY if last.get(name) is not None or (name == "test_loss" and name in last)]
    own = [name for name in last if name.startswith("test_") and name not in MEASURES]
    lines = [f"{name.replace('_', ' '):<16} {number(last[name], '.4g')}" for name in own]
    lines += [f"{labels[name]:<16} {values[name]}" for name in kept]
    return "\n".join([*lines, f"{'clock':<16} {clock}"])
