"""`airprune deploy serve | submit | jobs | stop | resume | logs | systemd`: a fleet that stays, and its jobs."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.console import print_json, say
from airprune.cli.deploy.nodes import (
    Grace,
    JsonLogs,
    Kit,
    Patience,
    PlanWith,
    StateDir,
    TestData,
    Wait,
    cloud_settings,
    log_to_stderr,
    node_of,
    state_folder,
)
from airprune.cli.options import AsJson, Changes, ScenarioName
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.stopping import STOPPED, terminated_like_ctrl_c
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError
from airprune.text import MISSING, printable

if TYPE_CHECKING:
    from airprune.deployment.fleet.registry import Job, Registry

CloudKit = Annotated[Path, typer.Argument(metavar="KIT", help="Credentials bundle of the cloud.")]
JobNumber = Annotated[int, typer.Argument(metavar="JOB", min=1, help="Number of the job, as `deploy jobs` lists it.")]
_FOLLOW_S = 0.3


def serve(
    kit: CloudKit,
    state_dir: StateDir = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="Serve Prometheus metrics on this port of 127.0.0.1."),
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the federation: renew certificates with its authority, and enrol."),
    ] = None,
    enrol_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="Enrol devices that have a one-time code at this port."),
    ] = None,
    json_logs: JsonLogs = False,
) -> None:
    """Serve a fleet: run the jobs that are submitted, one after another, until stopped. Nodes stay connected meanwhile.

    Example: `airprune deploy serve lab/cloud`
    """
    from airprune.deployment.fleet.service import FleetService
    from airprune.deployment.identity import Role

    node = node_of(kit, Role.CLOUD)
    log_to_stderr(node, json_logs=json_logs)
    try:
        with terminated_like_ctrl_c():
            service = FleetService(node, state_folder(state_dir, kit), authority)
            service.run(metrics_port=metrics_port, enrol_port=enrol_port)
    except KeyboardInterrupt:
        say("Stopped; start it again with the same command: the job under way continues.")
        raise typer.Exit(STOPPED) from None


def submit(
    kit: CloudKit,
    scenario: ScenarioName,
    overrides: Changes = None,
    state_dir: StateDir = None,
    plan_with: PlanWith = "measured",
    grace: Grace = 0.0,
    patience: Patience = 60.0,
    wait: Wait = 600.0,
    data: TestData = None,
    deliver: Annotated[
        str, typer.Option(metavar="final|best", help="Deliver this model of the job to all devices when it has ended.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Put a scenario into the queue of a fleet; prints the job's number.

    The network's numbers of edges and devices are those of the fleet when the job begins.

    Example: `airprune deploy submit lab/cloud deployed rounds.global_rounds=20`
    """
    from airprune.deployment.run_definition import check_deployable
    from airprune.rounds.method import Method

    chosen = scenario_from(scenario, overrides or [])
    chosen.check_names()
    check_deployable(Method.of(chosen))
    if deliver not in ("", "final", "best"):
        raise UsageError(f"--deliver must be final or best, got {deliver}.")
    if deliver == "best" and not chosen.stop.keep_best:
        raise UsageError("--deliver best needs stop.keep_best=true in the scenario.")
    settings = cloud_settings(plan_with=plan_with, grace=grace, patience=patience, wait=wait)
    job = registry(kit, state_dir).submit(
        name=chosen.name,
        scenario=chosen.to_toml(),
        settings=asdict(settings),
        deliver=deliver,
        data="" if data is None else _absolute(data),
    )
    if as_json:
        print_json(_plain(job))
    else:
        typer.echo(str(job.number))


