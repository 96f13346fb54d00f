"""The devices of a setting: placed in rings around their edges, or out of a fleet table."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.planning import PlanProblem
from airprune.planning.fleet import FLEET_COLUMNS, Fleet
from airprune.units import db_to_ratio, dbm_to_watt, ratio_to_db
from airprune.web.planner.settings import PlannerSettings
from airprune.wireless.channel import Radio, full_band_rate_bps, large_scale_gain, path_loss_db, small_scale_gain, snr
from airprune.wireless.network import Ring, place_hierarchical

Array = np.ndarray

FARTHEST_DRAWN_M = 3_000.0
_MAX_ON_CIRCLE = 8
_GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Holds the devices, their places on the map, and their channels.

    Attributes:
      fleet: names, edges and CPUs.
      snr_ratio: over the full band; None for a table, whose decibels `airprune plan` converts.  [num_devices]
      edge_position_m: [num_edges, 2]
      position_m: for a table, where the path loss law would put such an SNR.  [num_devices, 2]
      moved: devices moved by hand.  [num_moved]
    """

    fleet: Fleet
    snr_ratio: Array | None
    edge_position_m: Array
    position_m: Array
    moved: Array

    @property
    def is_table(self) -> bool:
        return self.snr_ratio is None

    def problem(self, *, bandwidth_hz: float, **limits: Any) -> PlanProblem:
        problem = self.fleet.problem(bandwidth_hz=bandwidth_hz, **limits)
        if self.snr_ratio is None:
            return problem
        return dataclasses.replace(problem, full_band_rate_bps=full_band_rate_bps(self.snr_ratio, bandwidth_hz))


def placed_scene(settings: PlannerSettings) -> Scene:
    """The network of `airprune run` with the same settings and seed, but for where edges stand around the cloud."""
    clock_hz = 1e9 * settings.cpu_ghz
    low, high = clock_hz * (1.0 - settings.cpu_spread), clock_hz * (1.0 + settings.cpu_spread)
    network = place_hierarchical(
        num_edges=settings.num_edges,
        devices_per_edge=settings.devices_per_edge,
        placement=Ring(settings.inner_m, settings.outer_m),
        edge_distance_m=0.0,
        cpu_hz=(low, high) if settings.cpu_spread else clock_hz,
        seed=settings.seed,
    )
    edges = _edge_position_m(settings.num_edges, settings.outer_m)
    offset_m = network.device_position_m.copy()  # all edges stand at the cloud so far
    moved = []
    for key, east_m, north_m in settings.moves:
        k, n = key if len(key) == 2 else (settings.num_edges, 0)
        if k < settings.num_edges and n < settings.devices_per_edge:
            moved.append(k * settings.devices_per_edge + n)
            offset_m[moved[-1]] = east_m, north_m
    network = dataclasses.replace(network, device_position_m=offset_m)
    radio = Radio(transmit_power_w=dbm_to_watt(settings.transmit_power_dbm))
    gain = large_scale_gain(network, radio, seed=settings.seed)
    ratio = snr(gain * small_scale_gain(network.num_devices, radio, seed=settings.seed, round_index=0), radio)
    columns = {
        c.name: np.full(network.num_devices, c.default) for c in FLEET_COLUMNS if isinstance(c.default, int | float)
    }
    columns |= {"snr_db": ratio_to_db(ratio), "cpu_hz": network.cpu_hz}
    return Scene(
        fleet=Fleet(
            device=np.arange(network.num_devices),
            edge_names=np.arange(network.num_edges),
            edge=network.edge,
            columns=columns,
            ignored=(),
        ),
        snr_ratio=ratio,
        edge_position_m=edges,
        position_m=edges[network.edge] + offset_m,
        moved=np.array(moved, dtype=np.int64),
    )


def table_scene(settings: PlannerSettings, fleet: Fleet) -> Scene:
    """The devices of a table; one that was moved takes the SNR of its new distance."""
    radio = Radio()
    distance_m = np.clip(_distance_m(fleet.columns["snr_db"], radio), 1.0, FARTHEST_DRAWN_M)
    angle = _GOLDEN_ANGLE * np.arange(len(fleet.device))
    offset_m = distance_m[:, None] * np.column_stack((np.cos(angle), np.sin(angle)))
    snr_db = fleet.columns["snr_db"].copy()
    moved = []
    for key, east_m, north_m in settings.moves:
        if len(key) == 1 and key[0] < len(fleet.device):
            moved.append(key[0])
            offset_m[key[0]] = east_m, north_m
            gain = db_to_ratio(-path_loss_db(math.hypot(east_m, north_m), radio))
            snr_db[key[0]] = ratio_to_db(float(snr(gain, radio)))
    if moved:
        fleet = fleet.with_snr(moved, snr_db)
    edges = _edge_position_m(len(fleet.edge_names), float(distance_m.max()))
    return Scene(
        fleet=fleet,
        snr_ratio=None,
        edge_position_m=edges,
        position_m=edges[fleet.edge] + offset_m,
        moved=np.array(moved, dtype=np.int64),
    )


def _distance_m(snr_db: Array, radio: Radio) -> Array:
    """The log-distance law 128.1 + 37.6 log10(d in km) read backwards."""
    loss_db = ratio_to_db(radio.transmit_power_w / radio.band_noise_w) - snr_db
    intercept_db = float(path_loss_db(1e3, radio))
    slope_db = float(path_loss_db(1e4, radio)) - intercept_db
    with np.errstate(over="ignore"):
        return 1e3 * 10.0 ** ((loss_db - intercept_db) / slope_db)


def _edge_position_m(num_edges: int, outer_m: float) -> Array:
    """Returns the places of edges around the cloud, apart: on one circle, or like a sunflower's seeds if many.

    No link depends on it, and the paper gives no map.  [num_edges, 2]
    """
    seeds = np.arange(num_edges, dtype=np.float64)
    if num_edges <= _MAX_ON_CIRCLE:
        away_m: Array = np.full(num_edges, outer_m * max(2.0, 1.15 / math.sin(math.pi / max(num_edges, 2))))
        angle = 2.0 * np.pi * seeds / num_edges
    else:
        away_m = 1.35 * outer_m * np.sqrt(seeds + 2.0)
        angle = _GOLDEN_ANGLE * seeds
    return away_m[:, None] * np.column_stack((np.cos(angle), np.sin(angle)))
