"""The tables of docs/work.md on device clocks, computed from the recorded league docs/league-played.jsonl.

.venv/bin/python tools/device_table.py             brings the page's tables up to date
.venv/bin/python tools/device_table.py FOLDER      prints those of a league's folder, finished or not

Runs nothing: tuning and test runs are looked up by `airprune league`'s own functions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from airprune.results.statistics import Estimate
from airprune.results.time_to_target import TIME, Costs
from airprune.studies.league.folder import League
from airprune.studies.league.ledger import Line, read_ledger
from airprune.studies.league.lineup import WHOLE
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.standings import Result, Standings
from airprune.studies.league.tracks import UNEQUAL_WORK, tracks_named
from airprune.studies.league.tuning import DEADLINE, RATE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/work.md"
LEDGER = ROOT / "docs/league-played.jsonl"
TRACKS = {"J1": "iid", "J3": "dirichlet"}
OURS = "adaptive-work"
COLUMNS = (
    "",
    "learning rate",
    "deadline s",
    "accuracy %",
    "difference to no pruning",
    "s to target",
    "over `adaptive-work`",
)


def standings(out: Path, recorded: Mapping[str, Line]) -> list[Standings]:
    """Returns the tables of the tracks with the methods that have runs."""
    schedule = SCHEDULES["default"]
    base = schedule.scenario()
    league = League(
        base=base,
        note=schedule.note,
        tracks=tuple(tracks_named(",".join(TRACKS))),
        methods=tuple(UNEQUAL_WORK),
        seeds=schedule.seeds,
        is_tuned=True,
        out=out,
        engine=base.engine,
        recorded=recorded,
    )
    return league.standings()


def table(found: Standings) -> str:
    """Returns the rows with all seeds, the soonest at the target first."""
    done = {row.entry.name: row.result for row in found.rows if len(row.result.runs) == len(found.seeds)}
    done = {name: result for name, result in done.items() if result.entry.has_costs}
    if WHOLE not in done or found.target is None:
        return "*Not recorded yet.*"
    target: float = found.target
    costs = {name: _costs(result, target) for name, result in done.items()}
    rows = []
    for name in sorted(done, key=lambda one: (_median(costs[one]), one)):
        result, knobs = done[name], done[name].knobs or {}
        accuracy = {seed: 100 * run.accuracy_by(found.horizon_s) for seed, run in result.runs.items()}
        whole = {seed: 100 * run.accuracy_by(found.horizon_s) for seed, run in done[WHOLE].runs.items()}
        gap = Estimate.of([accuracy[seed] - whole[seed] for seed in accuracy])
        cells = (
            "no pruning, 64 bits" if name == WHOLE else f"`{name}`",
            f"{knobs.get(RATE, result.entry.scenario.train.learning_rate):g}",
            _deadline(result),
            _pair(Estimate.of(list(accuracy.values()))),
            "–" if name == WHOLE else _pair(gap, sign=True),
            costs[name].text(TIME),
            _ratio(costs[name], costs[OURS]) if OURS in costs and name != OURS else "–",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([f"| {' | '.join(COLUMNS)} |".replace("|  |", "| |"), "|---" * len(COLUMNS) + "|", *rows])


def _costs(result: Result, target: float) -> Costs:
    return Costs.of({seed: run.tests for seed, run in result.runs.items()}, target, TIME)


def _median(costs: Costs) -> float:
    return float(np.median([np.inf if one is None else one for one in costs.by_seed.values()]))


def _deadline(result: Result) -> str:
    given = (result.knobs or {}).get(DEADLINE, result.entry.scenario.plan.deadline_s)
    return given if isinstance(given, str) else f"{given:.3g}"


def _pair(estimate: Estimate, *, sign: bool = False) -> str:
    text = f"{estimate.mean:{'+' if sign else ''}.1f} ± {estimate.half_width:.1f}"
    return text.replace("-", "−")


def _ratio(mine: Costs, other: Costs) -> str:
    """Returns the geometric mean of the ratios, seed by seed, with its 95 % interval."""
    pairs = [(mine.by_seed[seed], other.by_seed[seed]) for seed in mine.by_seed]
    if any(one is None or not np.isfinite(one) for pair in pairs for one in pair):
        return "–"
    logs = Estimate.of([float(np.log(one / two)) for one, two in pairs])
    low, high = np.exp(logs.mean - logs.half_width), np.exp(logs.mean + logs.half_width)
    return f"{np.exp(logs.mean):.2g} × ({low:.2g} … {high:.2g})"


def updated(page: str, found: list[Standings]) -> str:
    """Returns the page with its tables as computed."""
    for one in found:
        marked = re.compile(rf"(<!-- device {TRACKS[one.track.name]} -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
        page = marked.sub(lambda match, one=one: f"{match[1]}{table(one)}\n{match[2]}", page)
    return page


def main() -> None:
    if len(sys.argv) > 1:
        for found in standings(Path(sys.argv[1]), {}):
            target = "" if found.target is None else f", target {found.target:.1%}, compared at {found.horizon_s:g} s"
            sys.stdout.write(f"{found.track.name}{target}\n{table(found)}\n\n")
    else:
        PAGE.write_text(updated(PAGE.read_text(), standings(ROOT / "build/no-league", read_ledger(LEDGER))))


if __name__ == "__main__":
    main()
