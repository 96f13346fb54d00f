"""`airprune trace`: all arrays of one edge round, for code of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airprune.cli.console import say
from airprune.cli.options import Changes, FleetTable, ScenarioName
from airprune.cli.scenario_argument import scenario_from
from airprune.extras import need


def trace(
    scenario: ScenarioName,
    overrides: Changes = None,
    global_round: Annotated[int, typer.Option(metavar="N", help="Global round, counted from 1.")] = 1,
    edge_round: Annotated[int, typer.Option(metavar="N", help="Edge round within it, counted from 1.")] = 1,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write, for `numpy.load`.")] = Path("trace.npz"),
    fleet: FleetTable = None,
) -> None:
    """Write every array of one edge round, to check Algorithm 1.

    Runs the scenario in this process up to that round and keeps no run folder. The file has the models that devices
    receive, their samples and minibatches, masks, uploads, and the sums and models of the edges; with the last edge
    round of a global round also the cloud's model.

    Example: `airprune trace smoke model.float64=true --edge-round 2`
    """
    chosen = scenario_from(scenario, overrides or [], fleet=fleet)
    need("train", "airprune trace")
    from airprune.runs.trace import trace_round

    found = trace_round(chosen, global_round, edge_round)
    written = found.save(out)
    say(f"{found}, {written.stat().st_size:,} bytes:")
    typer.echo(str(written))
