"""How good deadlines are that tune themselves: time to an accuracy against the best fixed deadline, found by a sweep.

    .venv/bin/python benchmarks/deadlines.py [--seeds 2] [--target 0.7] [--out runs/deadlines]

Three networks (the paper's, with Rayleigh fading, with CPUs from 0.5 GHz up) under two clocks (the paper's, FLOPs of a
Raspberry Pi 4), on the reproduction's default schedule. Fixed deadlines are those with which everybody could send with
one code of the ladder. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import airprune as ap
from airprune.planning.deadline import deadline_for_bits_s
from airprune.results.time_to_target import Costs
from airprune.rounds.experiment import Experiment
from airprune.studies.comparison import Variant, campaign, evaluations
from airprune.studies.paper.profiles import PROFILES

HONEST = {"clock.compute": "flops", "clock.board": "raspberry-pi-4", "network.cpu_hz": 1.8e9}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("paper-converged", {}),
    "rayleigh": ("paper-converged", {"radio.fading": "rayleigh"}),
    "hetero-cpu": ("hetero-cpu", {}),
}
CLOCKS: dict[str, dict[str, Any]] = {"paper": {}, "flops": HONEST}
RUNGS = (0.14, 0.44, 0.75, 2.0, 8.0)


def scenario_of(preset: str, changes: dict[str, Any]) -> ap.Scenario:
    every = {"method": "adaptive-bits", "rounds.evaluate_every": "edge", "data.test_samples": 2_000}
    return PROFILES["default"].scenario(preset, 0, {**every, **changes})


def fixed_deadlines_s(scenario: ap.Scenario) -> list[float]:
    """With which everybody can send so many bits per weight in the first round."""
    experiment = Experiment.of(scenario)
    device = np.arange(experiment.network.num_devices)
    state = experiment.initial_state()
    at = experiment.place(state)
    candidates, _ = experiment.candidates(at, state, experiment.served(at, state))
    per_weight_s, extra_s = experiment.context.compute.line(device, experiment.network.cpu_hz, probe=False)
    problem = ap.PlanProblem(
        full_band_rate_bps=candidates.full_band_rate_bps,
        seconds_per_weight=per_weight_s,
        extra_seconds=extra_s,
        edge=candidates.edge,
        bits_per_weight=RUNGS[0],
        max_pruning_ratio=0.0,
    )
    return [deadline_for_bits_s(problem, bits) for bits in RUNGS]


def variants_of(preset: str, changes: dict[str, Any]) -> list[Variant]:
    auto = scenario_of(preset, changes)
    found = [Variant(name="auto", scenario=auto)]
    for bits, deadline_s in zip(RUNGS, fixed_deadlines_s(auto), strict=True):
        found.append(Variant(name=f"{bits:g} bits", scenario=auto.with_("plan.deadline_s", deadline_s)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--target", type=float, default=0.7)
    parser.add_argument("--out", type=Path, default=Path("runs/deadlines"))
    parser.add_argument("--only", default="", help="a part of NETWORK-CLOCK, e.g. rayleigh-flops")
    chosen = parser.parse_args()
    for network, (preset, changes) in NETWORKS.items():
        for clock, honest in CLOCKS.items():
            name = f"{network}-{clock}"
            if chosen.only in name:
                slow = {"network.cpu_hz": 5e8, "network.cpu_hz_max": 1.8e9} if preset == "hetero-cpu" and honest else {}
                variants = variants_of(preset, {**changes, **honest, **slow})
                tell(name, variants, range(chosen.seeds), chosen.target, chosen.out / name)


def tell(name: str, variants: list[Variant], seeds: range, target: float, out: Path) -> None:
    runs = campaign(variants, seeds, out)
    for _ in runs.outcomes(runs.missing()):
        pass
    found = evaluations(variants, seeds, out)
    times = {variant: [*Costs.of(runs, target, "time_to_target_s").by_seed.values()] for variant, runs in found.items()}
    medians = {variant: float(np.median(seconds)) for variant, seconds in times.items()}
    best = min((variant for variant in medians if variant != "auto"), key=medians.__getitem__)
    print(f"{name}, to {target:.0%}: auto takes {medians['auto'] / medians[best]:.2f} × the best fixed deadline's time")
    for variant, median in medians.items():
        each = ", ".join(f"{1e3 * seconds:.4g}" for seconds in times[variant])
        print(f"    {variant:>10}  median {1e3 * median:.4g} ms  ({each})", flush=True)


if __name__ == "__main__":
    main()
