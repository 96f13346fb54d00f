"""The first edge round of a scenario as `airprune plan` shows it: work, times and prices of every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.cli.console import print_json, records, say, stdout_console
from airprune.cli.plan_tables import (
    MANY,
    ROWS_SHOWN,
    outcome_status,
    percent_more,
    say_hidden,
    show_plan,
    show_what_if,
    summary,
    what_if_json,
)
from airprune.cli.promise_tables import overhead_json, promises_json, show_overhead, show_promises
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.tables import plain_table, print_table
from airprune.extras import need
from airprune.results.measures import MEASURES
from airprune.text import capitalised, clocks_text, counted, number

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.planning.what_if import Change, Outlook
    from airprune.rounds.first_round import FirstRound

_GHZ = 1e9


def plan_scenario(
    name: str, words: Sequence[str], options: Mapping[str, Any], *, as_json: bool, out: Path | None
) -> int:
    """Plans the first edge round of a scenario, prints it and returns the exit status.

    Args:
      options: values of scenario keys that command options give; None where they do not.
    """
    scenario = scenario_from(name, words).with_values({k: v for k, v in options.items() if v is not None})
    need("train", "airprune plan SCENARIO")
    from airprune.planning.fleet import write_fleet
    from airprune.planning.what_if import usual_changes, what_if
    from airprune.rounds.experiment import Experiment
    from airprune.rounds.first_round import first_round
    from airprune.rounds.over_the_air import rate_over_the_air_bps

    found = first_round(Experiment.of(scenario))
    bandwidth_hz = found.experiment.radio.bandwidth_hz
    smallest_s = float(found.plan.min_deadline_s.max()) if found.plan.failed.any() else None
    changes = usual_changes(found.problem, smallest_deadline_s=smallest_s)
    if rate_over_the_air_bps(found.experiment.context) is not None:  # a sum takes as long whatever the bits
        changes = [change for change in changes if change.times_bits == 1.0]
    lines = what_if(found.problem, found.scheme, changes, bandwidth_hz=bandwidth_hz, cpu_hz=found.cpu_hz)
    if out is not None:
        write_fleet(found.fleet, out, found.plan)
        say(f"Plan of {counted(found.problem.num_devices, 'device')} written to {out}")
    if as_json:
        print_json(_document(name, found, lines))
    elif out is None:
        _show(found, lines)
    status = outcome_status(found.fleet, found.plan)
    if status and scenario.plan.infeasible == "drop":
        say("note: a run drops the devices that block their edge, since plan.infeasible = drop.")
    return status


def _show(found: FirstRound, lines: Sequence[tuple[Change, Outlook]]) -> None:
    scenario, plan = found.experiment.scenario, found.plan
    bandwidth_hz = found.experiment.radio.bandwidth_hz
    if plan.local_steps is None:
        show_plan(found.fleet, plan, None, bandwidth_hz=bandwidth_hz)
    else:
        console = stdout_console()
        if plan.problem.num_devices > MANY:
            console.print(summary(plan, bandwidth_hz), markup=False, soft_wrap=True)
        tuned = " (found for this round)" if scenario.plan.deadline_s == "auto" else ""
        console.print(
            f"First edge round, scheme {plan.scheme}, deadline {number(found.deadline_s, '.4g', ' s')}{tuned}. "
            f"{clocks_text([scenario.clock.words])}",
            markup=False,
            soft_wrap=True,
        )
        print_table(_work_table(found), keys=2)
        say_hidden(plan)
        for sentence in price_sentences(found, lines):
            console.print(sentence, markup=False, soft_wrap=True)
    show_what_if(lines)
    show_promises(found)
    show_overhead(found)


def _work_table(found: FirstRound) -> Table:
    share, bits = MEASURES["bandwidth_share"], MEASURES["bits_per_weight"]
    plan, fleet, names = found.plan, found.fleet, found.part_names
    times = _times_s(found)
    shown_bits = _bits(found)
    numbers = ("GHz", "steps", "bits", share.brief, *(f"{name} ms" for name in times), "total ms")
    table = plain_table("device", "edge", "GHz", "trains", *numbers[1:], numbers=numbers)
    failed = plan.problem.groups.spread(plan.failed)
    assert plan.local_steps is not None
    for n in range(min(plan.problem.num_devices, ROWS_SHOWN)):
        table.add_row(
            str(fleet.device[n]),
            str(fleet.edge_names[fleet.edge[n]]),
            number(found.cpu_hz[n], ".3g", scale=1e-9),
            "no plan" if failed[n] else names[found.part[n]],
            "" if failed[n] else f"{plan.local_steps[n]:,}",
            "" if failed[n] else bits.text(shown_bits[n]),
            share.text(plan.bandwidth_share[n]),
            *(number(time[n], ".4g", scale=1e3) for time in times.values()),
            number(plan.latency_s[n], ".4g", scale=1e3),
            style="red" if failed[n] else None,
        )
    return table


def _bits(found: FirstRound) -> np.ndarray:
    chosen = found.plan.bits_per_weight
    return np.asarray(found.problem.bits_per_weight if chosen is None else chosen)


def _times_s(found: FirstRound) -> dict[str, np.ndarray]:
    """Returns the times of a device by what it does: forward and backward where the clock counts them."""
    forward_s, work = found.forward_s, found.problem.work
    if forward_s is None or work is None:
        return {"compute": found.compute_s, "upload": found.uplink_s}
    probe_s = np.broadcast_to(work.extra_s, forward_s.shape)
    times = {"forward": forward_s, "backward": found.compute_s - forward_s - probe_s}
    return times | ({"probe": probe_s} if probe_s.any() else {}) | {"upload": found.uplink_s}


def _prices(lines: Sequence[tuple[Change, Outlook]]) -> list[tuple[Change, Outlook]]:
    """Returns the changes by one unit: a MHz, a second, a GHz; none where not all devices are served as given."""
    given = lines[0][1]
    if not (np.isfinite(given.progress) and given.served == given.num_devices):
        return []
    return [line for line in lines[1:] if line[0].more_hz or line[0].more_s or line[0].more_cpu_hz]


def price_sentences(found: FirstRound, lines: Sequence[tuple[Change, Outlook]]) -> list[str]:
    """Returns what one more MHz, second and GHz would buy, in percent of the round's progress."""
    given, sentences = lines[0][1], []
    for change, outcome in _prices(lines):
        gain = percent_more(outcome.progress, given.progress)
        pace = percent_more(outcome.progress_per_s, given.progress_per_s)
        sentence = f"{change.words} buys {gain} progress a round, {pace} a second"
        alone = _faster_alone(found) if change.more_cpu_hz else None
        if alone is not None:
            best = int(np.argmax(alone))
            most = percent_more(float(alone[best]), given.progress)
            sentence += f"; at device {found.fleet.device[best]} alone {most}, the most of all"
        sentences.append(f"{capitalised(sentence)}.")
    return sentences


