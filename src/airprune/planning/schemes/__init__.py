"""One file per scheme: how shares and ratios are chosen. To add one, write its file and list it here."""

from __future__ import annotations

from typing import Any

from airprune.components.registry import Registry
from airprune.errors import InvalidValue, UnknownName
from airprune.planning.plan import Plan
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme
from airprune.text import shown

SCHEMES: Registry[Scheme] = Registry(
    "schemes",
    {
        "optimal": "airprune.planning.schemes.optimal:SCHEME",
        "equal-resolved": "airprune.planning.schemes.equal_resolved:SCHEME",
        "equal-reused": "airprune.planning.schemes.equal_reused:SCHEME",
        "no-pruning": "airprune.planning.schemes.no_pruning:SCHEME",
        "min-max": "airprune.planning.schemes.min_max:SCHEME",
        "min-max-time": "airprune.planning.schemes.min_max_time:SCHEME",
        "variance": "airprune.planning.schemes.variance:SCHEME",
        "hfel": "airprune.planning.schemes.hfel:SCHEME",
        "energy": "airprune.planning.schemes.energy:SCHEME",
        "ren2021": "airprune.planning.schemes.ren2021:SCHEME",
        "conflict-graph": "airprune.planning.schemes.conflict_graph:SCHEME",
        "air-budget": "airprune.planning.schemes.air_budget:SCHEME",
        "equal-codes": "airprune.planning.schemes.equal_codes:SCHEME",
        "closed-form": "airprune.planning.schemes.closed_form:SCHEME",
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
