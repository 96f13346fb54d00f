"""What the yardstick runs, and the program that runs it on whichever airprune is on the path.

    python -P yardstick_scenarios.py FOLDER NAME…

leaves one run folder per named scenario. Several such programs may share a FOLDER: each takes what no other has begun.
Trees of different ages are compared with one another, so this relies on nothing but `airprune.Scenario` and
`airprune.run`, and settings carry their newest keys; RENAMED has what older trees call them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

# Key of today: the key it replaced, and the older words for its values where they changed.
RENAMED: dict[str, tuple[str, dict[Any, Any]]] = {
    "topology.name": ("network.topology", {}),
    "masking.probe.importance": ("pruning.importance", {}),
    "masking.probe.scope": ("pruning.scope", {}),
    "masking.probe.structure": ("pruning.structure", {}),
    "masking.probe.count_probe": ("pruning.count_probe", {}),
    "masking.probe.count_mask_bits": ("pruning.count_mask_bits", {}),
    "aggregation.edge": ("rounds.edge_average", {"masked-mean": "uniform", "data-weighted": "data"}),
    "aggregation.cloud": ("rounds.cloud_average", {"masked-mean": "uniform", "data-weighted": "data"}),
}

# Two edges, three devices each, an MLP on glyphs, about half of the weights pruned.
SMALL = {
    "seed": 5,
    "model.name": "mlp",
    "data.name": "glyphs",
    "data.train_samples": 240,
    "data.test_samples": 60,
    "network.num_edges": 2,
    "network.devices_per_edge": 3,
    "train.learning_rate": 0.05,
    "train.batch_size": 16,
    "train.local_epochs": 1,
    "rounds.global_rounds": 2,
    "rounds.edge_rounds": 2,
    "plan.deadline_s": 0.016,
    "engine.name": "serial",
}
# The slowest of these CPUs cannot meet the deadline.
CPUS = {"network.cpu_hz": 1e6, "network.cpu_hz_max": 1e8, "plan.cycles_per_weight": 80.0, "plan.deadline_s": 0.02}
MANY = {"engine.workers": 2, "network.devices_per_edge": 20, "plan.deadline_s": 0.07}
FOUR_DEVICES = {"network.devices_per_edge": 2, "rounds.global_rounds": 1}
EVENTS = {
    "events.dropout_probability": 0.2,
    "events.straggler_probability": 0.2,
    "events.straggler_slowdown": 3.0,
    "rounds.global_rounds": 3,
}
# Time for codes of a few bits per weight.
SHORT = {"plan.deadline_s": 0.003}
# Time for a round in which everybody reports scores.
SHARED = {"masking.shared.every": 2, "plan.deadline_s": 0.04}
# Devices reach one another so well that nobody would rather upload alone.
NEAR = {"topology.d2d.max_distance_m": 1000.0, "topology.d2d.power_dbm": 100.0}
ROUGH = {**EVENTS, "radio.fading": "rayleigh", "data.partition": "dirichlet", "data.size_spread": 0.5}
FLOPS = {"clock.compute": "flops", "clock.flops_per_cycle": 2.0, "network.cpu_hz": 1e8, "network.cpu_hz_max": 4e8}
DECAY = {
    "train.steps_decay": "loss",
    "train.local_epochs": 4,
    "train.learning_rate": 0.2,
    "rounds.global_rounds": 3,
    "plan.deadline_s": 0.02,
}
TESTED = {"rounds.evaluate_every": "edge"}
STEPS = {"aggregation.edge_step": "momentum", "aggregation.cloud_step": "adam"}
TREE = {
    "topology.name": "tree",
    "topology.tree.nodes": [2, 3],
    "topology.tree.rounds": [1, 2],
    "network.num_edges": 4,
    "network.devices_per_edge": 2,
}
MOVING = {"association.name": "handover", "association.handover.probability": 0.5, "network.num_edges": 3}
# Devices between the edges, so that more than one could serve them.
SPREAD = {"network.num_edges": 3, "network.placement": "disc", "network.inner_m": 10.0, "network.outer_m": 900.0}
REMEMBERED = {"compression.cast.memory": True, "plan.scheme": "no-pruning"}
FLEET = """device,edge,snr_db,cpu_hz
a,north,30,1e9
b,north,12,2e9
c,north,5,5e8
d,south,20,1.5e9
e,south,8,3e9
"""
FLEET_WITH_CLOCKS = """device,edge,rate_mbps,seconds_per_sample
a,north,200,1e-4
b,north,90,3e-4
c,north,60,
d,south,120,2e-4
e,south,50,
"""


@dataclass(frozen=True)
class Case:
    """A scenario of the yardstick.

    Attributes:
      changes: of SMALL, or of the preset.
      inputs: makes the model, arrays, loss and metric given to `run`.
      announced: since when and why results differ from those of older commits; CHANGELOG.md tells it, too.
      preset: what `changes` are made to, if not to SMALL.
      table: text of the fleet's table, if it has one.
      same_as: the scenario whose results it must have in the same tree.
      resumed: whether the run is stopped after the first global round and continued.
    """

    changes: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[], dict[str, Any]] = dict
    announced: str = ""
    preset: str = ""
    table: str = ""
    same_as: str = ""
    resumed: bool = False


def own_model_and_arrays() -> dict[str, Any]:
    """Convolution, batch norm with its buffers, dropout, a frozen layer: all that a flat model has to place."""
    import torch
    from torch import nn

    torch.manual_seed(11)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 36, 24),
        nn.Dropout(0.1),
        nn.ReLU(),
        nn.Linear(24, 12),
        nn.Linear(12, 3),
    )
    model[7].requires_grad_(False)
    rng = np.random.default_rng(12)
    x = rng.normal(size=(200, 1, 6, 6)).astype(np.float32)
    return {"model": model, "dataset": (x, x[:, 0, 0, :3].argmax(axis=1))}


def own_loss_and_metric() -> dict[str, Any]:
    """Functions that are neither torch's nor ours."""

    def cubed_margin(outputs: Any, targets: Any) -> Any:
        own = outputs.gather(1, targets[:, None])
        return (1.0 + outputs - own).clamp(min=0.0).pow(3).mean()

    def second_guess(outputs: Any, targets: Any) -> Any:
        return (outputs.topk(2).indices == targets[:, None]).any(1).double().mean()

    return {"loss": cubed_margin, "metric": second_guess}


