"""Table II: per-round compute and communication latency, hierarchical and not, under three schemes.

The paper gives no distances. Devices 118–152 m from their edge, or 580–790 m from the cloud that all 25 then share,
reproduce its numbers with Table I's power, noise and bandwidth. Its "Equal Resource Pruning" is `equal-reused`: ratios
of the joint optimum on equal shares. A cell is the round of one edge (the slowest of its devices, Eq. (16)), mean
and standard deviation over all edges and placements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airprune.planning import PlanProblem
from airprune.planning.schemes import plan
from airprune.results.tidy import select
from airprune.studies.claims import Judgement, Verdict, combined
from airprune.studies.paper.claim import Tables, claims_about
from airprune.wireless.channel import Radio, full_band_rates
from airprune.wireless.latency import seconds_per_weight
from airprune.wireless.network import (
    PAPER_CPU_HZ,
    PAPER_DEVICES_PER_EDGE,
    PAPER_EDGE_DISTANCE_M,
    PAPER_FLAT_RING,
    PAPER_HFL_RING,
    PAPER_NUM_EDGES,
    Network,
    place_flat,
    place_hierarchical,
)

LOCAL_ITERATIONS = 2
CYCLES_PER_WEIGHT = 20
SCHEMES = ("optimal", "equal-reused", "no-pruning")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of Table II: a topology, its deadline, and the printed numbers of the three schemes."""

    topology: str
    deadline_s: float
    paper_ms: tuple[float, float, float]
    paper_spread_ms: tuple[float, float, float]


ROWS = (
    Row(topology="HFL", deadline_s=0.030, paper_ms=(30, 48, 52), paper_spread_ms=(0, 0.21, 0.33)),
    Row(topology="non-HFL", deadline_s=0.350, paper_ms=(350, 590, 750), paper_spread_ms=(0, 12.34, 15.44)),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A measured latency beside the printed one."""

    topology: str
    scheme: str
    mean_ms: float
    spread_ms: float
    paper_ms: float
    paper_spread_ms: float

    @property
    def deviation(self) -> float:
        """The difference relative to the paper's number."""
        return self.mean_ms / self.paper_ms - 1.0


def table2(seeds: Sequence[int]) -> list[Cell]:
    """Returns all six cells, over one placement of the network per seed."""
    cells = []
    for row in ROWS:
        problems = [paper_problem(row, seed) for seed in seeds]
        for i, scheme in enumerate(SCHEMES):
            rounds_ms = 1e3 * np.concatenate([plan(problem, scheme).edge_latency_s for problem in problems])
            cells.append(
                Cell(
                    topology=row.topology,
                    scheme=scheme,
                    mean_ms=float(rounds_ms.mean()),
                    spread_ms=float(rounds_ms.std()),
                    paper_ms=row.paper_ms[i],
                    paper_spread_ms=row.paper_spread_ms[i],
                )
            )
    return cells


def paper_problem(row: Row, seed: int) -> PlanProblem:
    """Returns the paper's network of one row, placed by `seed`, as a planning problem."""
    network = _place(row.topology, seed)
    return PlanProblem(
        full_band_rate_bps=full_band_rates(network, Radio(), seed=seed),
        seconds_per_weight=seconds_per_weight(
            local_iterations=LOCAL_ITERATIONS, cycles_per_weight=CYCLES_PER_WEIGHT, cpu_hz=network.cpu_hz
        ),
        edge=network.edge,
        deadline_s=row.deadline_s,
    )


def _place(topology: str, seed: int) -> Network:
    if topology == "HFL":
        return place_hierarchical(
            num_edges=PAPER_NUM_EDGES,
            devices_per_edge=PAPER_DEVICES_PER_EDGE,
            placement=PAPER_HFL_RING,
            edge_distance_m=PAPER_EDGE_DISTANCE_M,
            cpu_hz=PAPER_CPU_HZ,
            seed=seed,
        )
    return place_flat(
        num_devices=PAPER_NUM_EDGES * PAPER_DEVICES_PER_EDGE,
        placement=PAPER_FLAT_RING,
        cpu_hz=PAPER_CPU_HZ,
        seed=seed,
    )


def _latency(tables: Tables, topology: str, scheme: str) -> float:
    (row,) = select(tables["table2"], topology=topology, scheme=scheme)
    return float(row["mean_ms"])


def _flat_is_ten_times_slower(tables: Tables, preset: str) -> Judgement:
    factors = {scheme: _latency(tables, "non-HFL", scheme) / _latency(tables, "HFL", scheme) for scheme in SCHEMES}
    verdict = Verdict.of(min(factors.values()) > 10, partly=max(factors.values()) > 10)
    listed = ", ".join(f"{scheme} {factor:.1f} ×" for scheme, factor in factors.items())
    return Judgement(
        verdict,
        f"{listed}. The optimal scheme's factor is the ratio of the two deadlines, which the authors chose.",
        {scheme: round(factor, 2) for scheme, factor in factors.items()},
    )


def _optimal_is_fastest(tables: Tables, preset: str) -> Judgement:
    parts = []
    for topology in ("HFL", "non-HFL"):
        latency = [_latency(tables, topology, s) for s in SCHEMES]
        verdict = Verdict.of(latency[0] < latency[1] < latency[2])
        reason = f"{topology}: {latency[0]:.1f}, {latency[1]:.1f} and {latency[2]:.1f} ms."
        parts.append(Judgement(verdict, reason, {topology: [round(x, 2) for x in latency]}))
    return combined(parts)


def _latencies_agree(tables: Tables, preset: str) -> Judgement:
    deviation = {f"{r['topology']}, {r['scheme']}": r["mean_ms"] / r["paper_ms"] - 1 for r in tables["table2"]}
    worst = max(deviation, key=lambda key: abs(deviation[key]))
    verdict = Verdict.of(abs(deviation[worst]) <= 0.05)
    reason = f"largest deviation {deviation[worst]:+.1%} ({worst}), distances inferred since the paper gives none."
    return Judgement(verdict, reason, {key: f"{value:+.1%}" for key, value in deviation.items()})


CLAIMS = claims_about(
    "table2",
    {
        "flat-ten-times-slower": (
            "Table II",
            "A round without hierarchy takes more than ten times as long.",
            _flat_is_ten_times_slower,
        ),
        "optimal-fastest": (
            "Table II",
            "Optimal pruning has the shortest round, then equal resources, then no pruning.",
            _optimal_is_fastest,
        ),
        "table-2-numbers": ("Table II", "The printed latencies.", _latencies_agree),
    },
    by_preset=False,
)
