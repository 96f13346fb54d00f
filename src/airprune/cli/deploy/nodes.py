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
from airprune.cli.stopping import STOPPED, terminated_like_ctrl_c

if TYPE_CHECKING:
    from airprune.deployment.identity import Node, Role
    from airprune.deployment.remote import CloudSettings

StateDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of the node's persistent state.  [default: state in KIT]")
]
Kit = Annotated[
    Path, typer.Argument(metavar="KIT", help="Credentials bundle of the node, made by `airprune deploy init`.")
]
PlanWith = Annotated[
    str,
    typer.Option(
        metavar="SOURCE",
        help="Plan with `measured` rates and speeds, only the `speeds` measured, or all as in `network`.",
    ),
]
Grace = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.0, help="Uploads count until this long after the deadline.")
]
Patience = Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="An edge may be unreachable for this long.")]
Wait = Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Wait this long for all devices at the start.")]
TestData = Annotated[
    str | None,
    typer.Option(metavar="SOURCE", help="Test set of your own: a folder with x.npy and y.npy, an .npz file, …"),
]
RenewBefore = Annotated[
    float, typer.Option(metavar="DAYS", min=0.0, help="Renew the certificate this long before it expires.")
]
JsonLogs = Annotated[bool, typer.Option("--json-logs", help="Log JSON lines in place of sentences.")]


def cloud(
    kit: Kit,
    scenario: ScenarioName,
    overrides: Changes = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run folder.  [default: runs/NAME-deployed]")] = None,
    resume: Resume = False,
    plan_with: PlanWith = "measured",
    grace: Grace = 0.0,
    patience: Patience = 60.0,
    wait: Wait = 600.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="Serve Prometheus metrics on this port of 127.0.0.1."),
    ] = None,
    data: TestData = None,
    json_logs: JsonLogs = False,
    as_json: LastRoundAsJson = False,
) -> None:
    """Run one scenario on the edges and devices of a federation, which end with it; `deploy serve` keeps them.

    Its folder is a run folder like any other.

    Example: `airprune deploy cloud kits/cloud deployed --out runs/real`
    """
    from airprune.deployment.cloud import deployed_run
    from airprune.deployment.identity import Role
    from airprune.deployment.own_data import test_set_of
    from airprune.runs.layout import RunFolder

    chosen = scenario_from(scenario, overrides or [])
    folder = RunFolder(out or Path("runs") / f"{chosen.name}-deployed")
    settings = cloud_settings(plan_with=plan_with, grace=grace, patience=patience, wait=wait)
    node = node_of(kit, Role.CLOUD)
    log_to_stderr(node, json_logs=json_logs)
    try:
        with (
            deployed_run(
                node,
                chosen,
                folder,
                settings,
                resume=resume,
                dataset=test_set_of(data),
                metrics_port=metrics_port,
            ) as records,
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
    renew_before: RenewBefore = 30.0,
    json_logs: JsonLogs = False,
) -> None:
    """Serve the devices of an edge: of a fleet run after run, of `deploy cloud` until its run has ended.

    Example: `airprune deploy edge kits/e0`
    """
    from airprune.deployment.edge import EdgeSettings, run_edge
    from airprune.deployment.identity import Role

    node = node_of(kit, Role.EDGE)
    state = state_folder(state_dir, kit)
    log_to_stderr(node, json_logs=json_logs)
    settings = EdgeSettings(keep_uploads=keep_uploads, renew_before_days=renew_before)
    _until_the_end(lambda: run_edge(node, state, settings))


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
    only_hidden: Annotated[
        bool, typer.Option("--only-hidden", help="Take part only in runs whose edges see sums of updates alone.")
    ] = False,
    renew_before: RenewBefore = 30.0,
    json_logs: JsonLogs = False,
) -> None:
    """Train on a device's own samples: in a fleet run after run, with `deploy cloud` until its run has ended.

    Example: `airprune deploy device kits/d0 --data samples.npz`
    """
    from airprune.deployment.device import Device, DeviceSettings
    from airprune.deployment.identity import Role
    from airprune.deployment.own_data import check_samples
    from airprune.errors import UsageError

    if not math.isfinite(slowdown):
        raise UsageError(f"--slowdown must be a finite number, got {slowdown:g}. Example: --slowdown 4")
    node = node_of(kit, Role.DEVICE)
    check_samples(data)
    state = state_folder(state_dir, kit)
    settings = DeviceSettings(
        data=data,
        patience_s=patience,
        mobile=mobile,
        slowdown=slowdown,
        only_hidden=only_hidden,
        renew_before_days=renew_before,
    )
    log_to_stderr(node, json_logs=json_logs)
    _until_the_end(lambda: Device(node, state, settings).run())


def node_of(kit: Path, role: Role) -> Node:
    from airprune.deployment.identity import load_node
    from airprune.errors import UsageError

    node = load_node(kit)
    if node.peer.role != role:
        raise UsageError(f"{kit} is the kit of {node.peer.uri}; this command takes kits of the role {role}.")
    return node


def state_folder(folder: Path | None, kit: Path) -> Path:
    state = folder or kit / "state"
    state.mkdir(parents=True, exist_ok=True)
    return state


def _until_the_end(serve: Callable[[], Coroutine[Any, Any, str]]) -> None:
    try:
        with terminated_like_ctrl_c():
            say(asyncio.run(serve()))
    except KeyboardInterrupt:
        say("Stopped; start it again with the same command.")
        raise typer.Exit(STOPPED) from None


def cloud_settings(*, plan_with: str, grace: float, patience: float, wait: float) -> CloudSettings:
    """Returns the settings that these options mean."""
    from airprune.deployment.remote import CloudSettings
    from airprune.errors import UsageError

    if plan_with not in ("measured", "speeds", "network"):
        raise UsageError(f"--plan-with must be measured, speeds or network, got {plan_with}.")
    return CloudSettings(
        measures=plan_with != "network",
        measures_uplink=plan_with == "measured",
        grace_s=grace,
        patience_s=patience,
        wait_s=wait,
    )


def log_to_stderr(node: Node, *, json_logs: bool = False) -> None:
    """Shows the log of a node: sentences, or JSON lines."""
    from airprune.deployment.fleet.logs import JsonLines, PlainLines

    logging.basicConfig(format="%(message)s")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines(node.peer.name) if json_logs else PlainLines("%(message)s"))
    logging.getLogger("airprune").setLevel(logging.INFO)