def own_numbers() -> dict[str, Any]:
    """Numbers to be predicted, by a small model."""
    import torch
    from torch import nn

    torch.manual_seed(13)
    x = np.random.default_rng(14).normal(size=(200, 8)).astype(np.float32)
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 2))
    return {"model": model, "dataset": (x, np.stack([x[:, 0] * x[:, 1], np.sin(x[:, 2])], axis=1))}


def model_that_fails_on_a_sample() -> dict[str, Any]:
    """Whoever holds that sample cannot train."""
    import torch
    from torch import nn

    class Fragile(nn.Linear):
        def forward(self, x: Any) -> Any:
            if self.training and bool((x > 99.0).any()):
                raise ValueError("that sample")
            return super().forward(x)

    torch.manual_seed(15)
    x = np.random.default_rng(16).normal(size=(240, 8)).astype(np.float32)
    y = x[:, :3].argmax(axis=1)
    x[100] = 100.0
    model = nn.Sequential(Fragile(8, 24), nn.ReLU(), nn.Linear(24, 3))
    return {"model": model, "dataset": ((x[:200], y[:200]), (x[200:], y[200:]))}


# The first scenarios: the paper's method and what a scenario can change of it.
_PAPER: dict[str, Case] = {
    "weights": Case(),
    "probe-and-mask-bits": Case(
        {"masking.probe.count_probe": True, "masking.probe.count_mask_bits": True},
        announced="the probe and the mask's bits are planned exactly, no longer as extra weights",
    ),
    "neurons": Case({"masking.probe.structure": "neurons"}),
    "magnitude-per-layer": Case({"masking.probe.importance": "magnitude", "masking.probe.scope": "layer"}),
    "taylor-neurons": Case({"masking.probe.importance": "taylor", "masking.probe.structure": "neurons"}),
    "random-importance": Case(
        {"masking.probe.importance": "random"},
        announced="random scores come from a stream of their own, no longer from the next device's minibatches",
    ),
    "processes": Case({**MANY, "engine.name": "processes"}),
    "dask": Case({**MANY, "engine.name": "dask"}),
    "dropouts-and-stragglers": Case(EVENTS),
    "flat": Case({"topology.name": "flat", "plan.deadline_s": 0.11}),
    "diagnostics": Case({"diagnostics.gradients": True}),
    "own-model-uneven-rounds": Case(
        {
            "network.num_edges": 3,
            "network.devices_per_edge": [2, 3, 1],
            "rounds.edge_rounds": [1, 3, 2],
            "plan.deadline_s": 0.0008,
        },
        own_model_and_arrays,
    ),
    "own-model-named-layers": Case({"model.prunable": ["0", "4"], "plan.deadline_s": 0.0006}, own_model_and_arrays),
    "data-weighted": Case(
        {"aggregation.edge": "data-weighted", "aggregation.cloud": "data-weighted", "data.size_spread": 0.8}
    ),
    "data-weighted-edge-only": Case(
        {"aggregation.edge": "data-weighted", "data.size_spread": 0.8, "data.partition": "dirichlet"}
    ),
    "no-pruning": Case({"plan.scheme": "no-pruning"}),
    "min-max": Case({"plan.scheme": "min-max", "data.partition": "shards"}),
    "equal-reused": Case({"plan.scheme": "equal-reused", "radio.path_loss": "umi"}),
    "rayleigh": Case({"radio.fading": "rayleigh", "rounds.evaluate_every": "edge"}),
    "infeasible-dropped": Case(CPUS),
    "float64": Case({"model.float64": True}),
    "adam": Case({"train.optimizer": "adam", "train.learning_rate": 0.002, "train.schedule": "cosine"}),
    "momentum": Case({"train.momentum": 0.9, "train.weight_decay": 0.01, "train.schedule": "step"}),
    "paper-cnn-native": Case(
        {**FOUR_DEVICES, "model.name": "paper-cnn", "train.kernel": "native"},
        announced="the native kernel evaluates too: test_loss in its last digits",
    ),
    "paper-cnn-native-untested": Case(
        {**FOUR_DEVICES, "model.name": "paper-cnn", "train.kernel": "native", "rounds.evaluate_every": "never"}
    ),
    "paper-cnn-torch": Case({**FOUR_DEVICES, "model.name": "paper-cnn", "train.kernel": "torch"}),
}


