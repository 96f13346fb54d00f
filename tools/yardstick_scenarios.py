"""What the yardstick runs, and the program that runs it on whichever airprune is on the path.

    python -P yardstick_scenarios.py FOLDER

leaves one run folder per scenario. Trees of different ages are compared with one another, so this relies on nothing but
`airprune.Scenario` and `airprune.run`, and settings carry their newest keys; RENAMED has what older trees call them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Case:
    """A scenario of the yardstick: SMALL with `changes`; `inputs` makes the model and the arrays given to `run`.

    `announced` says since when and why results differ from those of older commits; CHANGELOG.md tells it, too.
    """

    changes: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[], dict[str, Any]] = dict
    announced: str = ""


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


CASES: dict[str, Case] = {
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


def scenario_of(changes: dict[str, Any]) -> Any:
    """SMALL with `changes`, under the keys that this tree's scenario accepts."""
    import airprune as ap

    values: dict[str, Any] = {}
    for key, value in {**SMALL, **changes}.items():
        if key in RENAMED:
            try:
                ap.Scenario().with_values({key: value})
            except ap.AirpruneError:
                older, words = RENAMED[key]
                key, value = older, words.get(value, value)
        values[key] = value
    return ap.Scenario().with_values(values)


def main(folder: Path) -> None:
    import airprune as ap

    for name, case in CASES.items():
        out = folder / name
        try:
            for _ in ap.run(scenario_of(case.changes), out=out, **case.inputs()):
                pass
        except Exception as error:  # the others are compared all the same, and this line says what happened
            out.mkdir(parents=True, exist_ok=True)
            (out / "failed.txt").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
