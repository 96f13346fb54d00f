"""One file per scheme: how shares and ratios are chosen. To add one, write its file and list it here."""

from __future__ import annotations

from typing import Any

from airprune.errors import InvalidValue, UnknownName
from airprune.planning.plan import Plan
from airprune.planning.problem import PlanProblem
from airprune.registry import Registry
from airprune.schemes.base import Allocation, Scheme
from airprune.wording import shown

SCHEMES: Registry[Scheme] = Registry(
    "schemes",
    {
        "optimal": "airprune.schemes.optimal:SCHEME",
        "equal-resolved": "airprune.schemes.equal_resolved:SCHEME",
        "equal-reused": "airprune.schemes.equal_reused:SCHEME",
        "no-pruning": "airprune.schemes.no_pruning:SCHEME",
        "min-max": "airprune.schemes.min_max:SCHEME",
        "min-max-time": "airprune.schemes.min_max_time:SCHEME",
        "variance": "airprune.schemes.variance:SCHEME",
        "hfel": "airprune.schemes.hfel:SCHEME",
        "energy": "airprune.schemes.energy:SCHEME",
        "ren2021": "airprune.schemes.ren2021:SCHEME",
        "conflict-graph": "airprune.schemes.conflict_graph:SCHEME",
        "air-budget": "airprune.schemes.air_budget:SCHEME",
        "equal-codes": "airprune.schemes.equal_codes:SCHEME",
        "closed-form": "airprune.schemes.closed_form:SCHEME",
    },
)


def scheme_named(name: str) -> Scheme:
    if name not in SCHEMES:
        raise UnknownName("scheme", name, SCHEMES)
    return SCHEMES[name]


def plan(problem: PlanProblem, scheme: str = "optimal", options: Any = None) -> Plan:
    """Shares, ratios and latencies of every device for one edge round, by the named scheme.

    `options` are the scheme's own, as its `Options` or as a mapping of them; most schemes have none.
    """
    if not isinstance(problem, PlanProblem):
        raise InvalidValue("plan.problem", "must be a PlanProblem", shown(problem))
    return scheme_named(scheme).plan(problem, options)


__all__ = ["SCHEMES", "Allocation", "Scheme", "plan", "scheme_named"]