# Every method, with what it takes for its memory to matter within four edge rounds.
METHODS: dict[str, dict[str, Any]] = {
    "adaptive-pruning": {},
    "frozen-pruning": {},
    "adaptive-bits": SHORT,
    "adaptive-work": SHORT,
    "shared-pruning": SHARED,
    "japp": {},
    "feddrop": {},
    "feddrop-uniform": {},
    "feddrop-bernoulli": {},
    "feddrop-all": {},
    "heterofl": {},
    "heterofl-fc": {},
    "fedrolex": {},
    "semi-sync": {},
    "fedbuff": {},
    "steps-that-fit": SHORT,
    "fedprox-steps": SHORT,
    "timelyfl": SHORT,
    "cocofl": SHORT,
    "adaptive-ranks": SHORT,
    "fedit": {},
    "hetlora": {},
    "ffa-lora": {},
    "rolora": {},
    "fjord": {},
    "fjord-fc": {},
    "fjord-kd": {},
    "afd": {},
    "afd-multi": {},
    "small-model": {},
    "small-ensemble": {},
    "hierfavg": {},
    "fedavg": {},
    "h-sgd": {},
    "fedprox": {},
    "scaffold": {},
    "fedavgm": {},
    "fedadam": {},
    "fednova": {"data.size_spread": 0.8, "train.momentum": 0.9},
    "norm-clip": {},
    "trimmed-mean": {},
    "median": {},
    "krum": {},
    "multi-krum": {},
    "geometric-median": {},
    "secure-sums": {"events.dropout_probability": 0.3, "plan.bits_per_weight": 32.0},
    "over-the-air": {"radio.fading": "rayleigh", "radio.noise": "thermal", "events.dropout_probability": 0.3},
    "fp32": {},
    "bf16": {},
    "fixed-16": {},
    "fixed-8": {},
    "fixed-4": {},
    "fixed-2": {},
    "qsgd": SHORT,
    "topk": SHORT,
    "randk": SHORT,
    "mem-sgd": SHORT,
    "topk-1": {},
    "stc": {},
    "sign": {},
    "sign-sgd": {},
    "hier-sign": {},
    "hier-qsgd": SHORT,
    "hier-qsgd-decay": {**SHORT, "train.local_epochs": 4, "train.learning_rate": 0.2},
    "random": {},
    "best-channel": {},
    "proportional-fair": {"radio.fading": "rayleigh"},
    "oort": {"selection.oort.pacer_every": 2},
    "hybridfl": {"selection.slack.share": 0.6},
    "liu2022": {"plan.deadline_s": 0.05},
    "liu2022-hier": {"selection.ratio-cap.max_ratio": 0.6},
    "variance": {},
    "minmax-pruning": {},
    "drop-stragglers": {},
    "fewer-steps": {},
    "mobility": {"association.handover.probability": 0.5},
    "fogfl": {},
    "lanfl": {},
    "d2d-fedavg": NEAR,
    "d2d-sign": NEAR,
    "tt-prune": {"topology.tiers.tiers": 2, "rounds.edge_rounds": 3},
    "phfl": {},
    "ren2021": {},
    "conflict-graph": {},
    "hfel": {},
    "hfel-pruning": {},
    "ina": {},
    "replicator": {"association.replicator.rewards": [1.0, 3.0]},
    "fedpt": {},
    "fedpart": {"masking.fedpart.warm_up": 1, "masking.fedpart.rounds_each": 1},
    "fedplt": {},
    "iterative": {"masking.iterative.steps": 2},
    "early": {"masking.early.similarity": 0.1, "masking.early.times": 1},
    "snip": {},
    "prunefl": {"masking.prunefl.every": 2, "masking.prunefl.initial_rounds": 1},
    "feddst": {"masking.feddst.every": 1, "masking.feddst.until": 5},
    "dpf": {"masking.dpf.every": 2, "masking.dpf.until": 3},
    "dpf-dense": {"masking.dpf.every": 2, "masking.dpf.until": 3},
    "magnitude-rechosen": {"masking.magnitude-rechosen.until": 3},
    "taylor": {},
    "taylor-units": {},
}
_METHODS = {f"method-{name}": Case({"method": name, **changes}) for name, changes in METHODS.items()}
# … and each of them where devices fail, are slow, hold unlike data and see a new channel in every round.
_ROUGH = {f"rough-{name}": Case({**ROUGH, "method": name, **changes}) for name, changes in METHODS.items()}

