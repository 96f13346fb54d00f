"""`airprune plan`: from a table of devices to bandwidth shares and pruning ratios."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from airprune.checks import quantity
from airprune.cli.console import print_json, records, say, stdout_console
from airprune.cli.options import AsJson
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError
from airprune.planning import Plan, PlanProblem, Status
from airprune.planning.fleet import Fleet, read_fleet, write_fleet
from airprune.planning.inverse import Answer, smallest_bandwidth_hz, smallest_deadline_s
from airprune.planning.plan import round_up_ms
from airprune.planning.problem import CLASSIFIER_CAP
from airprune.planning.schemes import plan as plan_by
from airprune.planning.schemes import scheme_named
from airprune.results.measures import MEASURES
from airprune.text import MISSING, number
from airprune.units import mhz_to_hz, ms_to_s

# A table shows this many devices; --json and --out have all.
_ROWS_SHOWN = 40
_FAILURES_SHOWN = 10


class Question(StrEnum):
    deadline = "deadline"
    bandwidth = "bandwidth"


class TargetStatistic(StrEnum):
    mean = "mean"
    max = "max"


def plan(
    fleet: Annotated[
        str,
        typer.Argument(
            metavar="FLEET",
            help="CSV or JSON table with one row per device, or - for standard input. Columns: `device`, `edge`, and "
            "one of `snr_db`, `rate_mbps`, `distance_m` or coordinates. Optional: `cpu_hz`, `cycles_per_weight`, "
            "`local_iterations`, `seconds_per_step`, `seconds_per_sample`, `conv_weights`, `fc_weights`, "
            "`objective_weight`, `fixed_bits`, `extra_seconds`.",
        ),
    ],
    deadline_ms: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Deadline of an edge round, compute plus upload.  [default: 30]"),
    ] = None,
    deadline_s: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="The same in seconds, as `plan.deadline_s` of a scenario.")
    ] = None,
    bandwidth_mhz: Annotated[
        float | None, typer.Option(metavar="MHZ", help="Uplink bandwidth of each edge.  [default: 20]")
    ] = None,
    bandwidth_hz: Annotated[
        float | None, typer.Option(metavar="HZ", help="The same in hertz, as `radio.bandwidth_hz` of a scenario.")
    ] = None,
    scheme: Annotated[
        str, typer.Option(metavar="NAME", help="Scheme (`airprune schemes`), as `plan.scheme`.")
    ] = "optimal",
    max_pruning: Annotated[
        float,
        typer.Option(
            metavar="RATIO", help="Largest ratio, as `plan.max_pruning_ratio`; 1 would remove the classifier."
        ),
    ] = CLASSIFIER_CAP,
    min_pruning: Annotated[
        float, typer.Option(metavar="RATIO", help="Smallest ratio, as `plan.min_pruning_ratio`.")
    ] = 0.0,
    bits_per_weight: Annotated[
        float, typer.Option(metavar="BITS", help="Bits per uploaded weight; with air-budget the most.")
    ] = 64.0,
    solve: Annotated[
        Question | None,
        typer.Option(help="Find the smallest deadline, or bandwidth per edge, that keeps pruning at --target-pruning."),
    ] = None,
    target_pruning: Annotated[
        float | None, typer.Option(metavar="RATIO", help="With --solve: the ratio to stay at or below.")
    ] = None,
    statistic: Annotated[
        TargetStatistic, typer.Option(help="With --solve: the target is for the mean or the largest ratio.")
    ] = TargetStatistic.mean,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write fleet and plan as CSV, which is a fleet table again.")
    ] = None,
) -> int:
    """Allocate bandwidth and pruning so that devices meet the deadline.

    Every device gets a bandwidth share and a pruning ratio. Options and tables name their units; scenarios have SI
    units (`plan.deadline_s`).

    Example: `airprune plan fleet.csv --deadline-ms 30`
    """
    chosen = scheme_named(scheme)
    if chosen.needs_limits:
        raise UsageError(
            f"--scheme {scheme} chooses clock and power within an energy budget, which a fleet table does not have. "
            f"Example: airprune run paper plan.scheme={scheme} plan.max_energy_j=0.01"
        )
    deadline = _given("--deadline-ms", deadline_ms, ms_to_s, "--deadline-s", deadline_s, default=0.03)
    bandwidth = _given("--bandwidth-mhz", bandwidth_mhz, mhz_to_hz, "--bandwidth-hz", bandwidth_hz, default=20e6)
    quantity("--bits-per-weight", bits_per_weight, above=0.0)
    quantity("--max-pruning", max_pruning, at_least=0.0, at_most=1.0)
    quantity("--min-pruning", min_pruning, at_least=0.0, at_most=max_pruning)
    if (solve is None) != (target_pruning is None):
        raise UsageError("--solve and --target-pruning go together. Example: --solve deadline --target-pruning 0.5")
    devices = read_fleet(fleet)
    for column in devices.ignored:
        say(f"note: ignored column {column}")
    problem = devices.problem(
        bandwidth_hz=bandwidth,
        deadline_s=deadline,
        **_bits(devices, bits_per_weight, chosen.chooses_codes),
        max_pruning_ratio=max_pruning,
        min_pruning_ratio=min_pruning,
    )
    answer: dict[str, Any] | None = None
    if solve is not None and target_pruning is not None:
        found = _solve(problem, solve, bandwidth, target_pruning, statistic, scheme)
        result = found.plan
        answer = _answer(
            found,
            solve,
            target_pruning,
            statistic,
            deadline_ms=deadline_ms or deadline * 1e3,
            bandwidth_mhz=bandwidth_mhz or bandwidth / 1e6,
        )
    else:
        result = plan_by(problem, scheme)
    if out is not None:
        write_fleet(devices, out, result)
        say(f"Plan of {problem.num_devices:,} devices written to {out}")
    if as_json:
        extra = {"solve": answer} if answer else {}
        print_json(
            {
                **extra,
                "edges": records(devices.edge_columns(result)),
                "devices": records(devices.device_columns(result)),
            }
        )
    elif out is None or answer:
        _show(devices, result, answer)
    return _verdict(devices, result)


def _given(
    name: str,
    value: float | None,
    to_si: Callable[[float], float],
    si_name: str,
    si_value: float | None,
    *,
    default: float,
) -> float:
    """Returns a quantity in SI units that is given by one of two options."""
    if value is not None and si_value is not None:
        raise UsageError(f"{name} and {si_name} are the same quantity; give one of them.")
    if si_value is not None:
        return float(quantity(si_name, si_value, above=0.0))
    return default if value is None else to_si(float(quantity(name, value, above=0.0)))


def _bits(devices: Fleet, bits_per_weight: float, chooses_codes: bool) -> dict[str, Any]:
    """Returns the bits of an uploaded weight, or the compression levels up to these of which a scheme chooses."""
    if not chooses_codes:
        return {"bits_per_weight": bits_per_weight}
    ladder = devices.ladder(bits_per_weight)
    return {"bits_per_weight": float(ladder.bits_per_weight[0]), "ladder": ladder}


def _solve(
    problem: PlanProblem, question: Question, bandwidth_hz: float, target: float, statistic: str, scheme: str
) -> Answer:
    settings: dict[str, Any] = {"target_pruning": target, "statistic": str(statistic), "scheme": scheme}
    if question is Question.deadline:
        return smallest_deadline_s(problem, **settings)
    return smallest_bandwidth_hz(problem, bandwidth_hz=bandwidth_hz, **settings)


def _answer(
    found: Answer, question: Question, target: float, statistic: str, *, deadline_ms: float, bandwidth_mhz: float
) -> dict[str, Any]:
    """Returns the value that was found, and the other of deadline and bandwidth, which was given."""
    if question is Question.deadline:
        deadline_ms = found.value * 1e3
    else:
        bandwidth_mhz = found.value * 1e-6
    return {
        "question": question.value,
        "deadline_ms": deadline_ms,
        "bandwidth_mhz": bandwidth_mhz,
        "target_pruning": target,
        "statistic": str(statistic),
        "relative_tolerance": 1e-9,
    }


def _verdict(devices: Fleet, result: Plan) -> int:
    """Prints on stderr what failed; returns the exit status."""
    failures = devices.failures(result)
    for sentence in failures[:_FAILURES_SHOWN]:
        say(f"error: {sentence}")
    if len(failures) > _FAILURES_SHOWN:
        say(f"error: {len(failures) - _FAILURES_SHOWN} more edges have no plan; --json lists all.")
    late = int(np.count_nonzero(result.status == Status.LATE))
    if late:
        edges = f"{late} of {len(result.status)} edges"
        say(f"note: scheme {result.scheme} does not adapt to the deadline and misses it on {edges}.")
    return 1 if failures else 0


def _show(devices: Fleet, result: Plan, answer: dict[str, Any] | None) -> None:
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
    print_table(_edge_table(devices, result))
    console.print()
    print_table(_device_table(devices, result), keys=2)
    hidden = result.problem.num_devices - _ROWS_SHOWN
    if hidden > 0:
        say(f"{hidden:,} more devices; --out plan.csv or --json has all.")


def _edge_table(devices: Fleet, result: Plan) -> Table:
    mean_pruning, price = MEASURES["mean_pruning_ratio"], MEASURES["shadow_price"]
    numbers = ("devices", mean_pruning.brief, "round ms", "smallest ms", price.brief)
    table = plain_table("edge", "status", *numbers, numbers=numbers, title=f"Edges, scheme {result.scheme}")
    groups = result.problem.groups
    mean_ratio = groups.sum(result.pruning_ratio) / groups.counts
    for k in range(min(groups.num_edges, _ROWS_SHOWN)):
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
    for n in range(min(result.problem.num_devices, _ROWS_SHOWN)):
        table.add_row(
            Text(str(devices.device[n])),
            Text(str(devices.edge_names[devices.edge[n]])),
            share.text(result.bandwidth_share[n]),
            ratio.text(result.pruning_ratio[n]),
            *([] if coded is None else [bits.text(coded[n])]),
            number(result.latency_s[n], ".3f", scale=1e3),
        )
    return table
