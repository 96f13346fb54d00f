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

A `Scenario` describes an experiment, `run` carries it out. Both are imported when first used, so that planning alone
does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airprune.convergence import convergence_bound
from airprune.errors import AirpruneError, Infeasible, InvalidValue, UsageError
from airprune.inverse import smallest_bandwidth_hz, smallest_deadline_s
from airprune.learning.aggregate import aggregate
from airprune.planning import Plan, PlanProblem, Status
from airprune.schemes import SCHEMES, plan

if TYPE_CHECKING:
    from airprune.compression import compress
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
    "run",
    "AirpruneError",
    "UsageError",
    "InvalidValue",
    "Infeasible",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "run":
        from airprune.runs import run

        return run
    if name == "Scenario":
        from airprune.scenario import Scenario

        return Scenario
    if name == "compress":
        from airprune.compression import compress

        return compress
    raise AttributeError(f"module 'airprune' has no attribute {name!r}")
