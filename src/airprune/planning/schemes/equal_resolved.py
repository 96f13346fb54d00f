"""Gives equal shares, with ratios re-optimised for them: a fair baseline that meets the deadline."""

from __future__ import annotations

import numpy as np

from airprune.planning.plan import Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import (
    Allocation,
    Scheme,
    equal_share_latency_s,
    equal_shares,
    status_of_fixed_shares,
)
from airprune.planning.tradeoff import ratio_for_share, share_for_weights

Array = np.ndarray


class EqualResolved(Scheme):
    """Shares the bandwidth equally and prunes as little as that allows."""

    name = "equal-resolved"
    summary = "equal shares; each pruning ratio the smallest that meets the deadline with its share"
    takes_slices = True
    takes_groups = True

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Sets b = 1/N_k, then the smallest ρ that meets the deadline, Eq. (31)."""
        share = equal_shares(problem)
        status = status_of_fixed_shares(problem, share)
        return Allocation(
            share=share,
            ratio=np.minimum(ratio_for_share(problem, share), problem.max_pruning_ratio),
            status=status,
            shadow_price=np.nan,
            min_deadline_s=equal_share_latency_s(problem, problem.smallest_model_weights),
            blocking=_blocking(problem) & problem.groups.spread(status != Status.OK),
        )


def _blocking(problem: PlanProblem) -> Array:
    """Returns the fewest devices without which the others meet the deadline with equal shares, largest needs first.

    If m devices stay, each has the share 1/m: the largest m whose m smallest needs are all at most that. Where devices
    send at once, m counts the groups of the devices that stay.
    """
    groups = problem.groups
    need = groups.arrange(share_for_weights(problem, problem.smallest_model_weights))
    place = groups.repeat(np.arange(groups.num_edges))
    order = np.lexsort((need, place))
    rank = np.empty(len(need))
    rank[order] = np.arange(len(need)) - groups.repeat(groups.starts) + 1.0
    sends = rank if problem.turns is None else _groups_so_far(problem, order)
    staying = np.maximum.reduceat(np.where(need * sends <= 1.0, rank, 0.0), groups.starts)
    return groups.restore(rank > groups.repeat(staying))


def _groups_so_far(problem: PlanProblem, order: Array) -> Array:
    """Returns the number of groups of a device and those of its edge that need no more; in the order of edges."""
    groups = problem.groups
    first = np.zeros(problem.num_devices)
    assert problem.turns is not None
    group = groups.arrange(problem.turns.members.spread(np.arange(problem.turns.members.num_edges)))[order]
    first[np.unique(group, return_index=True)[1]] = 1.0
    running = np.cumsum(first)
    sends = np.empty(len(first))
    sends[order] = running - groups.repeat(running[groups.starts] - first[groups.starts])
    return sends
