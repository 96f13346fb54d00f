"""`airprune deploy status | calibrate | verify`: a deployment's progress, the error of its predictions, its sums."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.deploy.nodes import StateDir
from airprune.cli.options import AsJson, named_values
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError
from airprune.text import MISSING, counted, number, printable

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.deployment.calibration import DeviceFit, Spread
    from airprune.deployment.status import Status
    from airprune.deployment.watch.view import View
    from airprune.runs.layout import RunFolder

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of the cloud.")]
RunOrKit = Annotated[
    Path, typer.Argument(metavar="RUN_OR_KIT", help="Run folder of the cloud, or the cloud's kit for its whole fleet.")
]


def status(run: RunOrKit, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show the nodes online, why others are not, outcomes of uploads, measured beside predicted times, and alerts.

    Example: `airprune deploy status runs/yard`
    """
    from airprune.deployment.watch.view import STATUS_FILE, Watched

    is_kit = (run / "node.toml").is_file()
    place = (state_dir or run / "state") if is_kit else run
    view = Watched(place).look(is_whole=True)
    found = view.status
    if found is None:
        wanted = (
            "has `airprune deploy serve` been started with it?" if is_kit else "give the cloud's run folder or kit."
        )
        raise UsageError(f"{place} has no {STATUS_FILE} that can be read; {wanted}")
    if as_json:
        print_json(_status_json(view, found))
        return
    console = stdout_console()
    console.print(_headline(found), markup=False)
    print_table(_nodes_table(view))
    uploads = ", ".join(f"{number:,} {fate}" for fate, number in view.counts.uploads.items())
    console.print(f"{counted(view.counts.edge_rounds, 'edge round')}; uploads: {uploads}.", markup=False)
    for alert in view.alerts:
        about = "" if alert.node is None else f"{printable(alert.node)}: "
        console.print(f"{about}{printable(alert.words)}", markup=False)


def _status_json(view: View, found: Status) -> dict[str, Any]:
    ratios = {}
    for node in view.nodes:
        if (uploads := view.uploads_of(node)) is not None:
            spreads = {part: uploads.spread(f"{part}_ratio") for part in ("compute", "uplink")}
            ratios[node.name] = {part: _json(spread) for part, spread in spreads.items()}
    return {
        **asdict(found),
        "nodes": [asdict(node) for node in view.nodes],
        "is_stale": found.is_stale(),
        "measured_over_predicted": ratios,
        "counts": asdict(view.counts),
        "alerts": [asdict(alert) for alert in view.alerts],
    }


def calibrate(
    run: RunPath,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Network table to write.")] = Path("network.csv"),
    as_json: AsJson = False,
) -> None:
    """Compare predicted with measured times, and write the measured network as a table.

    Example: `airprune deploy calibrate runs/yard --out yard.csv`
    """
    from airprune.deployment.calibration import overrides_for, write_network

    folder = _run_folder(run)
    fits = _fits(folder)
    if not fits:
        raise UsageError(f"{run} has no measured.jsonl with a finished edge round; nothing can be compared yet.")
    write_network(out, fits)
    changes = overrides_for(out, fits, folder.scenario())
    if as_json:
        print_json({"table": str(out), "overrides": changes, "devices": [asdict(fit) for fit in fits]})
        return
    print_table(_fits_table(fits))
    say(f"Network: {out}")
    say(f"Simulate it: {shlex.join(['airprune', 'run', str(folder.scenario_file), *changes])}")


def verify(
    run: RunPath,
    edge: Annotated[
        list[str],
        typer.Option(metavar="NAME=DIR", help="Kit of an edge, or the folder of its state; may be repeated."),
    ],
    as_json: AsJson = False,
) -> None:
    """Aggregate the uploads that edges kept with `--keep-uploads` again, and compare with the cloud's records.

    Exits with status 1 if something differs. Nothing is trained again, so this works on any machine.

    Example: `airprune deploy verify runs/yard --edge e0=kits/e0 --edge e1=kits/e1`
    """
    from airprune.deployment.verification import edges_of, verified_rounds

    pairs = named_values("--edge", edge, "NAME=DIR", "e0=kits/e0")
    folder, kept = _run_folder(run), {name: Path(place) for name, place in pairs.items()}
    rounds = []
    for found in verified_rounds(folder, kept):
        rounds.append(found)
        if not as_json:
            place = f"{found.edge}, global round {found.global_round}, edge round {found.edge_round}"
            typer.echo(f"{place}: {found.verdict} ({counted(found.num_uploads, 'upload')})")
            for difference in found.differences:
                typer.echo(f"  {difference}")
    num_wrong = sum(found.verdict == "differs" for found in rounds)
    missing = [name for name in edges_of(folder) if name not in kept]
    if as_json:
        lines = [{**asdict(found), "verdict": found.verdict} for found in rounds]
        print_json({"rounds": lines, "num_wrong": num_wrong, "not_verified": missing})
    else:
        verdict = f"{counted(num_wrong, 'edge round')} of {len(rounds):,} differ" if num_wrong else "nothing differs"
        say(f"{counted(len(rounds), 'edge round')}: {verdict}.")
        if missing:
            say(f"Not verified, because no folder was given: {', '.join(missing)}.")
    if num_wrong:
        raise typer.Exit(1)


