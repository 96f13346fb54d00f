"""On-time probabilities of a planned round, what one more nine costs, and what pilots, reports and downlink take."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.cli.console import stdout_console
from airprune.cli.plan_tables import ROWS_SHOWN
from airprune.cli.tables import plain_table, print_table
from airprune.text import MISSING, number

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.rounds.first_round import FirstRound
    from airprune.rounds.on_time import Promise


def show_promises(found: FirstRound) -> None:
    """Prints them; nothing where plans know the fading exactly."""
    from airprune.rounds.on_time import on_time_probability, promises

    probability = on_time_probability(found)
    if probability is None:
        return
    console = stdout_console()
    console.print()
    print_table(_device_table(found, probability), keys=2)
    console.print()
    print_table(_price_table(promises(found), found.problem.num_devices))


def promises_json(found: FirstRound, devices: dict[str, Any]) -> dict[str, Any]:
    """Returns the price of each probability for machines, and adds the column `on_time` to the devices."""
    from airprune.rounds.on_time import on_time_probability, promises

    probability = on_time_probability(found)
    if probability is None:
        return {}
    devices["on_time"] = probability
    return {"promises": [_finite(asdict(one)) for one in promises(found)]}


def show_overhead(found: FirstRound) -> None:
    """Prints what pilots, channel reports and the downlink take; nothing where there are none."""
    from airprune.rounds.overhead import overhead_of, overhead_sentences

    overhead = overhead_of(found)
    for sentence in [] if overhead is None else overhead_sentences(overhead):
        stdout_console().print(sentence, markup=False, soft_wrap=True)


def overhead_json(found: FirstRound) -> dict[str, Any]:
    """Returns the same for machines."""
    from airprune.rounds.overhead import overhead_of

    overhead = overhead_of(found)
    return {} if overhead is None else {"overhead": overhead.as_json()}


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(one, float) and not np.isfinite(one) else one for key, one in values.items()}


def _device_table(found: FirstRound, probability: np.ndarray) -> Table:
    table = plain_table("device", "edge", "on time", numbers=("on time",), title="On-time probability")
    fleet = found.fleet
    for n in np.argsort(probability, kind="stable")[:ROWS_SHOWN]:
        edge = str(fleet.edge_names[fleet.edge[n]])
        table.add_row(str(fleet.device[n]), edge, number(probability[n], ".1f", " %", scale=100.0))
    return table


def _price_table(lines: list[Promise], num_devices: int) -> Table:
    numbers = ("devices served", "mean ρ", "largest ρ", "smallest ms", "ms for the same mean ρ")
    table = plain_table("plan.on_time", *numbers, numbers=numbers, title="What one more nine costs, each planned anew")
    for one in lines:
        table.add_row(
            "none: mean gains" if one.on_time is None else f"{one.on_time:g}",
            f"{one.served:,} of {num_devices:,}",
            number(one.mean_ratio, ".3f"),
            number(one.max_ratio, ".3f"),
            number(one.smallest_deadline_s, ".4g", scale=1e3) if np.isfinite(one.smallest_deadline_s) else MISSING,
            number(one.same_pruning_s, ".4g", scale=1e3) if np.isfinite(one.same_pruning_s) else MISSING,
        )
    return table
