"""`airprune deploy`: a scenario on real machines."""

from __future__ import annotations

import typer

from airprune.cli.deploy.demo import demo
from airprune.cli.deploy.kits import init, renew, revoke
from airprune.cli.deploy.nodes import cloud, device, edge
from airprune.cli.deploy.shape import shape
from airprune.cli.deploy.verify import verify
from airprune.cli.deploy.watching import calibrate, status
from airprune.extras import need

deploy = typer.Typer(
    help="Run a scenario on real machines: a cloud, edges and devices, each a process of its own.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@deploy.callback()
def _needs_the_extra() -> None:
    need("deploy", "airprune deploy")


deploy.command()(demo)
deploy.command()(init)
deploy.command()(cloud)
deploy.command()(edge)
deploy.command()(device)
deploy.command()(revoke)
deploy.command()(renew)
deploy.command()(shape)
deploy.command()(status)
deploy.command()(calibrate)
deploy.command()(verify)