# What no method sets, and parts that meet in none.
_SETTINGS: dict[str, Case] = {
    # deadlines, codes, framing
    "deadline-auto": Case({"method": "adaptive-bits", "plan.deadline_s": "auto", "rounds.global_rounds": 3}),
    "deadline-auto-dear-errors": Case(
        {**ROUGH, "method": "adaptive-bits", "plan.deadline_s": "auto", "plan.error_cost": 4}
    ),
    "air-budget-energy": Case({**SHORT, "method": "adaptive-bits", "plan.max_energy_j": 0.001}),
    "air-budget-fair": Case({**SHORT, **SPREAD, "method": "adaptive-bits", "plan.air-budget.fair": True}),
    "ladder-without-scheme": Case({"compression.name": "ladder", "compression.ladder.bits": 3.0}),
    "ladder-without-memory": Case({"method": "adaptive-bits", **SHORT, "compression.ladder.memory": False}),
    "framing": Case({"plan.framing": True, "plan.deadline_s": 0.02}),
    "framing-told": Case({"method": "shared-pruning", **SHARED, "plan.framing": True}),
    "framing-codes": Case({"method": "mem-sgd", **SHORT, "plan.framing": True}),
    "closed-form": Case({"plan.scheme": "closed-form"}),
    "min-max-time": Case({"plan.scheme": "min-max-time"}),
    "ren2021-spare-blocks": Case({"method": "ren2021", "plan.ren2021.spare_blocks": 3, "radio.fading": "rayleigh"}),
    "energy-budget": Case({"plan.scheme": "energy", "plan.max_energy_j": 0.004}),
    "pruning-limits": Case({"plan.min_pruning_ratio": 0.3, "plan.max_pruning_ratio": 0.6}),
    # local steps, training
    "steps-decay": Case({**DECAY, "train.schedule": "step"}),
    "steps-decay-flops": Case({**DECAY, **FLOPS, "plan.deadline_s": 0.11}),
    "local-steps": Case({"train.local_steps": 2, "data.size_spread": 0.8}),
    "exact-importance": Case(
        {**FOUR_DEVICES, "masking.probe.importance": "exact", "train.loss": "mse", "plan.deadline_s": 0.0001},
        own_numbers,
    ),
    "own-loss-and-metric": Case({}, own_loss_and_metric),
    "adam-weight-decay": Case({"train.optimizer": "adam", "train.weight_decay": 0.1, "train.momentum": 0.5}),
    "adamw-warm-up": Case(
        {
            "method": "frozen-pruning",
            "train.optimizer": "adamw",
            "train.weight_decay": 0.1,
            "train.schedule": "warm-up",
            "train.schedule_unit": "step",
        }
    ),
    "torch-optimiser": Case({"train.optimizer": "torch", "train.torch.kind": "RMSprop", "train.learning_rate": 0.002}),
    "clipped": Case({"train.clip_gradient_norm": 0.5, "train.clip_gradient_value": 0.1, "train.weight_decay": 0.01}),
    "distilled": Case({"train.loop": "distilled", "train.schedule": "cosine", "train.schedule_unit": "edge"}),
    "augmented": Case({"train.augmentation": "images", "train.images.noise": 0.1}),
    "failing-device": Case(
        {"engine.on_device_failure": "drop-device", "method": "scaffold", "compression.name": "top-k"},
        model_that_fails_on_a_sample,
    ),
    "mse": Case({"train.loss": "mse", "plan.deadline_s": 0.0001}, own_numbers),
    "huber-ensemble": Case(
        {"train.loss": "huber", "topology.name": "ensemble", "plan.deadline_s": 0.0001}, own_numbers
    ),
    "adam-float64-masks": Case({"method": "prunefl", "train.optimizer": "adam", "model.float64": True}),
    # diagnostics, records
    "sub-models": Case({"diagnostics.sub_models": True}),
    "sub-models-told": Case({"method": "feddrop-uniform", "diagnostics.sub_models": True}),
    "sub-models-remembered": Case({"method": "afd-multi", "diagnostics.sub_models": True, **EVENTS}),
    "sub-models-every-edge-round": Case({**TESTED, "method": "fjord", "diagnostics.sub_models": True}),
    "gradients-every-edge-round": Case({**TESTED, "diagnostics.gradients": True, "topology.name": "tree"}),
    "recorded-devices": Case({"records.devices": 2, **EVENTS}),
    "held-out": Case({"data.judge_on": "held-out", "data.standardize": False}),
    # personal layers
    "personal-scaffold": Case({"method": "scaffold", "model.personal": ["last"], "data.partition": "shards"}),
    "personal-mem-sgd": Case({"method": "mem-sgd", **SHORT, "model.personal": ["last"], **TESTED}),
    "personal-momentum-steps": Case({**STEPS, "model.personal": ["last"]}),
    # convolutions and batch norm, by units
    **{
        f"convolutions-{name}": Case(
            {"method": name, "model.prunable": ["0", "4"], "plan.deadline_s": 0.0008}, own_model_and_arrays
        )
        for name in ("feddrop", "heterofl", "fjord", "fjord-kd", "afd", "taylor-units", "small-model", "prunefl", "dpf")
    },
    "cifar-cnn-heterofl": Case({**FOUR_DEVICES, "model.name": "cifar-cnn", "method": "heterofl"}),
    "own-model-steps": Case({**STEPS, "plan.deadline_s": 0.0008}, own_model_and_arrays),
    "paper-cnn-ensemble": Case({**FOUR_DEVICES, "model.name": "paper-cnn", "method": "small-ensemble"}),
    # masks where everything fits, and options of masks
    **{
        f"loose-{name}": Case({"method": name, "plan.deadline_s": 0.2})
        for name in (
            "frozen-pruning",
            "shared-pruning",
            "feddrop",
            "fjord-kd",
            "fedplt",
            "iterative",
            "early",
            "prunefl",
            "feddst",
            "dpf",
            "magnitude-rechosen",
        )
    },
    "shared-neurons": Case({"masking.name": "shared", **SHARED, "masking.shared.structure": "neurons"}),
    "iterative-at-once": Case({"method": "iterative", "masking.iterative.late": False}),
    "feddrop-unscaled": Case({"method": "feddrop", "masking.feddrop.scale": False}),
    # topologies and links
    "fog-limits": Case({"method": "fogfl", "topology.fog.cloud_bps": 1e7, "topology.fog.alpha": 0.9, **EVENTS}),
    "fog-nobody-may": Case({"method": "fogfl", "topology.fog.max_latency_s": 1e-9, "topology.fog.cloud_bps": 1e7}),
    "fog-workload": Case({"method": "fogfl", "topology.fog.max_workload_bytes": 5e6}),
    "fog-pruned": Case({"topology.name": "fog", "backhaul.name": "quantised"}),
    "lan-slow": Case({"method": "lanfl", "topology.lan.rate_bps": 1e6, "topology.lan.wan_bps": 1e7}),
    "tree-of-four-levels": Case({**TREE, **TESTED}),
    "tree-backhaul": Case({**TREE, "backhaul.name": "top-k", "backhaul.top-k.share": 0.2, **STEPS}),
    "tree-uneven": Case({**TREE, "rounds.edge_rounds": [1, 2, 3, 1], "method": "scaffold"}),
    "flat-selection": Case({"method": "oort", "topology.name": "flat", "plan.deadline_s": 0.05}),
    "d2d-alike": Case({**NEAR, "method": "d2d-sign", "aggregation.group-vote.masters": "alike"}),
    "d2d-unlike-masks": Case({**NEAR, "topology.name": "d2d", **EVENTS}),
    "d2d-pruned": Case({**NEAR, "topology.name": "d2d", "masking.name": "shared", **EVENTS}),
    "tiers-with-memory": Case(
        {**EVENTS, **SHORT, "method": "tt-prune", "compression.name": "top-k", "rounds.edge_rounds": 4}
    ),
    "ensemble-members": Case(
        {"topology.name": "ensemble", "topology.ensemble.members": 2, "network.num_edges": 4, **STEPS}
    ),
    "ensemble-of-pruned": Case({"topology.name": "ensemble", "data.partition": "edge-non-iid"}),
    # who is served, who is asked
    "handover-lost": Case({**MOVING, "association.handover.update": "lost", "association.handover.to": "neighbour"}),
    "handover-scaffold": Case({**MOVING, "method": "scaffold", "data.partition": "shards"}),
    "handover-mem-sgd": Case({**MOVING, "method": "mem-sgd", **SHORT}),
    "nearest": Case({"association.name": "nearest", **SPREAD}),
    "best-rate": Case({"association.name": "best-rate", **SPREAD, "radio.shadowing_std_db": 8.0}),
    "hfel-spread": Case({"method": "hfel", **SPREAD}),
    "hfel-pruning-spread": Case({**SPREAD, "method": "hfel-pruning", "association.hfel.objective": "max"}),
    "ina-spread": Case({"method": "ina", **SPREAD}),
    "ina-descent": Case({"method": "ina", **SPREAD, "association.ina.exact_up_to": 1}),
    "replicator-in-order": Case({"method": "replicator", **SPREAD, "association.replicator.places": "in-order"}),
    "conflict-graph-spread": Case({"method": "conflict-graph", **SPREAD}),
    "replicator-contest": Case({"method": "replicator", **SPREAD, "association.replicator.contest": "tullock"}),
    "weighting-data": Case({"plan.weighting": "by-data", "data.size_spread": 0.5}),
    "weighting-loss": Case({"plan.weighting": "by-loss"}),
    "weighting-staleness": Case({"plan.weighting": "by-staleness", "selection.name": "random-share"}),
    "ratio-cap-exact": Case({"method": "liu2022-hier", "selection.ratio-cap.search": "exact"}),
    "slack-reliable": Case({"method": "hybridfl", "rounds.edge_rounds": 1, "rounds.global_rounds": 4}),
    # compression, privacy, averages, steps
    **{
        f"compression-{name}": Case({**EVENTS, "compression.name": name, "plan.deadline_s": deadline_s})
        for name, deadline_s in {
            "quantised": 0.0015,
            "top-k": 0.002,
            "random-k": 0.002,
            "sign": 0.0008,
            "rounded": 0.0015,
            "ternary": 0.0006,
        }.items()
    },
    "quantised-to-the-nearest": Case({**SHORT, "method": "qsgd", "compression.quantised.stochastic": False}),
    "top-k-count": Case({"compression.name": "top-k", "compression.top-k.count": 500}),
    "random-k-remembered": Case({"compression.name": "random-k", "compression.random-k.memory": True}),
    "cast-remembered": Case({"compression.name": "cast", "compression.cast.format": "bfloat16", **REMEMBERED}),
    "sign-step": Case({"compression.name": "sign", "compression.sign.scale": 0.01, "plan.scheme": "no-pruning"}),
    "privacy": Case({"privacy.clip_norm": 0.5, "privacy.noise_multiplier": 0.1}),
    "privacy-scaffold": Case({"method": "scaffold", "privacy.clip_norm": 0.2}),
    "privacy-mem-sgd": Case({"method": "mem-sgd", **SHORT, "privacy.clip_norm": 0.2, "privacy.noise_multiplier": 0.01}),
    "min-contributors": Case({"aggregation.min_contributors": 2}),
    **{
        f"attack-{kind}": Case({"attack.kind": kind, "attack.share": 0.4, "aggregation.rollback": 5.0, **EVENTS})
        for kind in ("sign-flip", "noise", "scaled", "label-flip", "free-rider", "colluding")
    },
    "attack-robust-masks": Case(
        {"attack.kind": "scaled", "aggregation.edge": "geometric-median", "aggregation.cloud": "trimmed-mean"}
    ),
    "rollback": Case({"aggregation.rollback": 10.0}),
    "min-contributors-shared": Case({"aggregation.min_contributors": 3, "masking.name": "feddrop", **EVENTS}),
    "fill-edge-step": Case({**STEPS, "aggregation.edge": "fill", **EVENTS}),
    "predicted-adam": Case({"method": "frozen-pruning", "aggregation.cloud_step": "adam", **EVENTS}),
    "edge-adam": Case({"aggregation.edge_step": "adam", "aggregation.cloud_step": "momentum"}),
    "cached-heard": Case({"aggregation.edge": "cached", "aggregation.cloud": "heard-weighted", **EVENTS}),
    "vote-of-edges": Case({"method": "hier-sign", "aggregation.vote.rate": 0.01, "train.schedule": "cosine"}),
    "prox-and-masks": Case({"method": "prunefl", "objective.name": "prox", "objective.prox.mu": 0.1}),
    "scaffold-and-masks": Case({**EVENTS, "method": "feddst", "objective.name": "scaffold", "plan.deadline_s": 0.05}),
    "frozen-top-k": Case({"method": "frozen-pruning", "compression.name": "top-k", **SHORT, **EVENTS}),
    # network, radio, data, clock
    "measured-fleet": Case({"plan.deadline_s": 0.06}, table=FLEET),
    "fleet-with-clocks": Case({"plan.deadline_s": 0.06}, table=FLEET_WITH_CLOCKS),
    "clock-flops": Case({**FLOPS, "plan.deadline_s": 0.04}),
    "clock-flops-units": Case({**FLOPS, "method": "feddrop", "plan.deadline_s": 0.04}),
    "clock-measured": Case(
        {"clock.compute": "measured", "clock.seconds_per_sample": 1e-4, "clock.at_hz": 2e9, "plan.deadline_s": 0.02}
    ),
    "gauss-markov": Case({"radio.channel": "gauss-markov", "radio.fading": "rayleigh", "radio.num_antennas": 2}),
    "slice-noise": Case({"radio.noise": "thermal", "radio.slice_noise": True, "radio.fading": "rayleigh"}),
    "nr-mcs": Case({"radio.noise": "thermal", "radio.rate": "nr-mcs", "radio.downlink": "broadcast"}),
    "outdated-csi": Case({"radio.fading": "rayleigh", "radio.csi_correlation": 0.9, "plan.on_time": 0.95}),
    "reuse": Case({"radio.reuse": 1, "radio.noise": "thermal", "radio.fading": "rayleigh"}),
    "mu-mimo": Case({"radio.fading": "rayleigh", "radio.num_antennas": 4, "radio.num_streams": 2}),
    "mu-mimo-reuse": Case(
        {"radio.fading": "rician", "radio.num_antennas": 4, "radio.num_streams": 2, "radio.reuse": 1}
    ),
    "waypoint-a3": Case(
        {"network.mobility": "waypoint", "network.speed_m_per_s": 30.0, "association.name": "a3", "radio.reuse": 1}
    ),
    "clarke": Case(
        {
            "radio.channel": "clarke",
            "radio.fading": "rayleigh",
            "network.speed_m_per_s": 3.0,
            "radio.csi_delay_s": 0.002,
        }
    ),
    "pilots": Case({"radio.fading": "rayleigh", "radio.pilots": 100, "radio.report_bits": 64, "plan.on_time": 0.9}),
    "power-control": Case(
        {"radio.power_p0_dbm": -90.0, "radio.power_alpha": 0.8, "radio.downlink": "unicast", "radio.reuse": 1}
    ),
    "rician-antennas": Case({"radio.fading": "rician", "radio.num_antennas": 4, "network.placement": "disc"}),
    "noise-density": Case({"radio.noise_density_dbm_per_hz": -174.0, "radio.noise_figure_db": 9.0}),
    "uma-shadowed": Case({"radio.path_loss": "uma", "radio.shadowing_std_db": 6.0}),
    "drawn-samples": Case({"data.samples_per_device": 30, "data.partition": "dirichlet", "data.alpha": 0.3}),
    "edge-iid": Case({"data.partition": "edge-iid", "rounds.evaluate_every": "never"}),
}

