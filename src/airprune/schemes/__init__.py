"""One file per scheme: how shares and ratios are chosen. To add one, write its file and list it here."""

from __future__ import annotations

from airprune.errors import UnknownName
from airprune.planning.plan import Plan
from airprune.planning.problem import PlanProblem
from airprune.schemes import closed_form, equal_resolved, equal_reused, min_max, no_pruning, optimal
from airprune.schemes.base import Allocation, Scheme

SCHEMES: dict[str, Scheme] = {
    module.SCHEME.name: module.SCHEME
    for module in (optimal, equal_resolved, equal_reused, no_pruning, min_max, closed_form)
}


def scheme_named(name: str) -> Scheme:
    if name not in SCHEMES:
        raise UnknownName("scheme", name, SCHEMES)
    return SCHEMES[name]


def plan(problem: PlanProblem, scheme: str = "optimal") -> Plan:
    """Shares, ratios and latencies of every device for one edge round, by the named scheme."""
    return scheme_named(scheme).plan(problem)


__all__ = ["SCHEMES", "Allocation", "Scheme", "plan", "scheme_named"]
