"""The paper's claims about plans, judged on every rung without training.

What a plan prunes, and how long a round then takes, follows from the radio and the deadline alone. So every edge round
of the study's schedule is planned on every rung, for all of its seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airprune.planning.exclusion import without_blockers
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes import plan
from airprune.planning.tradeoff import ratio_for_share
from airprune.studies.claims import Claim, Judgement, Verdict
from airprune.studies.paper.fig3 import DEADLINES_MS
from airprune.studies.paper.fig4 import ABOUT_HALF
from airprune.studies.paper.fig6 import CLOCKS_GHZ, CYCLES, SHARES
from airprune.studies.paper.table2 import SCHEMES
from airprune.studies.radio.pressure import planned_ratios, round_problems
from airprune.studies.radio.rungs import PAPERS, Rung, flat_scenario, scenario_on
from airprune.wireless.latency import seconds_per_weight

_PAPERS_MS = 30.0
_OTHERS_GHZ, _LOCAL_ITERATIONS = 3.0, 2
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The plans of all edge rounds and seeds on one rung.

    Attributes:
      deadline_s: the rung's.
      ratio: mean pruning ratio of the paper's plan at the deadlines of Fig. 3, in proportion to the rung's own; a
        device that blocks its edge is excluded and counts as pruned whole.
      round_s: mean latency of an edge's round by scheme, Eq. (16), over the devices that the paper's plan has.
      flat_s: mean latency of a round of all devices at one station, without pruning; None if no round ends.
      flat_endless: share of these rounds that never end, since a device has no rate at all.
      kept: share of their weights that the devices in the paper's plan upload.
      given: largest growth of a device's ratio with its share of the bandwidth, at the shares and clocks of Fig. 6.
      clocks: by cycles per weight, of the edge rounds whose first device is between its bounds at two clocks of Fig. 6,
        those in which its share never falls with the clock, never falls between the bounds, and its ratio never grows.
    """

    deadline_s: float
    ratio: Mapping[str, float]
    round_s: Mapping[str, float]
    flat_s: float | None
    flat_endless: float
    kept: float
    given: float
    clocks: Mapping[str, Sequence[float]]


def planned(rung: Rung, deadline_s: float, seeds: Iterable[int]) -> Planned:
    """Plans all edge rounds of a rung."""
    ratios: list[list[np.ndarray]] = []
    round_s: dict[str, list[np.ndarray]] = {name: [] for name in SCHEMES}
    flat_s: list[np.ndarray] = []
    kept: list[np.ndarray] = []
    grows: list[float] = []
    sweeps: dict[int, list[np.ndarray]] = {cycles: [] for cycles in CYCLES}
    for seed in seeds:
        scheme, problems = round_problems(scenario_on(rung.settings, PAPERS, seed, deadline_s))
        for problem in problems:
            ratios.append([planned_ratios(scheme, problem, deadline_s * ms / _PAPERS_MS) for ms in DEADLINES_MS])
            papers, in_plan = without_blockers(scheme, problem, scheme.plan(problem))
            if not papers.failed.any():
                for name in SCHEMES:
                    round_s[name].append(plan(problem.subset(in_plan), name).edge_latency_s)
                mine = papers.problem
                weights = mine.conv_weights + mine.fc_weights
                kept.append((mine.conv_weights + mine.fc_weights * (1.0 - papers.pruning_ratio)) / weights)
                alone = replace(mine, interference=None)  # its rates are those with interference
                grows.append(_growth_with_share(alone))
                for cycles in CYCLES:
                    sweeps[cycles].append(_with_clock(alone, cycles))
        _, flat = round_problems(flat_scenario(rung.settings, seed))
        flat_s += [plan(problem, "no-pruning").edge_latency_s for problem in flat]
    ends = np.isfinite(rounds := np.concatenate(flat_s))
    by_deadline = np.array([np.concatenate(list(one)) for one in zip(*ratios, strict=True)])
    return Planned(
        deadline_s=deadline_s,
        ratio={f"{ms} / 30": float(mean) for ms, mean in zip(DEADLINES_MS, by_deadline.mean(axis=1), strict=True)},
        round_s={name: float(np.mean(np.concatenate(found))) for name, found in round_s.items()},
        flat_s=float(np.mean(rounds[ends])) if ends.any() else None,
        flat_endless=float(1.0 - ends.mean()),
        kept=float(np.mean(np.concatenate(kept))),
        given=max(grows),
        clocks={str(cycles): np.mean(np.concatenate(found), axis=0).tolist() for cycles, found in sweeps.items()},
    )


