"""`airprune deploy cloud | edge | device`: the three kinds of processes of a federation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.console import print_json, say
from airprune.cli.options import Changes, LastRoundAsJson, Resume, ScenarioName
from airprune.cli.progress import show_progress
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.stopping import STOPPED

if TYPE_CHECKING:
    from airprune.deployment.identity import Node, Role

StateDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of the node's persistent state.  [default: state in KIT]")
]
Kit = Annotated[
    Path, typer.Argument(metavar="KIT", help="Credentials bundle of the node, made by `airprune deploy init`.")
]


def cloud(
    kit: Kit,
    scenario: ScenarioName,
    overrides: Changes = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run folder.  [default: runs/NAME-deployed]")] = None,
    resume: Resume = False,
    plan_with: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="Plan with `measured` rates and speeds, only the `speeds` measured, or all as in `network`.",
        ),
    ] = "measured",
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Uploads count until this long after the deadline.")
    ] = 0.0,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="An edge may be unreachable for this long.")
    ] = 60.0,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Wait this long for all devices at the start.")
    ] = 600.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="Serve Prometheus metrics on this port of 127.0.0.1."),
    ] = None,
    as_json: LastRoundAsJson = False,
) -> None:
    """Run a scenario on the edges and devices of a federation; its folder is a run folder like any other.

    Example: `airprune deploy cloud kits/cloud deployed --out runs/real`
    """
    from airprune.deployment.cloud import deployed_run
    from airprune.deployment.identity import load_node
    from airprune.deployment.remote import CloudSettings
    from airprune.errors import UsageError
    from airprune.runs.layout import RunFolder

    if plan_with not in ("measured", "speeds", "network"):
        raise UsageError(f"--plan-with must be measured, speeds or network, got {plan_with}.")
    chosen = scenario_from(scenario, overrides or [])
    folder = RunFolder(out or Path("runs") / f"{chosen.name}-deployed")
    settings = CloudSettings(
        measures=plan_with != "network",
        measures_uplink=plan_with == "measured",
        grace_s=grace,
        patience_s=patience,
        wait_s=wait,
    )
    _log_to_stderr()
    try:
        with (
            deployed_run(load_node(kit), chosen, folder, settings, resume=resume, metrics_port=metrics_port) as records,
            contextlib.closing(records),
        ):
            done = len(folder.records())
            for _ in show_progress(records, chosen, label=chosen.name, done=done, times="planned"):
                pass
    except KeyboardInterrupt:
        say(f"Stopped; {folder.path} keeps what is done. Continue with the same command and --resume.")
        raise typer.Exit(STOPPED) from None
    last = next(record for record in reversed(folder.records()) if record["kind"] == "global")
    if as_json:
        print_json({"folder": str(folder.path), **last})
    else:
        say(f"Done: {folder.path}. See it with `airprune deploy status {folder.path}` and `airprune web`.")


def edge(
    kit: Kit,
    state_dir: StateDir = None,
    keep_uploads: Annotated[
        bool, typer.Option("--keep-uploads", help="Keep the uploads that counted, for `airprune deploy verify`.")
    ] = False,
) -> None:
    """Serve the devices of an edge until the run has ended.

    Example: `airprune deploy edge kits/e0`
    """
    from airprune.deployment.edge import Edge, EdgeSettings
    from airprune.deployment.identity import Role

    node = _node(kit, Role.EDGE)
    state = _state_folder(state_dir, kit)
    _log_to_stderr()

    async def serve() -> str:
        return await Edge(node, state, EdgeSettings(keep_uploads=keep_uploads)).run()

    _until_the_end(serve)


def device(
    kit: Kit,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE", help="Samples: a folder with x.npy and y.npy, an .npz file, or package:function."
        ),
    ] = None,
    state_dir: StateDir = None,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Wait this long for its own edge.")
    ] = 60.0,
    mobile: Annotated[bool, typer.Option("--mobile", help="Slower heartbeats, for unstable links.")] = False,
    slowdown: Annotated[
        float,
        typer.Option(metavar="FACTOR", min=1.0, help="Compute as slowly as one this many times slower, for trials."),
    ] = 1.0,
) -> None:
    """Train on a device's own samples until the run has ended.

    Example: `airprune deploy device kits/d0 --data samples.npz`
    """
    from airprune.deployment.device import Device, DeviceSettings
    from airprune.deployment.identity import Role
    from airprune.deployment.own_data import check_source
    from airprune.errors import UsageError

    if not math.isfinite(slowdown):
        raise UsageError(f"--slowdown must be a finite number, got {slowdown:g}. Example: --slowdown 4")
    node = _node(kit, Role.DEVICE)
    check_source(data)
    state = _state_folder(state_dir, kit)
    settings = DeviceSettings(data=data, patience_s=patience, mobile=mobile, slowdown=slowdown)
    _log_to_stderr()
    _until_the_end(lambda: Device(node, state, settings).run())


def _node(kit: Path, role: Role) -> Node:
    from airprune.deployment.identity import load_node
    from airprune.errors import UsageError

    node = load_node(kit)
    if node.peer.role != role:
        raise UsageError(f"{kit} is the kit of {node.peer.uri}; this command takes kits of the role {role}.")
    return node


def _state_folder(folder: Path | None, kit: Path) -> Path:
    state = folder or kit / "state"
    state.mkdir(parents=True, exist_ok=True)
    return state


def _until_the_end(serve: Callable[[], Coroutine[Any, Any, str]]) -> None:
    try:
        say(asyncio.run(serve()))
    except KeyboardInterrupt:
        say("Stopped; start it again with the same command.")
        raise typer.Exit(STOPPED) from None


def _log_to_stderr() -> None:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("airprune").setLevel(logging.INFO)
