"""Page's exact test: do seeds agree on an order more than chance explains?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

# The distribution of orders takes 2^levels steps.
_MOST_LEVELS = 12


def page_p(ranks: Sequence[np.ndarray]) -> float:
    """Returns how often random orders, one per seed, agree as much on a trend in either direction: Page's test.

    The statistic is the sum over seeds of sum_i i rank_i. Its distribution is exact: that of one seed by dynamic
    programming over which ranks are taken, that of all by convolution.
    """
    num_levels = len(ranks[0])
    index = np.arange(num_levels)
    of_one = _order_counts(num_levels)
    counts = np.ones(1)
    for _ in ranks:
        counts = np.convolve(counts, of_one / of_one.sum())
    found = sum(int(index @ mine) for mine in ranks)
    middle = len(ranks) * num_levels * (num_levels - 1) ** 2 / 4
    sums = np.arange(len(counts))
    return float(min(1.0, counts[abs(sums - middle) >= abs(found - middle)].sum()))


@cache
def _order_counts(num_levels: int) -> np.ndarray:
    """Counts the orders of so many levels that have sum_i i rank_i = 0, 1, 2, …"""
    if num_levels > _MOST_LEVELS:
        raise ValueError(f"num_levels must be at most {_MOST_LEVELS}, got {num_levels}")
    largest = num_levels * (num_levels - 1) * (2 * num_levels - 1) // 6
    counts = {0: np.eye(1, largest + 1)[0]}  # by the set of ranks that are taken
    for place in range(num_levels):
        longer: dict[int, np.ndarray] = {}
        for taken, mine in counts.items():
            for rank in range(num_levels):
                if not taken >> rank & 1:
                    shifted = np.roll(mine, place * rank)
                    longer[taken | 1 << rank] = longer.get(taken | 1 << rank, 0.0) + shifted
        counts = longer
    (found,) = counts.values()
    return found