def _growth_with_share(problem: PlanProblem) -> float:
    """Returns by how much a ratio grows at most from one share of Fig. 6 to the next, at all of its clocks."""
    worst = -np.inf
    for cycles in CYCLES:
        for clock in CLOCKS_GHZ:
            slowed = replace(problem, seconds_per_weight=_seconds_per_weight(cycles, clock))
            shares = [np.full(problem.num_devices, share) for share in SHARES]
            ratios = np.minimum([ratio_for_share(slowed, share) for share in shares], 1.0)
            worst = max(worst, float(np.max(np.diff(ratios, axis=0))))
    return worst


def _with_clock(problem: PlanProblem, cycles: int) -> np.ndarray:
    """Returns what a faster clock does to the first device of each edge, all others at 3 GHz.

    Whether its share never falls, never falls while its ratio is between its bounds, and its ratio never grows.
    [number of edges where the ratio is between its bounds at two clocks, 3]
    """
    groups = problem.groups
    first = groups.starts if groups.order is None else groups.order[groups.starts]
    shares, ratios = [], []
    for clock in CLOCKS_GHZ:
        ghz = np.full(problem.num_devices, _OTHERS_GHZ)
        ghz[first] = clock
        found = plan(replace(problem, seconds_per_weight=_seconds_per_weight(cycles, ghz)))
        shares.append(found.bandwidth_share[first])
        ratios.append(found.pruning_ratio[first])
    share, ratio = np.array(shares), np.array(ratios)  # NaN where a slow device leaves its edge without a plan
    low, high = problem.min_pruning_ratio[first], problem.max_pruning_ratio[first]
    inside = (ratio > low + _ROUNDING) & (ratio < high - _ROUNDING)
    steps = np.isfinite(ratio[1:]) & np.isfinite(ratio[:-1])
    rises, falls = np.diff(share, axis=0) >= -_ROUNDING, np.diff(ratio, axis=0) <= _ROUNDING
    between = inside[1:] & inside[:-1]
    holds = [np.all(~steps | rises, axis=0), np.all(~between | rises, axis=0), np.all(~steps | falls, axis=0)]
    return np.column_stack(holds)[between.any(axis=0)]


def _seconds_per_weight(cycles: int, ghz: np.ndarray | float) -> np.ndarray:
    return seconds_per_weight(
        local_iterations=_LOCAL_ITERATIONS, cycles_per_weight=cycles, cpu_hz=np.asarray(ghz) * 1e9
    )


def _longer_deadline_prunes_less(found: Planned) -> Judgement:
    ratios = list(found.ratio.values())
    verdict = Verdict.of(ratios == sorted(ratios, reverse=True) and ratios[-1] < ratios[0])
    listed = ", ".join(f"{name}: {ratio:.2f}" for name, ratio in found.ratio.items())
    reason = f"mean ratio at multiples of the rung's deadline {listed}."
    return Judgement(verdict, reason, {"ratio": dict(found.ratio)})


def _optimal_is_fastest(found: Planned) -> Judgement:
    latency = [1e3 * found.round_s[name] for name in SCHEMES]
    verdict = Verdict.of(latency[0] < latency[1] * (1 - _ROUNDING) < latency[2], partly=latency[0] < latency[2])
    return Judgement(verdict, f"{latency[0]:.1f}, {latency[1]:.1f} and {latency[2]:.1f} ms.", {"latency_ms": latency})