@cache
def _faster_alone(found: FirstRound) -> np.ndarray | None:
    """Returns the progress with 1 GHz more at each device alone, planned anew; None for fleets too large for that."""
    from airprune.planning.what_if import outlook

    problem, work = found.problem, found.problem.work
    if work is None or problem.num_devices > MANY or found.plan.failed.any():
        return None
    faster = 1.0 + np.diag(_GHZ / found.cpu_hz)
    plans = (outlook(replace(problem, work=work.faster(factor)), found.scheme) for factor in faster)
    return np.array([plan.progress for plan in plans])


def _document(name: str, found: FirstRound, lines: Sequence[tuple[Change, Outlook]]) -> dict[str, Any]:
    """Returns the plan for machines."""
    scenario, fleet, plan = found.experiment.scenario, found.fleet, found.plan
    devices = fleet.device_columns(plan)
    edges = fleet.edge_columns(plan)
    if plan.local_steps is not None:
        part_names = np.array(found.part_names)
        devices |= {"cpu_hz": found.cpu_hz, "trains": part_names[found.part], "bits_per_weight": _bits(found)}
        devices |= {f"{word}_ms": 1e3 * time for word, time in _times_s(found).items()}
        if plan.value is not None and plan.value_bound is not None:
            bandwidth_mhz = found.experiment.radio.bandwidth_hz / 1e6
            edges |= {"progress": plan.value, "progress_bound": plan.value_bound}
            edges |= {"progress_per_mhz": plan.shadow_price / bandwidth_mhz}
        if (alone := _faster_alone(found)) is not None:
            devices |= {"progress_with_1_ghz_more": alone}
    return {
        "scenario": name,
        "scheme": plan.scheme,
        "clock": scenario.clock.words,
        "deadline_ms": 1e3 * found.deadline_s,
        "bandwidth_mhz": found.experiment.radio.bandwidth_hz / 1e6,
        "prices": [
            {
                "change": change.words,
                "progress_percent": 100.0 * (outcome.progress / lines[0][1].progress - 1.0),
                "progress_per_s_percent": 100.0 * (outcome.progress_per_s / lines[0][1].progress_per_s - 1.0),
            }
            for change, outcome in _prices(lines)
        ],
        "what_if": what_if_json(lines),
        **promises_json(found, devices),
        **overhead_json(found),
        "edges": records({key: np.asarray(value) for key, value in edges.items()}),
        "devices": records({key: np.asarray(value) for key, value in devices.items()}),
    }
