"""The errata as checked statements: each is observed by a small computation, and the evidence is written down."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.planning.schemes import plan
from airprune.randomness import rng_for
from airprune.results.tidy import Rows, select
from airprune.studies.claims import Judgement, Verdict
from airprune.studies.paper.claim import Judge, Tables, claims_about
from airprune.studies.paper.table2 import ROWS, paper_problem
from airprune.theory.convergence import convergence_bound


def rows() -> Rows:
    return [
        {"name": name, "observed": "yes" if observed else "no", "evidence": evidence}
        for name, (observed, evidence) in {
            "negative-bandwidth": _negative_bandwidth(),
            "remark-2": _remark_2(),
            "identity": _identity(),
            "h2": _h2(),
            "frozen-mask": _frozen_mask(),
        }.items()
    ]


def _negative_bandwidth() -> tuple[bool, str]:
    shares = plan(paper_problem(ROWS[0], seed=0), "closed-form").bandwidth_share
    negative = int(np.count_nonzero(shares < 0))
    return (
        negative > 0,
        f"{negative} of 25 devices get a negative share, the lowest {shares.min():.2f} of the bandwidth.",
    )


def _remark_2() -> tuple[bool, str]:
    """Compares, on each edge of the paper's network, the shares of the best channel and the worst."""
    problem = paper_problem(ROWS[0], seed=0)
    result = plan(problem)
    need_more = []
    for edge in problem.edge_ids:
        mine = problem.edge == edge
        order = np.argsort(problem.full_band_rate_bps[mine])
        share = result.bandwidth_share[mine][order]
        need_more.append(share[0] > share[-1])
    wins = int(np.count_nonzero(need_more))
    evidence = (
        f"on {5 - wins} of 5 edges the best channel gets a larger share than the worst; a r b stays below q̂ throughout."
    )
    product = problem.seconds_per_weight * problem.full_band_rate_bps * result.bandwidth_share
    return wins <= 1 and bool(np.all(product < 64.0)), evidence


def _identity() -> tuple[bool, str]:
    rng = rng_for(0, "errata-identity")
    deadline, a, conv, fully, bits = 10.0 ** rng.uniform(-3, 3, (5, 1000))
    v1, v2, v3, v4 = deadline - a * conv, bits * conv, a * fully, bits * fully
    scale = np.abs(v1 * v4) + np.abs(v2 * v3)
    worst = float(np.max(np.abs(v1 * v4 + v2 * v3 - bits * fully * deadline) / scale))
    return worst < 1e-12, f"largest relative difference over 1,000 random settings: {worst:.1e}."


def _h2() -> tuple[bool, str]:
    settings: dict[str, Any] = {
        "initial_loss_gap": 1.0,
        "learning_rate": 1e-3,
        "smoothness": 2.0,
        "gradient_bound": 1.0,
        "gradient_noise": 0.5,
        "pruning_noise": 3.0,
        "num_global_rounds": 10,
        "num_edge_rounds": 5,
        "num_local_iterations": 2,
        "num_weights": 100,
        "num_devices": 25,
        "min_coverage": 1,
        "pruning_ratio_sum": 10.0,
    }
    printed = convergence_bound(**settings, variant="paper").h2
    corrected = convergence_bound(**settings).h2
    evidence = f"H2 = {float(printed):.4g} as printed, {float(corrected):.4g} by Eq. (58)."
    return not np.isclose(printed, corrected), evidence


def _frozen_mask() -> tuple[bool, str]:
    """Shows on a least-squares model that masked gradient steps leave |w − ŵ| = 0 wherever the mask is zero."""
    rng = rng_for(0, "errata-mask")
    data, target, weights = rng.normal(size=(64, 40)), rng.normal(size=64), rng.normal(size=40)
    mask = rng.random(40) < 0.5
    received = weights * mask
    gradient = data.T @ (data @ received - target) / 64
    literal = np.abs(received - (received - 0.1 * gradient * mask))
    dense = np.abs(0.1 * gradient)
    frozen = bool(np.all(literal[~mask] == 0.0)) and bool(np.all(dense[~mask] > 0.0))
    pruned = int(np.count_nonzero(~mask))
    evidence = f"all {pruned} pruned weights score exactly 0 after masked steps; under a dense probe none does."
    return frozen, evidence


def _erratum(key: str) -> Judge:
    def judge(tables: Tables, preset: str) -> Judgement:
        (row,) = select(tables["errata"], name=key)
        verdict = Verdict.of(row["observed"] == "yes")
        return Judgement(verdict, str(row["evidence"]))

    return judge


# Name → (where, the error).
_ERRATA = {
    "negative-bandwidth": (
        "Theorem 3",
        "The printed closed form hands out negative bandwidth in the paper's own range.",
    ),
    "remark-2": ("Remark 2", "In the paper's range the worse channel gets less bandwidth, not more."),
    "identity": ("Theorem 3", "V1 V4 + V2 V3 equals q̂ W_fully T_th identically."),
    "h2": ("Eq. (24)", "H2 as printed does not follow from Eq. (58)."),
    "frozen-mask": ("Eq. (2)", "Read literally, Eq. (2) gives every pruned weight importance zero for ever."),
}

CLAIMS = claims_about(
    "errata",
    {f"erratum-{key}": (f"{where} (our erratum)", text, _erratum(key)) for key, (where, text) in _ERRATA.items()},
    by_preset=False,
)
