"""Lists the schemes, one file each, that allocate shares and ratios. To add one, write its file and list it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airprune.components.registry import Registry
from airprune.errors import InvalidValue, UnknownName
from airprune.planning.plan import Plan
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme
from airprune.text import shown

SCHEMES: Registry[type[Scheme]] = Registry(
    "schemes",
    {
        "optimal": "airprune.planning.schemes.optimal:Optimal",
        "equal-resolved": "airprune.planning.schemes.equal_resolved:EqualResolved",
        "equal-reused": "airprune.planning.schemes.equal_reused:EqualReused",
        "no-pruning": "airprune.planning.schemes.no_pruning:NoPruning",
        "min-max": "airprune.planning.schemes.min_max:MinMax",
        "min-max-time": "airprune.planning.schemes.min_max_time:MinMaxTime",
        "variance": "airprune.planning.schemes.variance:Variance",
        "hfel": "airprune.planning.schemes.hfel:Hfel",
        "energy": "airprune.planning.schemes.energy:Energy",
        "ren2021": "airprune.planning.schemes.ren2021:Ren2021",
        "conflict-graph": "airprune.planning.schemes.conflict_graph:ConflictGraph",
        "air-budget": "airprune.planning.schemes.air_budget:AirBudget",
        "work": "airprune.planning.schemes.work:Work",
        "ranks": "airprune.planning.schemes.ranks:RanksScheme",
        "timelyfl": "airprune.planning.schemes.timelyfl:TimelyFL",
        "cocofl": "airprune.planning.schemes.cocofl:CoCoFL",
        "equal-codes": "airprune.planning.schemes.equal_codes:EqualCodes",
        "closed-form": "airprune.planning.schemes.closed_form:ClosedForm",
    },
)


def scheme_named(name: str) -> type[Scheme]:
    if name not in SCHEMES:
        raise UnknownName("scheme", name, SCHEMES)
    return SCHEMES[name]


def plan(problem: PlanProblem, scheme: str = "optimal", options: Scheme | Mapping[str, Any] | None = None) -> Plan:
    """Returns shares, ratios and latencies of every device for one edge round, by the named scheme.

    `options` are the scheme's own, as a mapping or as an instance of its class; most schemes have none.
    """
    if not isinstance(problem, PlanProblem):
        raise InvalidValue("plan.problem", "must be a PlanProblem", shown(problem))
    return _with_options(scheme_named(scheme), options).plan(problem)


def _with_options(kind: type[Scheme], options: Any) -> Scheme:
    if type(options) is kind:
        return options
    is_table = isinstance(options, Mapping) and all(isinstance(key, str) for key in options)
    if not kind.model_fields and options is not None and not (is_table and not options):
        raise InvalidValue(f"scheme {kind.name!r}", "takes no options", options if is_table else shown(options))
    if options is not None and not is_table:
        raise InvalidValue(f"Options of scheme {kind.name!r}", "must be a mapping", shown(options))
    return kind(**options) if options else kind.model_construct()  # defaults need no validator, which is slow to build


__all__ = ["SCHEMES", "Allocation", "Scheme", "plan", "scheme_named"]
