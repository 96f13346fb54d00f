"""`airprune cluster`: certificates, a scheduler and workers for the engine `dask`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from airprune.cli.console import say
from airprune.cli.options import Tls, Workers
from airprune.errors import UsageError
from airprune.extras import need

cluster = typer.Typer(
    help="Start a Dask cluster for `airprune run --engine dask`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Insecure = Annotated[bool, typer.Option("--insecure", help="Admit other machines without TLS.")]


@cluster.callback()
def _needs_the_extra() -> None:
    need("cluster", "airprune cluster")


@cluster.command()
def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write them to.")],
    days: Annotated[int, typer.Option(metavar="DAYS", min=1, max=36_500, help="Validity.")] = 365,
) -> None:
    """Make a private certificate authority and a certificate for each role of a cluster.

    Example: `airprune cluster certificates ~/airprune-tls`
    """
    from airprune.engines.cluster.certificates import make_certificates

    try:
        make_certificates(folder, days=days)
    except OSError as error:
        raise UsageError(f"{folder} cannot take certificates: {error.strerror} ({error.filename}).") from error
    typer.echo(str(folder))
    say(f"Valid for {days} days. Copy to the machine of")
    say("  the scheduler      ca.pem  scheduler.pem  scheduler-key.pem")
    say("  each worker        ca.pem  worker.pem     worker-key.pem")
    say("  `airprune run`     ca.pem  client.pem     client-key.pem")
    say("Keep ca-key.pem here: with it anyone can make more certificates.")


@cluster.command()
def scheduler(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; other machines need TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 takes any free port.")] = 8786,
    tls: Tls = None,
    scheduler_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the address to this file, for workers and runs to read.")
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve Dask's dashboard on this machine; needs bokeh.")
    ] = False,
    insecure: Insecure = False,
) -> None:
    """Run the scheduler of a cluster until Ctrl-C; prints its address.

    Example: `airprune cluster scheduler --host 0.0.0.0 --tls ~/airprune-tls`
    """
    from airprune.engines.cluster.serve import serve_scheduler

    def announce(address: str, page: str | None) -> None:
        place = address + (f" --tls {shlex.quote(str(tls))}" if tls else "")
        typer.echo(address)
        say("Start the workers of each machine:")
        say(f"  airprune cluster worker {place}")
        say("Then run:")
        say(f"  airprune run smoke --engine dask --scheduler {place}")
        if page:
            say(f"Dashboard, on this machine only: {page}")
        say("Ctrl-C stops the scheduler.")

    serve_scheduler(
        host=host,
        port=port,
        tls=tls,
        scheduler_file=scheduler_file,
        dashboard=dashboard,
        insecure=insecure,
        announce=announce,
    )
    say("stopped.")


@cluster.command()
def worker(
    scheduler: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The scheduler: `tls://host:8786` or its scheduler file.")
    ],
    workers: Workers = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to listen on.  [default: the one that leads to the scheduler]"),
    ] = None,
    tls: Tls = None,
    memory_limit: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Memory of each process, e.g. 2GB; one above it is restarted; 0: no limit."),
    ] = "0",
    death_timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Exit when the scheduler is unreachable for this long.")
    ] = 60,
    insecure: Insecure = False,
) -> None:
    """Run this machine's workers until Ctrl-C, or until the scheduler is unreachable.

    Example: `airprune cluster worker tls://lab1:8786 --tls ~/airprune-tls`
    """
    from airprune.engines.cluster.serve import serve_workers

    serve_workers(
        scheduler,
        workers=workers,
        host=host,
        tls=tls,
        insecure=insecure,
        memory_limit=memory_limit,
        patience_s=death_timeout,
        report=say,
    )
    say("stopped.")
