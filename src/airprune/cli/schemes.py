"""`airprune schemes`: what the planner can be asked to do."""

from __future__ import annotations

from rich.table import Table

from airprune.cli.console import print_json, stdout_console
from airprune.cli.options import AsJson
from airprune.planning.schemes import SCHEMES


def schemes(as_json: AsJson = False) -> None:
    """List the schemes that choose bandwidth shares and pruning ratios."""
    if as_json:
        print_json([{"name": s.name, "summary": s.summary, "meets_deadline": s.adapts} for s in SCHEMES.values()])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scheme", no_wrap=True)
    table.add_column("meets deadline")
    table.add_column("what it does")
    for scheme in SCHEMES.values():
        table.add_row(scheme.name, "yes" if scheme.adapts else "no", scheme.summary)
    stdout_console().print(table)
