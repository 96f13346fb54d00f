"""What goes wrong in a simulated edge round: devices that disappear or slow down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from airprune.randomness import rng_for
from airprune.rounds.timing import Events

if TYPE_CHECKING:
    from airprune.scenario import EventsSection

Array = np.ndarray


def sampled_events(
    section: EventsSection, device: Array, num_devices: int, *, seed: int, global_round: int, edge_round: int
) -> Events:
    """The same for every scheme: sampled for all devices of the network, selected or not."""
    if section.dropout_probability == section.straggler_probability == 0.0:
        return Events(dropped=np.zeros(len(device), dtype=bool), slowdown=np.ones(len(device)))
    draws = rng_for(seed, "events", global_round, edge_round).random((num_devices, 2))[device]
    return Events(
        dropped=draws[:, 0] < section.dropout_probability,
        slowdown=np.where(draws[:, 1] < section.straggler_probability, section.straggler_slowdown, 1.0),
    )
