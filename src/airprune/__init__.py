"""airprune: hierarchical federated learning with adaptive model pruning over wireless networks.

One edge round, and the packages that make it:

    network      who is where
    channel      path loss, shadowing, fading → rates, Eq. (10)
    association  who serves whom
    selection    who is asked
    planning     shares and ratios that meet the deadline and prune the least
    schemes      one file per way of choosing them
    masking      which sub-model a device holds, trains and sends (with pruning: importances and masks)
    objectives   what a device minimises
    compression  what travels
    aggregation  how parents combine and move, Eqs. (12) and (13)
    topology     who averages whom
    kernels      what computes gradients

    federation   the steps of a round, shared by simulation and deployment
    simulation   Algorithm 1 with a simulated clock
    engines      where work runs
    runs         run folders: records, checkpoints, resume, comparisons
    methods      named bundles of components

A `Scenario` describes an experiment, `run` carries it out. Both are imported when first used, so that planning alone
does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from airprune.aggregation.masked_sum import aggregate
from airprune.convergence import convergence_bound
from airprune.errors import AirpruneError, Infeasible, InvalidValue, UsageError
from airprune.inverse import smallest_bandwidth_hz, smallest_deadline_s
from airprune.planning import Plan, PlanProblem, Status
from airprune.schemes import SCHEMES, plan

if TYPE_CHECKING:
    from airprune.compression import compress
    from airprune.methods import METHODS
    from airprune.registration import register
    from airprune.runs import run
    from airprune.scenario import Scenario

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
    "compress",
    "convergence_bound",
    "Scenario",
    "METHODS",
    "register",
    "run",
    "AirpruneError",
    "UsageError",
    "InvalidValue",
    "Infeasible",
    "__version__",
]

# What is imported when first used.
_LATER = {
    "compress": "airprune.compression",
    "METHODS": "airprune.methods",
    "register": "airprune.registration",
    "run": "airprune.runs",
    "Scenario": "airprune.scenario",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'airprune' has no attribute {name!r}")
