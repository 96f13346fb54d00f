"""The settings under which claims are judged, where the paper's own do not show the claimed thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of
from airprune.studies.league.claims import Scene, Settings
from airprune.studies.league.tracks import FLAT_DEADLINE, deadline_s

Arms = Callable[[Scenario], Mapping[str, Settings]]


def with_methods(*names: str) -> Arms:
    """Returns arms that are methods as their recipes have them; a flat one has the flat network's deadline."""
    return lambda start: {name: method(name, start) for name in names}


def method(name: str, start: Scenario, **settings: Any) -> Settings:
    """Returns the settings of a method, as a track has them; keys with `__` in place of a full stop."""
    own = {"method": name, **{key.replace("__", "."): value for key, value in settings.items()}}
    scenario = start.with_values(own)
    is_late = scenario.is_flat and not start.is_flat and scenario.plan.deadline_s == start.plan.deadline_s
    return {**own, "plan.deadline_s": deadline_s(start) * FLAT_DEADLINE} if is_late else own


PAPER = Scene(words="the paper's network and data, IID")
TWO_CLASSES = Scene(
    words="every device holds two classes",
    settings=lambda base: {"data.partition": "shards", "data.classes_per_device": 2},
)
NON_IID_EDGES = Scene(
    words="each edge's devices hold two classes of their own",
    settings=lambda base: {"data.partition": "edge-non-iid", "data.classes_per_device": 2},
)
UNEQUAL_WORK = Scene(
    words="every device holds two classes, and numbers of samples, hence of local steps, differ widely",
    settings=lambda base: {"data.partition": "shards", "data.classes_per_device": 2, "data.size_spread": 0.8},
)
SOME_DEVICES = Scene(
    words="IID data, a tenth of the devices in each round, four times the rounds",
    settings=lambda base: {"rounds.global_rounds": 4 * base.rounds.global_rounds},
)
# 2.8 Mbit in 0.51 s: ten times the 51 ms that a device of the paper's cells takes to upload a whole model.
SLOW_CLOUD_BPS = 5.5e6
SLOW_CLOUD = Scene(
    words="edge-IID data of two classes per device; a link from edge to cloud takes ten times as long as an upload",
    settings=lambda base: {
        "data.partition": "edge-iid",
        "data.classes_per_device": 2,
        "topology.hierarchical.backhaul_bps": SLOW_CLOUD_BPS,
    },
)
ONE_RATIO = Scene(
    words="all devices prune 70 % of the fully-connected weights, with a deadline that none misses",
    settings=lambda base: {
        "plan.deadline_s": 1.0,
        "plan.min_pruning_ratio": 0.7,
        "plan.max_pruning_ratio": 0.7,
    },
)
DEVICE_CLOCK = Scene(
    words="device clock of a Raspberry Pi 4, where local steps take time; 2 s per edge round",
    settings=lambda base: {
        "clock.compute": "flops",
        "clock.board": "raspberry-pi-4",
        "network.cpu_hz": 1.8e9,
        "plan.deadline_s": 2.0,
    },
)


def _wide(base: Scenario) -> Settings:
    """Returns 64 hidden units and a deadline that grows with the number of weights."""
    wide = base.with_("model.name", "cifar-cnn")
    growth = shape_of(wide).num_weights / shape_of(base).num_weights
    return {"model.name": "cifar-cnn", "plan.deadline_s": deadline_s(base) * growth}


WIDE = Scene(words="64 hidden units, and a deadline that grows with the number of weights", settings=_wide)
UNEQUAL_WIDE = Scene(
    words="64 hidden units; CPUs from 0.6 to 3 GHz and a deadline that whole models meet from about 2.3 GHz on, so "
    "that sub-models differ in size",
    settings=lambda base: {
        "model.name": "cifar-cnn",
        "network.cpu_hz": 6e8,
        "network.cpu_hz_max": 3e9,
        "plan.cycles_per_weight": 1000.0,
        "plan.deadline_s": 0.45,
    },
)
TIERS = Scene(
    words="CPUs from 0.5 to 3 GHz, 500 cycles per weight and 60 ms, so that devices are in different tiers",
    settings=lambda base: {
        "network.cpu_hz": 5e8,
        "network.cpu_hz_max": 3e9,
        "plan.cycles_per_weight": 500.0,
        "plan.deadline_s": 0.060,
    },
)
FLAT_UNEQUAL = Scene(
    words="one cell, CPUs from 0.5 to 3 GHz, a deadline five sixths of the paper's 350 ms",
    settings=lambda base: {
        "topology.name": "flat",
        "network.cpu_hz": 5e8,
        "network.cpu_hz_max": 3e9,
        "plan.cycles_per_weight": 100.0 * FLAT_DEADLINE,
        "plan.deadline_s": deadline_s(base) * FLAT_DEADLINE * 25.0 / 30.0,
    },
)
LOST = Scene(
    words="three devices in ten are lost in every round; three in ten are selected; one edge round per global round, "
    "four times the global rounds",
    settings=lambda base: {
        "events.dropout_probability": 0.3,
        "rounds.edge_rounds": 1,
        "rounds.global_rounds": 4 * base.rounds.global_rounds,
    },
)

# Costs of a schedule: a few rounds on little data suffice, since neither samples nor accuracy change them.
_SHORT = {
    "rounds.global_rounds": 3,
    "rounds.edge_rounds": 2,
    "data.train_samples": 500,
    "data.test_samples": 200,
}
_OVERLAP = {"network.placement": "disc", "network.inner_m": 10.0, "network.edge_distance_m": 150.0}
COSTS = Scene(words="three global rounds on little data: costs do not depend on it", settings=lambda base: _SHORT)
LOOSE = Scene(
    words="twice the paper's deadline, which whole models meet; three global rounds on little data",
    settings=lambda base: {**_SHORT, "plan.deadline_s": 2.0 * deadline_s(base)},
)
OVERLAPPING = Scene(
    words="cells that overlap: edges 150 m from the cloud, devices up to 152 m from their edge; three global rounds",
    settings=lambda base: {**_SHORT, **_OVERLAP},
)
