"""`airprune profile`: the training speed of this machine on a scenario's model, beside the paper's clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from airprune.checks import quantity
from airprune.cli.console import print_json, say
from airprune.cli.options import AsJson, Changes, ScenarioName
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.tables import plain_table, print_table

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.rounds.experiment import Experiment
    from airprune.wireless.device_speed.profile import Profile

LONGEST_S = 3600.0
# A thread that had the CPU for less of the time was not alone.
_ALONE = 0.8


def profile(
    scenario: ScenarioName = "paper",
    overrides: Changes = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON that `clock.profile` reads.")] = None,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Time to measure.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Measure how fast this machine trains a scenario's model.

    Also counts the FLOPs of a sample.

    Example: `airprune profile paper --out profile.json`, then `airprune run paper clock.profile=profile.json`
    """
    quantity("--seconds", seconds, above=0.0, at_most=LONGEST_S)
    from airprune.rounds.experiment import Experiment
    from airprune.runs.timing import profile_of

    # The speed of this machine, whatever clock the scenario has.
    experiment = Experiment.of(scenario_from(scenario, overrides or []).with_("clock.compute", "paper"))
    say(f"Measuring for {seconds:g} s …")
    found = profile_of(experiment, seconds=seconds)
    here_s, papers_s = _edge_round_s(experiment, found)
    single = found.timings[0]
    if single.cpu_s < _ALONE * single.median_s:
        share = single.cpu_s / single.median_s
        say(f"note: other programs took CPU time, {share:.0%} was left; measure on an idle machine.")
    if out is not None:
        found.write(out)
        say(f"Profile written to {out}; use it by clock.profile={out}")
    if as_json:
        print_json({**found.to_dict(), "edge_round_s": here_s, "paper_edge_round_s": papers_s})
        return
    print_table(_table(experiment, found, here_s, papers_s))


def _edge_round_s(experiment: Experiment, found: Profile) -> tuple[float, float]:
    """Returns (here, by Eq. (9)): compute of the device with most samples, or of the slowest, in one edge round."""
    passes = int(experiment.scenario.train.samples_seen(experiment.data_sizes.max()))
    device = np.arange(experiment.network.num_devices)
    weights = np.full(len(device), float(experiment.shape.num_weights))
    papers_s = experiment.compute.training_s(weights, device, experiment.network.cpu_hz)
    return passes * found.seconds_per_sample, float(papers_s.max())


def _table(experiment: Experiment, found: Profile, here_s: float, papers_s: float) -> Table:
    from airprune.wireless.device_speed.work import NOT_COUNTED

    work = experiment.work
    table = plain_table(
        "quantity",
        "value",
        "remark",
        numbers=["value"],
        title=f"{found.model} on {found.machine}, minibatches of {found.batch_size}",
        caption=f"Not counted: {'; '.join([NOT_COUNTED, *work.uncertain])}.",
    )
    for timing in found.timings:
        threads = f"{timing.threads} thread{'s' if timing.threads > 1 else ''}"
        spread = f"{timing.low_s * 1e6:.4g} to {timing.high_s * 1e6:.4g} in half of {timing.minibatches:,} minibatches"
        cpu = f"{timing.cpu_s * 1e6:.4g} µs of CPU"
        table.add_row(f"{timing.kernel}, {threads}", f"{timing.median_s * 1e6:.4g} µs per sample", f"{spread}; {cpu}")
    prunable = f"{work.prunable / found.flops_per_sample:.2%} of them in prunable layers"
    table.add_row("FLOP per sample", f"{found.flops_per_sample:,.0f}", f"forward {work.forward:,.0f}; {prunable}")
    table.add_row("sustained", f"{found.flops_per_second / 1e9:.4g} GFLOP/s", "of the faster way")
    if found.at_hz is None or found.flops_per_cycle is None:
        table.add_row("FLOP per cycle", "–", "this system does not report its clock rate: set clock.at_hz")
    else:
        clock = f"at {found.at_hz / 1e9:.4g} GHz, as the system reports"
        table.add_row("FLOP per cycle", f"{found.flops_per_cycle:.4g}", clock)
    passes = int(experiment.scenario.train.samples_seen(experiment.data_sizes.max()))
    table.add_row("one edge round", f"{here_s:.4g} s", f"compute for {passes:,} sample passes on this machine")
    table.add_row("by the paper's clock", f"{papers_s:.4g} s", f"Eq. (9); {here_s / papers_s:,.0f} times less")
    return table