def jobs(kit: CloudKit, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the jobs of a fleet.

    Example: `airprune deploy jobs lab/cloud`
    """
    from airprune.deployment.fleet.service import runs_folder

    found = registry(kit, state_dir).jobs()
    runs = runs_folder(state_folder(state_dir, kit))
    if as_json:
        print_json([{**_plain(job), "folder": str(runs / job.folder_name)} for job in found])
        return
    table = plain_table("job", "scenario", "state", "submitted", "took", "reason", numbers=("job", "took"))
    for job in found:
        row = (job.name, job.state, clock(job.submitted_s), _duration(job), printable(job.reason) or MISSING)
        table.add_row(str(job.number), *row)
    print_table(table)
    say(f"Run folders: {runs}")


def stop(kit: CloudKit, job: JobNumber, state_dir: StateDir = None) -> None:
    """Stop a job, queued or running; what it has done is kept.

    Example: `airprune deploy stop lab/cloud 3`
    """
    found = registry(kit, state_dir).stop(job)
    say(f"Job {job} is {found.state}. Continue it with `airprune deploy resume {kit} {job}`.")


def resume(kit: CloudKit, job: JobNumber, state_dir: StateDir = None) -> None:
    """Put a job that was stopped or has failed back into the queue; it continues where it was.

    Example: `airprune deploy resume lab/cloud 3`
    """
    found = registry(kit, state_dir).resume(job)
    say(f"Job {job} is {found.state}.")


def logs(
    kit: CloudKit,
    job: Annotated[int | None, typer.Argument(metavar="[JOB]", min=1, help="Only this job.")] = None,
    state_dir: StateDir = None,
    lines: Annotated[int, typer.Option(metavar="N", min=0, help="Print the last N lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Print new lines as they come, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON lines as they are.")] = False,
) -> None:
    """Print the log of a fleet's cloud, or of one job.

    Example: `airprune deploy logs lab/cloud 3 --follow`
    """
    from airprune.deployment.fleet.logs import FILE
    from airprune.deployment.fleet.service import runs_folder

    place = state_folder(state_dir, kit)
    if job is not None:
        place = runs_folder(place) / registry(kit, state_dir).job(job).folder_name
    path = place / FILE
    if not path.exists() and not follow:
        raise UsageError(f"{path} does not exist; has `airprune deploy serve` begun with it?")
    try:
        for line in _lines(path, lines, follow=follow):
            typer.echo(line if as_json else _readable(line))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def systemd(
    kit: Kit,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTION]…", help="Further options of the node, after `--`.")
    ] = None,
    state_dir: StateDir = None,
    user: Annotated[str, typer.Option(metavar="USER", help="User that the service runs as.")] = "airprune",
) -> None:
    """Print the systemd unit that runs a node as a service; writes nothing.

    Example: `airprune deploy systemd kit -- --data samples.npz > /etc/systemd/system/airprune-device.service`
    """
    from airprune.deployment.fleet.units import unit_of
    from airprune.deployment.identity import load_node

    typer.echo(unit_of(load_node(kit), state_dir or kit / "state", user=user, options=options or []), nl=False)


def registry(kit: Path, state_dir: Path | None) -> Registry:
    """Opens the registry of a fleet."""
    from airprune.deployment.fleet.service import registry_of
    from airprune.deployment.identity import Role

    node_of(kit, Role.CLOUD)
    return registry_of(state_folder(state_dir, kit))


def _absolute(data: str) -> str:
    """Returns a source of samples as the service finds it, which runs in another folder."""
    from airprune.deployment.own_data import test_set_of

    test_set_of(data)
    return str(Path(data).resolve()) if Path(data).exists() else data


def _plain(job: Job) -> dict[str, Any]:
    return {name: value for name, value in asdict(job).items() if name != "scenario"}


def _lines(path: Path, number: int, *, follow: bool) -> Iterator[str]:
    """Yields the last lines of a file, and those that are appended; one that was replaced is read from its start."""
    while follow and not path.exists():
        time.sleep(_FOLLOW_S)
    seen, rest = 0, b""
    is_first = True
    while is_first or follow:
        with path.open("rb") as file:
            if file.seek(0, 2) < seen:
                seen, rest = 0, b""
            file.seek(seen)
            *whole, rest = (rest + file.read()).split(b"\n")
            seen = file.tell()
        yield from (line.decode(errors="replace") for line in (whole[-number:] if is_first and number else whole))
        if follow:
            time.sleep(_FOLLOW_S)
        is_first = False


def _readable(line: str) -> str:
    try:
        found = json.loads(line)
        return printable(f"{found['time'][:19]}Z {found['level']:7s} {found['message']}")
    except (ValueError, KeyError, TypeError):
        return printable(line)


def clock(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _duration(job: Job) -> str:
    if job.started_s is None:
        return MISSING
    return f"{(job.ended_s or time.time()) - job.started_s:,.0f} s"
