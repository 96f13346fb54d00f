"""airprune: hierarchical federated learning with adaptive model pruning over wireless networks.

One edge round, and the modules that make it:

    network    who is where, who serves whom
    channel    path loss, shadowing, fading → rates, Eq. (10)
    planning   shares and ratios that meet the deadline and prune the least
    schemes    one file per way of choosing them
    latency    compute, uplink, rounds and energy, Eqs. (9)–(16)
    pruning    importance of weights, masks, whole neurons, coverage
    learning   masked training on a device, averages at edge and cloud
    rounds     Algorithm 1, which ties them together
    engines    where the devices' work runs
    runs       run folders: records, checkpoints, resume

A `Scenario` describes an experiment, `run` carries it out. Every name is imported when it is first used, so that
planning does not wait for torch, nor reading a run folder for planning.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airprune.convergence import convergence_bound
    from airprune.errors import AirpruneError, Infeasible, InvalidValue, UsageError
    from airprune.inverse import smallest_bandwidth_hz, smallest_deadline_s
    from airprune.learning.aggregate import aggregate
    from airprune.planning import Plan, PlanProblem, Status
    from airprune.runs import run
    from airprune.scenario import Scenario
    from airprune.schemes import SCHEMES, plan

__version__ = "0.1.0"

__all__ = [
    "PlanProblem",
    "plan",
    "Plan",
    "Status",
    "SCHEMES",
    "smallest_deadline_s",
    "smallest_bandwidth_hz",
    "aggregate",
    "convergence_bound",
    "Scenario",
    "run",
    "AirpruneError",
    "UsageError",
    "InvalidValue",
    "Infeasible",
    "__version__",
]

_HOMES = {
    "PlanProblem": "planning",
    "plan": "schemes",
    "Plan": "planning",
    "Status": "planning",
    "SCHEMES": "schemes",
    "smallest_deadline_s": "inverse",
    "smallest_bandwidth_hz": "inverse",
    "aggregate": "learning.aggregate",
    "convergence_bound": "convergence",
    "Scenario": "scenario",
    "run": "runs",
    "AirpruneError": "errors",
    "UsageError": "errors",
    "InvalidValue": "errors",
    "Infeasible": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'airprune' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"airprune.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
