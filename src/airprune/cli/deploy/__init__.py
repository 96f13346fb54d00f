"""`airprune deploy`: a scenario on real machines."""

from __future__ import annotations

import typer

from airprune.cli.deploy.demo import demo
from airprune.cli.deploy.federation import init, renew, revoke, shape
from airprune.cli.deploy.fleet import jobs, logs, resume, serve, stop, submit, systemd
from airprune.cli.deploy.growth import add, enrol, invite, move, remove
from airprune.cli.deploy.inspection import calibrate, status, verify
from airprune.cli.deploy.models import deliver, models, predict, rollback
from airprune.cli.deploy.nodes import cloud, device, edge
from airprune.extras import need

deploy = typer.Typer(
    help="Run a scenario on real machines: cloud, edges and devices.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@deploy.callback()
def _needs_the_extra() -> None:
    need("deploy", "airprune deploy")


COMMANDS = (
    *(demo, init, cloud, edge, device, revoke, renew, shape),
    *(add, remove, move, invite, enrol),
    *(serve, submit, jobs, stop, resume, logs, systemd),
    *(deliver, models, rollback, predict),
    *(status, calibrate, verify),
)
for command in COMMANDS:
    deploy.command()(command)
