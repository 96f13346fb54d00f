"""Fits a scenario's network to the members of a fleet."""

from __future__ import annotations

import numpy as np

from airprune.deployment.identity import Members
from airprune.errors import UsageError
from airprune.scenario import Scenario


def fitted(scenario: Scenario, members: Members) -> Scenario:
    """Returns the scenario with as many edges and devices as the fleet has; the same one if they agree already."""
    sizes = [len(devices) for devices in members.devices.values() if devices]
    if not sizes:
        raise UsageError(f"The fleet {members.federation} has no device; add one with `airprune deploy add device`.")
    if scenario.network.table is not None:
        network = scenario.build_network()
        found = np.bincount(network.edge, minlength=network.num_edges).tolist()
        if found != sizes:
            raise UsageError(
                f"network.table must have the fleet's devices per edge, {sizes}, got {found}; "
                "change the table, or leave it out."
            )
        return scenario
    if scenario.network.device_counts == sizes:
        return scenario
    per_edge = sizes[0] if len(set(sizes)) == 1 else sizes
    return scenario.with_values({"network.num_edges": len(sizes), "network.devices_per_edge": per_edge})
