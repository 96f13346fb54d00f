"""The base class of client selections: the devices that take part in an edge round. The others cost nothing."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from airprune.components.component import Array, LocalComponent
from airprune.planning import Interference, MeasuredWork, Plan
from airprune.planning.edges import EdgeGroups


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Devices that could take part, as known before planning.  Arrays [num_candidates], in one order

    Attributes:
      device: their numbers in the network, ascending.
      edge: the edge of each.
      rates_bps: some of these devices → their r_n of this round, computed for them alone.
      num_samples: D_n.
      rng: a stream of the component's own, the same for every edge and scheme.
      memory: the slots of the selection, the weighting and the scheme; read-only.
      block_rates_bps: (devices, number of blocks) → their full-band rates with the gain of each block of the band,
        for schemes that assign blocks.  [num_devices, num_blocks]
      true_rates_bps: some of these devices → the rates that their links have, where those that are planned with are
        estimates; None: they are exact.
      power_w: some of these devices → the power that each sends with, under power control; None: that of the radio.
      at_once: devices → (number of the group in which each sends, r_n of each beside the others of its group), where
        stations hear several devices at once; None: they send alone.
      snr: some of these devices → their g_n p / σ² of this round over the whole bandwidth; None: it is not simulated.
      interference: some of these devices → their links to other stations of the same bandwidth; None: there is none.
      plans_work: True if local steps and trained parts are planned.
      device_names, edge_names: of the whole network by their numbers, for people; empty: the numbers.
      work: times of their work, where real devices have measured them.
    """

    device: Array
    edge: Array
    rates_bps: Callable[[Array], Array]
    num_samples: Array
    round_index: int
    rng: np.random.Generator
    memory: Mapping[str, Array] = field(default_factory=dict)
    block_rates_bps: Callable[[Array, int], Array] | None = None
    true_rates_bps: Callable[[Array], Array] | None = None
    power_w: Callable[[Array], Array] | None = None
    at_once: Callable[[Array], tuple[Array, Array]] | None = None
    snr: Callable[[Array], Array] | None = None
    interference: Callable[[Array], Interference] | None = None
    plans_work: bool = False
    device_names: Sequence[str] = ()
    edge_names: Sequence[str] = ()
    work: MeasuredWork | None = None

    @cached_property
    def full_band_rate_bps(self) -> Array:
        """r_n of all of them.  [num_candidates]"""
        return self.rates_bps(self.device)

    def link_rates_bps(self, device: Array) -> Array:
        """r_n of some of these devices as their links have it, whatever plans know."""
        return self.rates_bps(device) if self.true_rates_bps is None else self.true_rates_bps(device)


def known_rates(device: Array, rate_bps: Array) -> Callable[[Array], Array]:
    """`Candidates.rates_bps` of devices, ascending, whose rates are known."""
    return lambda wanted: rate_bps[np.searchsorted(device, wanted)]


class Selection(LocalComponent):
    """One client selection. What is not overridden drops no device, ends no round early and keeps no state."""

    @abstractmethod
    def before(self, candidates: Candidates) -> Array:
        """Returns which devices are selected.  [num_candidates] bool"""

    def after(self, candidates: Candidates, plan: Plan) -> Array | None:
        """Returns which of the selected devices stay, given their plan (which may have failed on some edges).

        If one is dropped, the others are planned again and this is called again, until all stay. None: all stay.
        [num_selected] bool
        """
        return None

    def barrier(self, arrives_s: Array, num_devices: int) -> float:
        """Returns when a round ends, if not at the deadline alone; infinite: it waits for all.

        Args:
          arrives_s: seconds until each upload, infinite for those that never come.  [num_selected]
          num_devices: devices of the network.
        """
        return math.inf

    def most(self, count: int) -> int:
        """Returns how many of an edge's `count` devices are selected at the most."""
        return count


def everyone(candidates: Candidates) -> Array:
    """Returns all of them.  [num_candidates] bool"""
    return np.ones(len(candidates.device), dtype=bool)


def number_of(share: float, count: int) -> int:
    """⌈C N_k⌉, at least one; what rounding adds to a whole number does not count."""
    return max(int(np.ceil(share * count - 1e-9)), 1)


def best_of_each_edge(candidates: Candidates, score: Array, share: float | Array) -> Array:
    """The ⌈C N_k⌉ devices of every edge with the highest scores; ties: the lower number.  [num_candidates] bool

    Args:
      share: C; or that of each candidate's edge.  [num_candidates]
    """
    chosen = np.zeros(len(score), dtype=bool)
    shares = np.broadcast_to(share, len(score))
    groups = EdgeGroups.of(candidates.edge)
    for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        places = slice(start, start + count) if groups.order is None else groups.order[start : start + count]
        wanted = number_of(float(shares[places][0]), count)
        chosen[places] = _largest(score[places], wanted)
    return chosen


def _largest(score: Array, count: int) -> Array:
    """The `count` largest; the first ones of those that are equal, no number (NaN) after all numbers.  [len(score)]"""
    if count >= len(score):
        return np.ones(len(score), dtype=bool)
    fallen = -score
    last = np.partition(fallen, count - 1)[count - 1]
    if np.isnan(last):
        chosen, tied = ~np.isnan(fallen), np.isnan(fallen)
    else:
        chosen, tied = fallen < last, fallen == last
    chosen[np.flatnonzero(tied)[: count - np.count_nonzero(chosen)]] = True
    return chosen
