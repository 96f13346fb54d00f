"""Tables and sentences of a plan: its edges, its devices, one summary of many, and what more would buy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from airprune.cli.console import say, stdout_console
from airprune.cli.tables import plain_table, print_table
from airprune.planning import Plan, Status
from airprune.planning.fleet import Fleet
from airprune.planning.plan import round_up_ms
from airprune.planning.what_if import Change, Outlook, trains_all
from airprune.results.measures import MEASURES
from airprune.text import MISSING, counted, number

# A table shows this many devices; --json and --out have all.
ROWS_SHOWN = 40
MANY = ROWS_SHOWN
"""Fleets with more devices get a summary and a what-if table."""
# So many failed edges are described one by one.
_FAILURES_SHOWN = 3
_NAMES_SHOWN = 5

_WHY = {
    Status.INFEASIBLE_COMPUTE: "have a device that is too slow",
    Status.INFEASIBLE_BANDWIDTH: "are short of bandwidth",
    Status.INFEASIBLE_ENERGY: "are short of energy",
    Status.OUTSIDE_BOX: "have shares or ratios outside their bounds",
}


def outcome_status(devices: Fleet, result: Plan) -> int:
    """Prints on stderr what failed: a sentence for each of a few edges, one for many; returns the exit status."""
    failed = int(np.count_nonzero(result.failed))
    if failed > _FAILURES_SHOWN:
        say(f"error: {_many_failures(devices, result, failed)}")
    else:
        for sentence in devices.failures(result):
            say(f"error: {sentence}")
    late = int(np.count_nonzero(result.status == Status.LATE))
    if late:
        edges = f"{late} of {len(result.status)} edges"
        say(f"note: scheme {result.scheme} does not adapt to the deadline and misses it on {edges}.")
    return 1 if failed else 0


def _many_failures(devices: Fleet, result: Plan, failed: int) -> str:
    """Returns one sentence on all edges without a plan, their devices and the deadline that serves all."""
    problem = result.problem
    words, counts = np.unique(result.status[result.failed], return_counts=True)
    why = ", ".join(f"{count:,} {_WHY[Status(word)]}" for word, count in zip(words.tolist(), counts, strict=True))
    blocks = np.flatnonzero(result.blocking_devices & problem.groups.spread(result.failed))
    names = ", ".join(str(devices.device[n]) for n in blocks[:_NAMES_SHOWN])
    more = f" and {len(blocks) - _NAMES_SHOWN:,} more" if len(blocks) > _NAMES_SHOWN else ""
    who = f"; without {names}{more} the others have a plan" if len(blocks) else ""
    deadline_ms = 1e3 * float(np.max(problem.deadline_s))
    return (
        f"{failed:,} of {counted(len(result.status), 'edge')} have no plan for {deadline_ms:g} ms: {why}{who}; "
        f"{_serves_all(result)}. --json lists all edges."
    )


def _serves_all(result: Plan) -> str:
    smallest_s = float(np.max(result.min_deadline_s))
    if np.isfinite(smallest_s):
        return f"the smallest deadline that serves all is {round_up_ms(smallest_s)} ms"
    return "no deadline serves all, since a device has no uplink rate"


def show_plan(devices: Fleet, result: Plan, answer: dict[str, Any] | None, *, bandwidth_hz: float) -> None:
    """Prints a plan: a summary if there are many devices, then its edges and devices."""
    console = stdout_console()
    if answer:
        is_deadline = answer["question"] == "deadline"
        deadline, band = f"{answer['deadline_ms']:.6g} ms", f"{answer['bandwidth_mhz']:.6g} MHz per edge"
        value, given = (deadline, band) if is_deadline else (band, f"a deadline of {deadline}")
        console.print(
            f"Smallest {answer['question']} for a {answer['statistic']} pruning ratio of at most "
            f"{answer['target_pruning']:g} with {given}: [bold]{value}[/bold]",
            soft_wrap=True,
        )
    if result.problem.num_devices > MANY:
        for sentence in (summary(result, bandwidth_hz), *_price(devices, result, bandwidth_hz)):
            console.print(sentence, markup=False, soft_wrap=True)
    print_table(_edge_table(devices, result))
    console.print()
    print_table(_device_table(devices, result), keys=2)
    say_hidden(result)


def say_hidden(result: Plan) -> None:
    """Prints on stderr how many devices the table does not show."""
    hidden = result.problem.num_devices - ROWS_SHOWN
    if hidden > 0:
        say(f"{hidden:,} more devices; --out plan.csv or --json has all.")


def summary(result: Plan, bandwidth_hz: float) -> str:
    """Returns a plan of many devices in two sentences."""
    problem = result.problem
    planned = ~problem.groups.spread(result.failed)
    deadline = f"{1e3 * float(np.max(problem.deadline_s)):g} ms"
    size = f"{counted(problem.num_devices, 'device')} on {counted(len(result.status), 'edge')}"
    first = f"{size}, scheme {result.scheme}, deadline {deadline}, {bandwidth_hz / 1e6:g} MHz per edge: "
    count = int(np.count_nonzero(planned))
    if not count:
        return f"{first}no edge has a plan; {_serves_all(result)}."
    who = "all have a plan" if planned.all() else f"{count:,} are on edges with a plan"
    ratio, steps = result.pruning_ratio[planned], result.local_steps
    pruned = f"pruning {ratio.mean():.3g} on average, at most {ratio.max():.3g}"
    if steps is not None:
        whole = int(np.count_nonzero(trains_all(result)[planned]))
        pruned = f"{whole:,} train all layers, local steps are {steps[planned].mean():.3g} on average"
    slowest = f"the slowest takes {number(float(np.max(result.latency_s[planned])), '.4g', ' ms', scale=1e3)}"
    return f"{first}{who}; {pruned}; {slowest}. {_serves_all(result).capitalize()}."


def _price(devices: Fleet, result: Plan, bandwidth_hz: float) -> list[str]:
    """Returns a sentence on the shadow price of bandwidth in units of one MHz, if the scheme has one."""
    per_mhz = result.shadow_price / (bandwidth_hz / 1e6)
    known = np.flatnonzero(np.isfinite(per_mhz))
    if not len(known) or not result.problem.groups.num_edges:
        return []
    most = int(known[np.argmax(per_mhz[known])])
    return [
        f"Shadow price of bandwidth: 1 MHz more lowers the objective of scheme {result.scheme} on an edge by "
        f"{np.median(per_mhz[known]):.3g} in the median, by {per_mhz[most]:.3g} on edge {devices.edge_names[most]}."
    ]


def _edge_table(devices: Fleet, result: Plan) -> Table:
    mean_pruning, price = MEASURES["mean_pruning_ratio"], MEASURES["shadow_price"]
    numbers = ("devices", mean_pruning.brief, "round ms", "smallest ms", price.brief)
    table = plain_table("edge", "status", *numbers, numbers=numbers, title=f"Edges, scheme {result.scheme}")
    groups = result.problem.groups
    mean_ratio = groups.sum(result.pruning_ratio) / groups.counts
    for k in range(min(groups.num_edges, ROWS_SHOWN)):
        table.add_row(
            Text(str(devices.edge_names[k])),
            str(result.status[k]),
            f"{groups.counts[k]:,}",
            mean_pruning.text(mean_ratio[k]),
            number(result.edge_latency_s[k], ".3f", scale=1e3),
            round_up_ms(result.min_deadline_s[k]) if np.isfinite(result.min_deadline_s[k]) else MISSING,
            price.text(result.shadow_price[k]),
            style="red" if result.failed[k] else None,
        )
    return table


def _device_table(devices: Fleet, result: Plan) -> Table:
    share, ratio, bits = MEASURES["bandwidth_share"], MEASURES["pruning_ratio"], MEASURES["bits_per_weight"]
    coded = result.bits_per_weight
    numbers = (share.brief, ratio.brief, *([] if coded is None else [bits.brief]), "latency ms")
    table = plain_table("device", "edge", *numbers, numbers=numbers, title="Devices")
    for n in range(min(result.problem.num_devices, ROWS_SHOWN)):
        table.add_row(
            Text(str(devices.device[n])),
            Text(str(devices.edge_names[devices.edge[n]])),
            share.text(result.bandwidth_share[n]),
            ratio.text(result.pruning_ratio[n]),
            *([] if coded is None else [bits.text(coded[n])]),
            number(result.latency_s[n], ".3f", scale=1e3),
        )
    return table


def show_what_if(lines: Sequence[tuple[Change, Outlook]]) -> None:
    """Prints the outcomes of changes as a table, after an empty line."""
    stdout_console().print()
    print_table(_what_if_table(lines))


def _what_if_table(lines: Sequence[tuple[Change, Outlook]]) -> Table:
    given = lines[0][1]
    plans_work = bool(np.isfinite(given.progress))
    pruning = MEASURES["mean_pruning_ratio"].brief
    own: tuple[str, ...] = ("progress", "per second") if plans_work else (pruning, "largest")
    has_steps = not plans_work and bool(np.isfinite(given.mean_steps))
    own = ("train all layers", "mean steps") if has_steps else own
    numbers = ("devices served", "edges served", *own, "slowest ms")
    table = plain_table("what if", *numbers, numbers=numbers, title="What more would buy, each planned anew")
    for change, found in lines:
        if has_steps:
            ratios = f"{found.whole_models:,}", number(found.mean_steps, ".3g")
        elif not plans_work:
            ratios = number(found.mean_pruning, ".3f"), number(found.max_pruning, ".3f")
        elif found is given:
            ratios = number(given.progress, ".4g"), number(given.progress_per_s, ".4g")
        else:
            ratios = (
                percent_more(found.progress, given.progress),
                percent_more(found.progress_per_s, given.progress_per_s),
            )
        table.add_row(
            change.words,
            f"{found.served:,} of {found.num_devices:,}",
            f"{found.full_edges:,} of {found.num_edges:,}",
            *ratios,
            number(found.round_s, ".4g", scale=1e3),
        )
    return table


def percent_more(value: float, before: float) -> str:
    """Returns the relative change in percent, to two digits."""
    if not (np.isfinite(value) and before > 0.0):
        return MISSING
    percent = 100.0 * (value / before - 1.0)
    return f"{percent:+.0f} %" if abs(percent) >= 10.0 else f"{percent:+.2g} %"


def what_if_json(lines: Sequence[tuple[Change, Outlook]]) -> list[dict[str, Any]]:
    """Returns the outcomes of changes for machines."""
    return [{"change": change.words, **found.as_json()} for change, found in lines]
