"""The devices of a setting: placed in rings around their edges, or out of a fleet table."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from airprune.planning.fleet import Fleet
from airprune.rounds.planned_network import PlannedNetwork
from airprune.units import db_to_ratio, ratio_to_db
from airprune.web.planner.settings import PlannerSettings
from airprune.wireless.channel import Radio, path_loss_db, snr
from airprune.wireless.motion import Waypoints

Array = np.ndarray

FARTHEST_DRAWN_M = 3_000.0
_MAX_ON_CIRCLE = 8
_GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Holds the devices and their places on the map.

    Attributes:
      fleet: the devices of a table; None for a network that is placed.
      setup: what plans need of a placed network; None for a table.
      edge_position_m: [num_edges, 2]
      position_m: for a table, where the path loss law would put such an SNR.  [num_devices, 2]
      moved: devices moved by hand.  [num_moved]
    """

    fleet: Fleet | None
    setup: PlannedNetwork | None
    edge_position_m: Array
    position_m: Array
    moved: Array

    @property
    def is_table(self) -> bool:
        return self.setup is None


def placed_scene(settings: PlannerSettings) -> Scene:
    """The network of `airprune run` with the same settings; where links do not depend on it, edges are drawn apart."""
    scenario = settings.scenario()
    network = scenario.build_network()
    place_m, moved = network.device_position_m.copy(), []
    for key, east_m, north_m in settings.moves if settings.mobility == "none" else ():
        k, n = key if len(key) == 2 else (settings.num_edges, 0)
        if k < settings.num_edges and n < settings.devices_per_edge:
            moved.append(k * settings.devices_per_edge + n)
            place_m[moved[-1]] = network.edge_position_m[k] + (east_m, north_m)
    if moved:
        network = dataclasses.replace(network, device_position_m=place_m)
    setup = PlannedNetwork.of(scenario, network=network)
    edges = network.edge_position_m
    motion = setup.stations.motion
    if isinstance(motion, Waypoints):
        place_m = motion.positions_m(0.0)
    if not settings.has_places:
        edges = _edge_position_m(settings.num_edges, settings.outer_m)
        place_m = place_m + (edges - network.edge_position_m)[network.edge]
    return Scene(
        fleet=None, setup=setup, edge_position_m=edges, position_m=place_m, moved=np.array(moved, dtype=np.int64)
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
        setup=None,
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
