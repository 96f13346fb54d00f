"""How good `auto` is for planned work: time to an accuracy against the best fixed deadline, and what each part brings.

    .venv/bin/python benchmarks/work.py [--seeds 2] [--only NETWORK] [--what deadlines|returns|parts] [--out runs/work]

Networks are on the device clock with every link charged, on the league's schedule of samples and minibatches. Runs end
at the target, or at the time that 6 × 2 rounds take at the network's own deadline. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import airprune as ap
from airprune.results.time_to_target import Costs
from airprune.studies.comparison import Variant, campaign, evaluations

DIRICHLET = {"data.partition": "dirichlet", "data.alpha": 0.5}
# Preset, changes, target: about 95 % of what no pruning ends with.
NETWORKS: Mapping[str, tuple[str, Mapping[str, Any], float]] = {
    "device-cpu": ("device-cpu", {}, 0.76),
    "dirichlet": ("device-cpu", DIRICHLET, 0.71),
    "boards": ("boards", {}, 0.76),
    "accelerators": ("accelerators", {}, 0.76),
    "rayleigh": ("device-cpu", {"radio.fading": "rayleigh"}, 0.76),
    "narrow": ("device-cpu", {"radio.bandwidth_hz": 1e6}, 0.76),
    "wide": ("device-cpu", {"model.name": "cifar-cnn", "plan.deadline_s": 2.67}, 0.77),
}
# As shares of the network's own deadline, which the slowest device meets with the whole model.
DEADLINES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
HALF_EPOCHS = (0.5, 1.0, 4.0, 8.0)
PARTS: Mapping[str, Mapping[str, Any]] = {
    "adaptive-work": {},
    "whole models": {"plan.work.parts": False},
    "two passes": {"plan.work.max_epochs": 2},
    "no kept features": {"train.feature_cache_mb": 0},
    "32 bits": {"compression.name": "cast", "compression.cast.format": "float32"},
    "no coverage": {"plan.work.coverage": 0},
    "no rotation": {"plan.work.rotate": False},
    "normalised": {"aggregation.edge": "fednova"},
    "edges close after 3 of 5": {"topology.name": "k-of-n"},
    "asynchronous edges": {"topology.name": "buffered"},
}


def scenario_of(network: str, changes: Mapping[str, Any]) -> ap.Scenario:
    preset, own, target = NETWORKS[network]
    scene = ap.Scenario.preset(preset).with_values(own)
    time_s = scene.rounds.global_rounds * scene.rounds.edge_rounds * float(scene.plan.deadline_s)
    every = {
        "method": "adaptive-work",
        "train.learning_rate": 0.03,
        "data.test_samples": 2_000,
        "rounds.global_rounds": 10_000,
        "stop.time_s": time_s,
        "stop.target": target,
    }
    return scene.with_values({**every, **changes})


def variants_of(network: str, what: str) -> list[Variant]:
    if what == "parts":
        return [Variant(name=name, scenario=scenario_of(network, changes)) for name, changes in PARTS.items()]
    if what == "returns":
        changed = {f"{half:g} passes": {"plan.work.half_epochs": half} for half in HALF_EPOCHS}
        changed = {"2 passes, as local_epochs": {}, **changed}
        return [Variant(name=name, scenario=scenario_of(network, changes)) for name, changes in changed.items()]
    preset, own, _ = NETWORKS[network]
    whole_s = float(ap.Scenario.preset(preset).with_values(own).plan.deadline_s)
    found = [Variant(name="auto", scenario=scenario_of(network, {}))]
    for share in DEADLINES:
        deadline_s = float(f"{share * whole_s:.3g}")
        changes = {"plan.deadline_s": deadline_s, "plan.infeasible": "drop"}
        found.append(Variant(name=f"{deadline_s:g} s", scenario=scenario_of(network, changes)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--what", choices=("deadlines", "returns", "parts"), default="deadlines")
    parser.add_argument("--out", type=Path, default=Path("runs/work"))
    parser.add_argument("--only", default="", help="a network")
    chosen = parser.parse_args()
    for network in NETWORKS:
        if chosen.only in network:
            variants = variants_of(network, chosen.what)
            tell(network, variants, range(chosen.seeds), NETWORKS[network][2], chosen.out / chosen.what / network)


def tell(network: str, variants: list[Variant], seeds: range, target: float, out: Path) -> None:
    runs = campaign(variants, seeds, out)
    for _ in runs.outcomes(runs.missing()):
        pass
    found = evaluations(variants, seeds, out)
    times = {name: [*Costs.of(runs, target, "time_to_target_s").by_seed.values()] for name, runs in found.items()}
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    first = variants[0].name
    best = min((name for name in medians if name != first), key=medians.__getitem__)
    print(f"{network}, to {target:.0%}: {first} takes {medians[first] / medians[best]:.2f} × the time of {best}")
    for name, median in medians.items():
        each = ", ".join(f"{seconds:.3g}" for seconds in times[name])
        print(f"    {name:>26}  median {median:.3g} s  ({each})", flush=True)


if __name__ == "__main__":
    main()
