"""What a selection is: who is asked to take part in an edge round. A device that is not asked costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.components import Component
from airprune.planning import Plan

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Devices that could take part, as known before planning.  Arrays [num_candidates], in one order

    Attributes:
      device: their numbers in the network, ascending.
      edge: who serves each.
      full_band_rate_bps: r_n of this round.
      num_samples: D_n.
      rng: a stream of the component's own, the same for every edge and scheme.
      block_rates_bps: of (devices, number of blocks) → their full-band rates with the gain of each block of the band,
        for schemes that assign blocks.  [num_devices, num_blocks]
    """

    device: Array
    edge: Array
    full_band_rate_bps: Array
    num_samples: Array
    round_index: int
    rng: np.random.Generator
    block_rates_bps: Callable[[Array, int], Array] | None = None


@dataclass(frozen=True, kw_only=True)
class Selection(Component):
    """One way to select; every function takes the component's options first.

    Attributes:
      before: who is asked.  [num_candidates] bool
      after: of those asked, given their plan (which may have failed on some edges): who stays. If somebody is dropped,
        the others are planned again and asked for again, until nobody is.  [num_asked] bool
    """

    before: Callable[[Any, Candidates], Array]
    after: Callable[[Any, Candidates, Plan], Array] | None = None


def everyone(options: Any, candidates: Candidates) -> Array:
    return np.ones(len(candidates.device), dtype=bool)


def best_of_each_edge(candidates: Candidates, score: Array, share: float) -> Array:
    """The ⌈C N_k⌉ devices of every edge with the highest scores; ties: the lower number.  [num_candidates] bool"""
    chosen = np.zeros(len(score), dtype=bool)
    order = np.lexsort((candidates.device, -score, candidates.edge))
    _, starts, counts = np.unique(candidates.edge[order], return_index=True, return_counts=True)
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        wanted = int(np.ceil(share * count - 1e-9))
        chosen[order[start : start + max(wanted, 1)]] = True
    return chosen
