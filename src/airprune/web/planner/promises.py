"""On-time probabilities on the page, and the price of one more nine: `airprune plan`'s, for fleets of a page's size."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from airprune.rounds.first_round import FirstRound
from airprune.rounds.on_time import on_time_probability, promises
from airprune.web.answers import number_or_null
from airprune.wireless.channel import Radio, rician_k

Array = np.ndarray

# Devices times terms of their distributions' series: half a second.
_MAX_TERMS = 200_000


def on_time(found: FirstRound) -> Array | None:
    """Returns the on-time probability of each device; None where plans know fading, and for too many devices.

    [num_devices]
    """
    return on_time_probability(found) if _is_soon(found) else None


def price_of_nines(found: FirstRound | None) -> list[dict[str, Any]] | None:
    """Returns the plans for no promise, 0.9, 0.95, 0.99 and 0.999; None as of `on_time`, and for tables."""
    if found is None or found.experiment.radio.knows_fading or not _is_soon(found):
        return None
    return [
        {name: number_or_null(value) if isinstance(value, float) else value for name, value in asdict(one).items()}
        for one in promises(found)
    ]


def _is_soon(found: FirstRound) -> bool:
    radio = found.experiment.radio
    return radio.knows_fading or len(found.device) * _terms(radio) <= _MAX_TERMS


def _terms(radio: Radio) -> float:
    """Returns about how many terms a probability sums: half the noncentrality of a likely gain."""
    spread = 0.5 * (1.0 - radio.csi_correlation**2) / (rician_k(radio) + 1.0)
    return 100.0 + 3.0 * radio.num_antennas / spread