_FEW = {
    "data.name": "glyphs",
    "data.train_samples": 500,
    "data.test_samples": 100,
    "rounds.global_rounds": 2,
    "rounds.edge_rounds": 2,
    "engine.name": "serial",
}
# A role for each device.
SIX_ROLES = {"network.num_edges": 2, "network.devices_per_edge": 3, "data.owners": 6}
_PRESETS = {
    f"preset-{name}": Case({**_FEW, **changes}, preset=name)
    for name, changes in {
        "paper": {},
        "paper-converged": {},
        "demo": {},
        "honest": {"plan.deadline_s": 0.093},
        "hetero-cpu": {},
        "non-iid": {},
        "wide": {},
        "dirichlet-01": {},
        "dirichlet-05": {},
        "text": {"data.name": "shakespeare", "data.train_samples": 2_500, "rounds.global_rounds": 1},
        "adapters": {
            "data.name": "shakespeare",
            "data.train_samples": 100,
            "data.test_samples": 50,
            "rounds.global_rounds": 1,
            **SIX_ROLES,
        },
        "unreliable": {},
        "hostile": {},
        "urban-5g": {},
        "factory": {},
        "iot": {},
        "device-cpu": {"plan.deadline_s": 0.28},
        "accelerators": {"plan.deadline_s": 0.05},
        "boards": {"plan.deadline_s": 0.12},
        "deployed": {},
        "cifar": {"rounds.global_rounds": 1},
        "million": {
            "network.num_edges": 5,
            "network.devices_per_edge": 400,
            "selection.random-share.share": 0.01,
            "plan.deadline_s": 0.02,
        },
    }.items()
}
_PRESETS["preset-smoke"] = Case({"engine.name": "serial"}, preset="smoke")