def _latency_halved(found: Planned) -> Judgement:
    saved = 1.0 - found.round_s["optimal"] / found.round_s["no-pruning"]
    low, high = ABOUT_HALF
    reason = f"a round is {saved:.0%} shorter (about half: {low:.0%} to {high:.0%})."
    return Judgement(Verdict.of(low <= saved <= high, partly=saved > 0.25), reason, {"saved": saved})


def _communication_halved(found: Planned) -> Judgement:
    saved = 1.0 - found.kept
    low, high = ABOUT_HALF
    reason = f"{saved:.0%} fewer weights (about half: {low:.0%} to {high:.0%})."
    return Judgement(Verdict.of(low <= saved <= high, partly=saved > 0.25), reason, {"saved": saved})


def _more_band_prunes_less(found: Planned) -> Judgement:
    reason = f"largest change with a larger share {found.given:+.2g}."
    return Judgement(Verdict.of(found.given <= 1e-12), reason, {"largest change": found.given})


def _faster_cpu_gets_more(found: Planned) -> Judgement:
    verdicts, parts = [], []
    for cycles, (rises, between, falls) in found.clocks.items():
        verdicts.append((rises == 1.0 and falls == 1.0, falls == 1.0))
        parts.append(
            f"{cycles} cycles: never more pruning on {falls:.0%} of the edges, never less bandwidth between the bounds "
            f"on {between:.0%}, at all on {rises:.0%}"
        )
    verdict = Verdict.of(all(one for one, _ in verdicts), partly=any(less for _, less in verdicts))
    return Judgement(verdict, f"{'; '.join(parts)}.", {"edges": dict(found.clocks)})


def _flat_is_ten_times_slower(found: Planned) -> Judgement:
    endless = f"{found.flat_endless:.0%} of the rounds without edges never end: a device is out of reach"
    if found.flat_s is None:
        return Judgement(Verdict.HOLDS, f"{endless}.", {"endless": found.flat_endless})
    factor = found.flat_s / found.round_s["no-pruning"]
    reason = f"without pruning {factor:.1f} times as long" + (f"; {endless}." if found.flat_endless else ".")
    numbers = {"factor": factor, "endless": found.flat_endless}
    return Judgement(Verdict.of(factor > 10), reason, numbers)


def _claim(name: str, where: str, text: str, judge: Callable[[Planned], Judgement]) -> Claim[[Planned]]:
    return Claim(name=name, where=where, text=text, judge=judge)


PLAN_CLAIMS: Sequence[Claim[[Planned]]] = (
    _claim(
        "longer-deadline-prunes-less",
        "Fig. 3(c)",
        "A longer deadline needs smaller pruning ratios.",
        _longer_deadline_prunes_less,
    ),
    _claim(
        "optimal-fastest",
        "Table II",
        "Optimal pruning has the shortest round, then equal resources, then no pruning.",
        _optimal_is_fastest,
    ),
    _claim("latency-halved", "Section VI", "Optimal pruning needs about half the time of no pruning.", _latency_halved),
    _claim(
        "communication-halved",
        "Fig. 4(c), abstract",
        "Optimal pruning uploads about half the weights of no pruning.",
        _communication_halved,
    ),
    _claim(
        "more-band-prunes-less",
        "Fig. 6",
        "At the same CPU, more bandwidth means less pruning.",
        _more_band_prunes_less,
    ),
    _claim(
        "faster-cpu-gets-more",
        "Fig. 6, Remark 2",
        "A faster CPU gets more bandwidth and is pruned less.",
        _faster_cpu_gets_more,
    ),
    _claim(
        "flat-ten-times-slower",
        "Table II",
        "A round without hierarchy takes more than ten times as long.",
        _flat_is_ten_times_slower,
    ),
)


def judged_plans(found: Mapping[str, Planned]) -> list[dict[str, Any]]:
    """Returns every claim about plans on every rung, as JSON."""
    return [
        {"claim": one.name, "where": one.where, "text": one.text, "rung": name, **one.judge(mine).as_json()}
        for name, mine in found.items()
        for one in PLAN_CLAIMS
    ]
