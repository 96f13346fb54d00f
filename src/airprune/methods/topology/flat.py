"""The paper's baseline without hierarchy: the cloud's own bandwidth serves all devices."""

from __future__ import annotations

from airprune.methods.topology.base import Topology


class Flat(Topology):
    """Has the cloud serve the devices."""

    name = "flat"
    summary = "no edges: the cloud's own bandwidth serves all devices"
    source = "the paper's baseline"
    stations = "cloud"
