"""The ground of the map: SINR, or rate, that a device alone would have at each place, and the edge it would reach."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from airprune.rounds.first_round import FirstRound
from airprune.units import db_to_ratio, ratio_to_db
from airprune.web.answers import numbers
from airprune.web.planner.density import cell_size_m
from airprune.web.planner.scene import Scene
from airprune.wireless.channel import path_loss_db, sent_gain, snr

Array = np.ndarray

# Cells times edges: a tenth of a second of path losses.
_MAX_LINKS = 1_000_000
_MARGIN = 0.05  # of the longer side, as the map has it around what is drawn


def ground(found: FirstRound | None, scene: Scene, load: Array | None, kind: str) -> dict[str, Any] | None:
    """A grid of square cells, as JSON values; None if none is wanted, for tables, and with too many edges.

    A cell has the median path loss to the edge with the best channel, without shadowing; of fading, the mean: M
    antennas add up, and U devices that are heard at once leave M − U + 1. Interference is that of the drawn plan.

    Args:
      load: interference over noise at every station.
      kind: "sinr" in dB, "rate" in Mbit/s, or "none".
    """
    if found is None or kind == "none":
        return None
    places = np.vstack((scene.position_m, scene.edge_position_m, np.zeros((1, 2))))
    low, high = places.min(axis=0), places.max(axis=0)
    margin_m = _MARGIN * max(float((high - low).max()), 100.0)
    low, high = low - margin_m, high + margin_m
    cell_m = cell_size_m(float((high - low).max()))
    west, south = (math.floor(edge / cell_m) for edge in low.tolist())
    columns, rows = (
        math.floor(edge / cell_m) + 1 - first for edge, first in zip(high.tolist(), (west, south), strict=True)
    )
    if columns * rows * len(scene.edge_position_m) > _MAX_LINKS:
        return None
    north, east = np.divmod(np.arange(columns * rows), columns)
    middle = cell_m * (np.column_stack((west + east, south + north)) + 0.5)
    radio, channel = found.experiment.radio, found.experiment.method.channel
    away_m = np.hypot(*(middle[:, None, :] - scene.edge_position_m[None]).transpose(2, 0, 1))
    gain = db_to_ratio(-path_loss_db(away_m, radio))
    best = np.argmax(gain, axis=1)
    mean_fading = radio.num_antennas - radio.num_streams + 1
    ratio = snr(sent_gain(gain.max(axis=1), radio) * mean_fading, radio)
    sinr = ratio if load is None else ratio / (1.0 + load[best])
    value = ratio_to_db(sinr) if kind == "sinr" else channel.rate_bps(sinr, radio) / 1e6
    return {
        "kind": kind,
        "cell_m": cell_m,
        "west_m": west * cell_m,
        "south_m": south * cell_m,
        "columns": columns,
        "value": numbers(np.round(value, 2)),
        "edge": best.tolist(),
    }
