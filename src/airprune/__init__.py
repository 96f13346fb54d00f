"""airprune: hierarchical federated learning with adaptive model pruning over wireless networks.

One edge round, and the modules that make it:

    network    who is where, who serves whom
    channel    path loss, shadowing, fading → rates, Eq. (10)
    planning   shares and ratios that meet the deadline and prune the least
    schemes    one file per way of choosing them
    latency    compute, uplink, rounds and energy, Eqs. (9)–(16)
"""

from airprune.convergence import convergence_bound
from airprune.errors import AirpruneError, Infeasible, InvalidValue, UsageError
from airprune.inverse import smallest_bandwidth_hz, smallest_deadline_s
from airprune.planning import Plan, PlanProblem, Status
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
    "convergence_bound",
    "AirpruneError",
    "UsageError",
    "InvalidValue",
    "Infeasible",
    "__version__",
]