def _run_folder(run: Path) -> RunFolder:
    from airprune.runs.layout import RunFolder

    folder = RunFolder(run)
    if not folder.has_run:
        raise UsageError(f"{run} holds no run; give the run folder of `airprune deploy cloud`.")
    return folder


def _fits(folder: RunFolder) -> list[DeviceFit]:
    from airprune.deployment.calibration import fit_devices
    from airprune.runs.measured import read_inputs, read_measured

    return fit_devices(read_measured(folder), read_inputs(folder), folder.scenario().train.samples_seen)


def _headline(found: Status) -> str:
    words = {"waiting": "waiting for nodes", "idle": "waiting for a job"}.get(found.state, found.state)
    if found.global_round is not None:
        words += f", global round {found.global_round} of {found.num_rounds}"
        words += "" if found.edge_round is None else f", edge round {found.edge_round}"
    devices = f"{found.online('device')} of {counted(found.count('device'), 'device')}"
    edges = f"{found.online('edge')} of {counted(found.count('edge'), 'edge')}"
    run = f", {printable(found.run)}" if found.run else ""
    return f"{printable(found.federation)}{run}: {printable(words)}; online: {devices}, {edges}."


def _nodes_table(view: View) -> Table:
    numbers = ("seen", "RTT", "late", "refused", "compute", "uplink")
    table = plain_table(
        "node", "role", "edge", "online", "seen", "RTT", "late", "refused", "last outcome", "compute", "uplink",
        numbers=numbers, caption="late: uploads past the deadline; compute, uplink: measured / predicted, median",
    )  # fmt: skip
    for node in view.nodes:
        uploads = view.uploads_of(node)
        table.add_row(
            *map(_word, (node.name, node.role, node.edge)),
            "yes" if node.online else "no",
            MISSING if node.seen_s is None else f"{_ago(max(0.0, time.time() - node.seen_s))} ago",
            number(node.rtt_s, ".1f", " ms", scale=1e3),
            str(node.late),
            str(node.refused),
            _word(node.last_fate),
            *(_median(None if uploads is None else uploads.spread(f"{part}_ratio")) for part in ("compute", "uplink")),
        )
    return table


def _fits_table(fits: Sequence[DeviceFit]) -> Table:
    numbers = ("edge", "rounds", "compute", "p10–p90", "uplink", "p10–p90", "s/sample", "Mbit/s", "RTT")
    caption = "compute, uplink: measured / predicted; Mbit/s: over the full bandwidth, round trips included"
    table = plain_table("device", *numbers, numbers=numbers, caption=caption)
    for fit in fits:
        table.add_row(
            _word(fit.name),
            str(fit.edge),
            f"{sum(fit.fates.values()):,}",
            *(_median(fit.compute), _range(fit.compute), _median(fit.uplink), _range(fit.uplink)),
            number(fit.seconds_per_sample, ".3g"),
            number(fit.full_band_rate_bps, ".4g", scale=1e-6),
            number(fit.rtt_s, ".1f", " ms", scale=1e3),
        )
    return table


def _word(text: str | None) -> str:
    return MISSING if text is None else escape(printable(text))


def _ago(seconds: float) -> str:
    return number(seconds, ".1f", " s") if seconds < 120 else number(seconds / 60, ",.0f", " min")


def _median(spread: Spread | None) -> str:
    return MISSING if spread is None else number(spread.median, ".2f", " ×")


def _range(spread: Spread | None) -> str:
    return MISSING if spread is None else f"{spread.low:.2f}–{spread.high:.2f}"


def _json(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else asdict(spread)