# Memory and sums of every kind, which neither another engine nor a restart may change.
_WITH_MEMORY = (
    "rough-scaffold",
    "rough-mem-sgd",
    "rough-shared-pruning",
    "rough-prunefl",
    "rough-afd-multi",
    "rough-dpf",
    "rough-fedadam",
    "rough-tt-prune",
    "rough-frozen-pruning",
    "rough-d2d-sign",
    "rough-japp",
    "sub-models-remembered",
)
# … and what is remembered above the devices alone, where no engine comes.
_RESUMED = (
    *_WITH_MEMORY,
    "rough-mobility",
    "rough-oort",
    "rough-hybridfl",
    "rough-fogfl",
    "rough-feddst",
    "rough-early",
    "rough-iterative",
    "rough-replicator",
    "rough-proportional-fair",
    "rough-small-ensemble",
    "deadline-auto",
    "steps-decay",
    "personal-momentum-steps",
    "tree-backhaul",
    "cached-heard",
)
_SERIAL = _PAPER | _METHODS | _ROUGH | _SETTINGS | _PRESETS
_ENGINES = {
    f"{engine}-{name}": replace(
        _SERIAL[name], changes={**_SERIAL[name].changes, "engine.name": engine, "engine.workers": 2}, same_as=name
    )
    for name in _WITH_MEMORY
    for engine in ("processes", "dask")
}
_RESTARTS = {f"resumed-{name}": replace(_SERIAL[name], same_as=name, resumed=True) for name in _RESUMED}

