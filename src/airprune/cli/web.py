"""`airprune web`: the web pages, served on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airprune import extras
from airprune.cli.console import say

if TYPE_CHECKING:
    from airprune.web.site import Site


def web(
    runs_dir: Annotated[Path, typer.Argument(metavar="RUNS_DIR", help="Folder whose runs are shown.")] = Path("runs"),
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="0 takes any free port.  [default: 8765 or the next free]"),
    ] = None,
    allow_run: Annotated[bool, typer.Option("--allow-run", help="Allow the pages to start runs.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Require the printed address for reading, too.")] = False,
    fetch_charts: Annotated[
        bool, typer.Option("--fetch-charts", help="First fetch Plotly's smaller script from npm, once.")
    ] = False,
) -> None:
    """Serve planner, runs and results as web pages on this machine.

    Prints the address to open in a browser. The token in it permits changes; without it the pages only plan and show,
    and with --private not even that.

    Example: `airprune web runs`
    """
    if absent := extras.missing(extras.PAGES):
        raise extras.MissingExtra(f"airprune web needs the package {absent[0]}: {extras.install_command()}")
    from airprune.web.serve import serve
    from airprune.web.site import LOOPBACK_NAMES, Site, bracketed

    if bracketed(host) not in LOOPBACK_NAMES:
        advice = "" if private else "; --private admits only those who have the printed address"
        say(f"note: other machines can reach this server{advice}. The connection is not encrypted.")
    if fetch_charts:
        from airprune.web import charts

        say(f"note: charts by {charts.fetch()}.")
    serve(Site(runs_dir=runs_dir, host=host, allow_run=allow_run, private=private), port=port, announce=_announce)


def _announce(site: Site) -> None:
    typer.echo(site.address)
    say("Open this address in a browser; Ctrl-C stops the server.")
