"""`airprune schemes`: the schemes of the planner."""

from __future__ import annotations

from airprune.cli.console import print_json
from airprune.cli.options import AsJson
from airprune.cli.tables import plain_table, print_table
from airprune.planning.schemes import SCHEMES


def schemes(as_json: AsJson = False) -> None:
    """List the schemes that allocate bandwidth and pruning."""
    if as_json:
        print_json([{"name": s.name, "summary": s.summary, "meets_deadline": s.adapts} for s in SCHEMES.values()])
        return
    table = plain_table("scheme", "meets deadline", "what it does")
    for scheme in SCHEMES.values():
        table.add_row(scheme.name, "yes" if scheme.adapts else "no", scheme.summary)
    print_table(table)