_LATE = "edge_status is late where a round took longer than the deadline although its plan did not"
_LATE_ENDINGS = ("early", "feddrop-bernoulli", "fedpart", "iterative", "lanfl", "lan-slow", "prunefl", "snip")
_UNTRAINED = "evaluated is what some device has trained, scaled as it trained: test_*, device_accuracy, final weights"
_UNTRAINED_ENDINGS = (
    *("feddrop", "feddrop-uniform", "heterofl", "heterofl-fc", "fjord", "fjord-fc", "fjord-kd", "afd"),
    *("min-contributors-shared", "sub-models-told", "sub-models-every-edge-round"),
)
_SIGNED = "keys of secure sums have signatures and commitments, which are charged"
_ANNOUNCED = ((_LATE_ENDINGS, _LATE), (_UNTRAINED_ENDINGS, _UNTRAINED), ("secure-sums", _SIGNED))


def _announced(name: str, case: Case) -> str:
    return case.announced or next((reason for endings, reason in _ANNOUNCED if name.endswith(endings)), "")


# The longest first, so that programs that share the work end together.
CASES: dict[str, Case] = {
    name: replace(case, announced=_announced(name, case)) for name, case in (_ENGINES | _SERIAL | _RESTARTS).items()
}


def scenario_of(case: Case) -> Any:
    """SMALL or the preset with the case's changes, under the keys that this tree's scenario accepts."""
    import airprune as ap

    base, changes = ap.Scenario(), SMALL | case.changes
    if case.preset:
        base, changes = ap.Scenario.preset(case.preset), case.changes
    values: dict[str, Any] = {}
    for key, value in changes.items():
        if key in RENAMED:
            try:
                ap.Scenario().with_values({key: value})
            except ap.AirpruneError:
                older, words = RENAMED[key]
                key, value = older, words.get(value, value)
        values[key] = value
    return base.with_values(values)


def run(case: Case, out: Path) -> None:
    """Runs a case on this tree; `out` becomes its run folder."""
    import airprune as ap

    scenario = scenario_of(case)
    if case.table:
        table = out.parent / f"{out.name}.csv"
        table.write_text(case.table, encoding="utf-8")
        scenario = scenario.with_values({"network.table": str(table)})
    if case.resumed:
        records = ap.run(scenario, out=out, **case.inputs())
        next(record for record in records if record["kind"] == "global")
        records.close()
    for _ in ap.run(scenario, out=out, resume=case.resumed, **case.inputs()):
        pass


def main(folder: Path, names: list[str]) -> None:
    logging.disable()  # what a device that is to fail has failed of
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        out = folder / name
        try:
            out.mkdir()
        except FileExistsError:  # another program's
            continue
        try:
            run(CASES[name], out)
        except Exception as error:  # the others are compared all the same, and this line says what happened
            (out / "failed.txt").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
