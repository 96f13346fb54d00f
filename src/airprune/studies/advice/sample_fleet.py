"""Samples of a large fleet for short runs: some of its edges, and of each a share of its devices.

The devices that are left share the same part of the bandwidth, B p, so that each has about the share of it that it has
in the whole fleet. Whole edges are sampled first, since their plans stay what they are.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune.planning.fleet import RATE, Fleet, read_fleet, write_fleet
from airprune.scenario import Scenario

Array = np.ndarray

# Edges of a sample, at least and at the most.
FEWEST_EDGES, MOST_EDGES = 4, 20


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample of a fleet.

    Attributes:
      kept: positions of its devices in the fleet.
      share: p, the share of each edge's devices that it has.
    """

    fleet: Fleet
    kept: Array
    share: float

    def scenario(self, whole: Scenario, file: Path, *, slower: float = 1.0) -> Scenario:
        """Writes the sample as a table; returns the scenario with it in place of the whole fleet.

        Args:
          slower: factor of measured seconds per sample.
        """
        columns = {name: column[self.kept] for name, column in self.fleet.columns.items()}
        for name in columns.keys() & {"rate_mbps", RATE}:
            columns[name] = columns[name] * self.share
        for name in columns.keys() & {"seconds_per_sample", "seconds_per_step"}:
            columns[name] = columns[name] * slower
        edge_names, edge = np.unique(self.fleet.edge[self.kept], return_inverse=True)
        names = self.fleet.edge_names[edge_names]
        device = self.fleet.device[self.kept]
        write_fleet(dataclasses.replace(self.fleet, device=device, edge_names=names, edge=edge, columns=columns), file)
        changes: dict[str, Any] = {"network.table": str(file)}
        if self.share < 1.0:
            changes["radio.bandwidth_hz"] = whole.radio.bandwidth_hz * self.share
            if whole.radio.noise_density_dbm_per_hz is not None:  # the SNR stays what it is on the whole bandwidth
                changes["radio.transmit_power_dbm"] = whole.radio.transmit_power_dbm + 10.0 * np.log10(self.share)
        return whole.with_values(changes)


def sample_fleet(scenario: Scenario, *, most_devices: int, whole_edges: bool = False) -> Sample | None:
    """Returns a sample of the scenario's table; all of it if it is small enough, None if there is no table.

    Args:
      most_devices: about so many devices.
      whole_edges: whether edges keep all of their devices.
    """
    if scenario.network.table is None:
        return None
    fleet = read_fleet(scenario.network.table)
    count = len(fleet.device)
    if count <= most_devices:
        return Sample(fleet=fleet, kept=np.arange(count), share=1.0)
    num_edges = len(fleet.edge_names)
    has_own_rounds = not isinstance(scenario.rounds.edge_rounds, int)
    wanted = int(np.clip(most_devices * num_edges // count, FEWEST_EDGES, MOST_EDGES))
    edges = np.arange(num_edges) if has_own_rounds else _evenly(num_edges, wanted)
    kept = np.flatnonzero(np.isin(fleet.edge, edges))
    share = 1.0 if whole_edges else min(1.0, most_devices / len(kept))
    if share < 1.0:
        counts = np.bincount(fleet.edge[kept], minlength=num_edges)
        of_edge = [kept[fleet.edge[kept] == k] for k in np.flatnonzero(counts)]
        kept = np.sort(np.concatenate([own[_evenly(len(own), max(1, round(share * len(own))))] for own in of_edge]))
    return Sample(fleet=fleet, kept=kept, share=share)


def _evenly(count: int, wanted: int) -> Array:
    """Returns `wanted` of so many positions, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(np.int64))
