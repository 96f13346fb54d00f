"""airprune: hierarchical federated learning with adaptive model pruning over wireless networks.

The rooms, the lowest first; each imports only those before it:

    settings     how settings take their values: strictly, or with one sentence of complaint
    components   what every component is: its name, options and slots, and the lists it stands in
    tables       device tables as CSV and JSON
    wireless     network, channel, latency, how fast devices compute: Eqs. (4)–(16)
    data         data sets, and which device holds which samples
    models       models as one flat vector; losses; the kernels that compute gradients
    theory       Theorem 1, privacy
    planning     bandwidth shares and pruning ratios that meet the deadline; one file per scheme
    methods      the other components of a round, one package per question, and the recipes that bundle them
    scenario     every setting of a run, and the presets
    engines      where work runs: this process, others, a Dask cluster
    rounds       the steps of a round on devices, edges and cloud, shared by simulation and deployment
    simulation   Algorithm 1 with a simulated clock
    runs         run folders: records, checkpoints, resume
    results      measures, time to a target, tables, figures, reports
    sinks        loggers of others
    studies      many runs with one question: comparisons, sweeps, the paper, the league, advice
    flower       Flower apps on our network, our methods as a Flower strategy
    deployment   cloud, edges and devices as real processes over TLS
    web, cli     pages and commands

A `Scenario` describes an experiment; `train` carries it out, `run` round by round. Every name is imported at its first
use, so that planning does not wait for torch, nor reading a run folder for planning.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # without typing, which takes time: until `airprune` is imported, Ctrl-C shows a traceback
if TYPE_CHECKING:
    from typing import Any

    from airprune.errors import AirpruneError, Diverged, Infeasible, InvalidValue, StopRun, UsageError
    from airprune.methods import METHODS
    from airprune.methods.aggregation.masked_sum import aggregate
    from airprune.methods.compression import compress
    from airprune.methods.registration import register
    from airprune.planning import Plan, PlanProblem, Status
    from airprune.planning.inverse import smallest_bandwidth_hz, smallest_deadline_s
    from airprune.planning.schemes import SCHEMES, plan
    from airprune.results.bound import bound_of
    from airprune.results.frames import load_runs
    from airprune.results.partition import partition_of
    from airprune.runs import run
    from airprune.runs.adapter_bias import adapter_bias
    from airprune.runs.callbacks import Callback
    from airprune.runs.exporting import load_model
    from airprune.runs.round_trace import RoundTrace
    from airprune.runs.trace import trace_round
    from airprune.runs.trained import Trained, train
    from airprune.scenario import Scenario
    from airprune.studies.calls import compare, sweep
    from airprune.studies.deadlines import deadlines
    from airprune.theory.convergence import convergence_bound
    from airprune.theory.privacy import privacy_epsilon

__version__ = "0.1.0"

__all__ = [
    "PlanProblem",
    "plan",
    "Plan",
    "Status",
    "SCHEMES",
    "smallest_deadline_s",
    "smallest_bandwidth_hz",
    "deadlines",
    "aggregate",
    "compress",
    "convergence_bound",
    "privacy_epsilon",
    "Scenario",
    "METHODS",
    "register",
    "run",
    "train",
    "Trained",
    "adapter_bias",
    "trace_round",
    "RoundTrace",
    "load_model",
    "Callback",
    "compare",
    "sweep",
    "load_runs",
    "partition_of",
    "bound_of",
    "AirpruneError",
    "UsageError",
    "InvalidValue",
    "Infeasible",
    "Diverged",
    "StopRun",
    "__version__",
]

_HOMES = {
    "PlanProblem": "planning",
    "plan": "planning.schemes",
    "Plan": "planning",
    "Status": "planning",
    "SCHEMES": "planning.schemes",
    "smallest_deadline_s": "planning.inverse",
    "smallest_bandwidth_hz": "planning.inverse",
    "deadlines": "studies.deadlines",
    "aggregate": "methods.aggregation.masked_sum",
    "compress": "methods.compression",
    "convergence_bound": "theory.convergence",
    "privacy_epsilon": "theory.privacy",
    "Scenario": "scenario",
    "METHODS": "methods",
    "register": "methods.registration",
    "run": "runs",
    "train": "runs.trained",
    "Trained": "runs.trained",
    "adapter_bias": "runs.adapter_bias",
    "trace_round": "runs.trace",
    "RoundTrace": "runs.round_trace",
    "load_model": "runs.exporting",
    "Callback": "runs.callbacks",
    "compare": "studies.calls",
    "sweep": "studies.calls",
    "load_runs": "results.frames",
    "partition_of": "results.partition",
    "bound_of": "results.bound",
    "AirpruneError": "errors",
    "UsageError": "errors",
    "InvalidValue": "errors",
    "Infeasible": "errors",
    "Diverged": "errors",
    "StopRun": "errors",
}


def __getattr__(name: str) -> Any:
    if name == "flower":  # ap.flower.run, without an import of its own
        return importlib.import_module("airprune.flower")
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


def __dir__() -> list[str]:
    return sorted(__all__)
