"""`airprune plan`: from a table of devices, or a scenario, to bandwidth shares, pruning ratios and work."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from airprune.checks import quantity
from airprune.cli.console import print_json, records, say
from airprune.cli.options import AsJson, preset_names
from airprune.cli.plan_tables import MANY, outcome_status, show_plan, show_what_if, what_if_json
from airprune.errors import UsageError
from airprune.planning import PlanProblem
from airprune.planning.fleet import Fleet, read_fleet, write_fleet
from airprune.planning.inverse import Answer, smallest_bandwidth_hz, smallest_deadline_s
from airprune.planning.problem import CLASSIFIER_CAP
from airprune.planning.schemes import plan as plan_by
from airprune.planning.schemes import scheme_named
from airprune.planning.what_if import usual_changes, what_if
from airprune.units import mhz_to_hz, ms_to_s


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
            metavar="FLEET|SCENARIO",
            help="CSV or JSON table with one row per device, or - for standard input. Columns: `device`, `edge`, and "
            "one of `snr_db`, `rate_mbps`, `distance_m` or coordinates. Optional: `cpu_hz`, `cycles_per_weight`, "
            "`local_iterations`, `seconds_per_step`, `seconds_per_sample`, `conv_weights`, `fc_weights`, "
            "`objective_weight`, `fixed_bits`, `extra_seconds`. Or a preset or TOML file: its first edge round is "
            "planned, with its model, data, clock and method.",
            autocompletion=preset_names,
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to the scenario, e.g. `method=adaptive-work`."),
    ] = None,
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
        str | None,
        typer.Option(metavar="NAME", help="Scheme (`airprune schemes`), as `plan.scheme`.  [default: optimal]"),
    ] = None,
    max_pruning: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            help="Largest ratio, as `plan.max_pruning_ratio`; 1 would remove the classifier.  "
            f"[default: {CLASSIFIER_CAP}]",
        ),
    ] = None,
    min_pruning: Annotated[
        float | None,
        typer.Option(metavar="RATIO", help="Smallest ratio, as `plan.min_pruning_ratio`.  [default: 0]"),
    ] = None,
    bits_per_weight: Annotated[
        float | None,
        typer.Option(metavar="BITS", help="Bits per uploaded weight; with air-budget the most.  [default: 64]"),
    ] = None,
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
    more: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help=f"Also plan with more bandwidth, time and CPU; without this, for more than {MANY} devices and where "
            "edges have no plan.",
        ),
    ] = False,
    at: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="For a scenario: plan at this time of its traces or movement, as `network.start_s`.",
        ),
    ] = None,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write fleet and plan as CSV, which is a fleet table again.")
    ] = None,
) -> int:
    """Allocate bandwidth and pruning so that devices meet the deadline.

    Every device gets a bandwidth share and a pruning ratio; with scheme `work` also local steps and the part of the
    model that it trains. Options and tables name their units; scenarios have SI units (`plan.deadline_s`).

    Example: `airprune plan fleet.csv --deadline-ms 30`
    """
    deadline = _given("--deadline-ms", deadline_ms, ms_to_s, "--deadline-s", deadline_s)
    bandwidth = _given("--bandwidth-mhz", bandwidth_mhz, mhz_to_hz, "--bandwidth-hz", bandwidth_hz)
    if (solve is None) != (target_pruning is None):
        raise UsageError("--solve and --target-pruning go together. Example: --solve deadline --target-pruning 0.5")
    if _is_scenario(fleet):
        from airprune.cli.plan_scenario import plan_scenario

        if solve is not None:
            raise UsageError(
                f"--solve is for fleet tables, got the scenario {fleet}. For the deadlines of a scenario: "
                f"airprune deadline {fleet}"
            )
        options = {
            "plan.deadline_s": deadline,
            "radio.bandwidth_hz": bandwidth,
            "plan.scheme": scheme,
            "plan.max_pruning_ratio": max_pruning,
            "plan.min_pruning_ratio": min_pruning,
            "plan.bits_per_weight": bits_per_weight,
            "network.start_s": at,
        }
        return plan_scenario(fleet, words or [], options, as_json=as_json, out=out)
    if at is not None:
        raise UsageError(f"--at is for scenarios with traces or moving devices, got the table {fleet}.")
    if words:
        raise UsageError(
            f"KEY=VALUE changes are for scenarios, got {words[0]!r} with the table {fleet}. "
            f"Example: airprune plan demo network.table={fleet} {words[0]}"
        )
    scheme = scheme or "optimal"
    chosen = scheme_named(scheme)
    if chosen.needs_limits:
        raise UsageError(
            f"--scheme {scheme} chooses clock and power within an energy budget, which a fleet table does not have. "
            f"Example: airprune run paper plan.scheme={scheme} plan.max_energy_j=0.01"
        )
    if chosen.chooses_work:
        say(
            f"note: a fleet table has no layers, samples or local steps, so scheme {scheme} plans bits alone; for the "
            f"work: airprune plan device-cpu network.table={fleet} method=adaptive-work"
        )
    deadline, bandwidth = deadline or 0.03, bandwidth or 20e6
    bits_per_weight = 64.0 if bits_per_weight is None else bits_per_weight
    max_pruning = CLASSIFIER_CAP if max_pruning is None else max_pruning
    min_pruning = 0.0 if min_pruning is None else min_pruning
    quantity("--bits-per-weight", bits_per_weight, above=0.0)
    quantity("--max-pruning", max_pruning, at_least=0.0, at_most=1.0)
    quantity("--min-pruning", min_pruning, at_least=0.0, at_most=max_pruning)
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
    asks = more or (not as_json and (problem.num_devices > MANY or int(result.failed.sum()) > 1))
    lines = []
    if asks and answer is None and (as_json or out is None):
        assert result.options is not None
        smallest_s = float(result.min_deadline_s.max()) if result.failed.any() else None
        changes = usual_changes(problem, smallest_deadline_s=smallest_s)
        cpu_hz = devices.columns["cpu_hz"]
        lines = what_if(problem, result.options, changes, bandwidth_hz=bandwidth, cpu_hz=cpu_hz)
    if out is not None:
        write_fleet(devices, out, result)
        say(f"Plan of {problem.num_devices:,} devices written to {out}")
    if as_json:
        extra = {"solve": answer} if answer else {}
        print_json(
            {
                **extra,
                **({"what_if": what_if_json(lines)} if lines else {}),
                "edges": records(devices.edge_columns(result)),
                "devices": records(devices.device_columns(result)),
            }
        )
    elif out is None or answer:
        show_plan(devices, result, answer, bandwidth_hz=bandwidth)
        if lines:
            show_what_if(lines)
    return outcome_status(devices, result)


def _is_scenario(name: str) -> bool:
    """True for a TOML file or the name of a preset, unless a file has that name."""
    if name.endswith(".toml"):
        return True
    if name == "-" or "/" in name or "." in name:
        return False
    return name in preset_names(name) and not Path(name).is_file()


def _given(
    name: str,
    value: float | None,
    to_si: Callable[[float], float],
    si_name: str,
    si_value: float | None,
) -> float | None:
    """Returns a quantity in SI units that is given by one of two options, or none of them."""
    if value is not None and si_value is not None:
        raise UsageError(f"{name} and {si_name} are the same quantity; give one of them.")
    if si_value is not None:
        return float(quantity(si_name, si_value, above=0.0))
    return None if value is None else to_si(float(quantity(name, value, above=0.0)))


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
