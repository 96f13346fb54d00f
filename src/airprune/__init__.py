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
    losses       what is minimised, and what models are judged by

    federation   the steps of a round, shared by simulation and deployment
    simulation   Algorithm 1 with a simulated clock
    engines      where work runs
    runs         run folders: records, checkpoints, resume, comparisons
    methods      named bundles of components

A `Scenario` describes an experiment, `run` carries it out. Every name is imported when it is first used, so that
planning does not wait for torch, nor reading a run folder for planning.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airprune.aggregation.masked_sum import aggregate
    from airprune.analysis import load_runs
    from airprune.compression import compress
    from airprune.convergence import convergence_bound
    from airprune.errors import AirpruneError, Diverged, Infeasible, InvalidValue, UsageError
    from airprune.inverse import smallest_bandwidth_hz, smallest_deadline_s
    from airprune.methods import METHODS
    from airprune.planning import Plan, PlanProblem, Status
    from airprune.privacy import privacy_epsilon
    from airprune.registration import register
    from airprune.runs import run
    from airprune.runs.callbacks import Callback
    from airprune.runs.exporting import load_model
    from airprune.scenario import Scenario
    from airprune.schemes import SCHEMES, plan
    from airprune.studies import compare, sweep

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
    "privacy_epsilon",
    "Scenario",
    "METHODS",
    "register",
    "run",
    "load_model",
    "Callback",
    "compare",
    "sweep",
    "load_runs",
    "AirpruneError",
    "UsageError",
    "InvalidValue",
    "Infeasible",
    "Diverged",
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
    "aggregate": "aggregation.masked_sum",
    "compress": "compression",
    "convergence_bound": "convergence",
    "privacy_epsilon": "privacy",
    "Scenario": "scenario",
    "METHODS": "methods",
    "register": "registration",
    "run": "runs",
    "load_model": "runs.exporting",
    "Callback": "runs.callbacks",
    "compare": "studies",
    "sweep": "studies",
    "load_runs": "analysis",
    "AirpruneError": "errors",
    "UsageError": "errors",
    "InvalidValue": "errors",
    "Infeasible": "errors",
    "Diverged": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'airprune' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"airprune.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from airprune import extras

        if sentence := extras.sentence_for(error, f"airprune.{name}"):
            raise extras.MissingExtra(sentence) from error
        raise
    globals()[name] = value
    return value
