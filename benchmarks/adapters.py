"""Adapters at fewer ranks and bits: perplexity and time against whole adapters at 32 bits, all links charged.

    .venv/bin/python benchmarks/adapters.py [--seeds 5] [--out runs/adapters.jsonl] [--only ARM …] [--table]
    .venv/bin/python benchmarks/adapters.py --bias docs/images/adapter-bias.png

On the preset `adapters`: the paper's cells, broadcast downlink at 32 bits, a backhaul of 1 Gbit/s, 6 × 2 rounds for
all. Every arm has the same tuning: three learning rates, on held-out samples, with three seeds. Then each runs
with the seeds 0, 1, … on the test samples. Finished runs are not repeated. A run takes about ten CPU-seconds.

--bias draws how far averages of A and B are from the average of B A, in some rounds of FedIT.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import airprune as ap
from airprune.models.char_transformer import RANK, CharLora
from airprune.models.initial_weights import torch_seed
from airprune.studies.claims.student import student_t

FIXED = {"plan.scheme": "min-max-time"}
# Rank of the model, method and settings; the first is what the others are compared with.
ARMS: Mapping[str, tuple[int, str, Mapping[str, Any]]] = {
    "rank 8, 32 bits": (RANK, "fedit", {}),
    "rank 8, 4 bits": (RANK, "fixed-4", FIXED),
    "rank 8, 2 bits": (RANK, "fixed-2", FIXED),
    "rank 4, 32 bits": (4, "fedit", {}),
    "rank 2, 32 bits": (2, "fedit", {}),
    "rank 4, 4 bits": (4, "fixed-4", FIXED),
    "adaptive-ranks": (RANK, "adaptive-ranks", {"masking.ranks.largest": 4}),
}
METHODS: Mapping[str, tuple[int, str, Mapping[str, Any]]] = {
    "ffa-lora": (RANK, "ffa-lora", {}),
    "rolora": (RANK, "rolora", {}),
    "hetlora": (RANK, "hetlora", {"plan.deadline_s": 0.006}),
}
RATES = (0.005, 0.01, 0.02)
TUNING_SEEDS = (100, 101, 102)
WITHIN, REFERENCE = 1.02, "rank 8, 32 bits"


def scenario_of(arm: str, rate: float, seed: int) -> ap.Scenario:
    _, method, changes = (ARMS | METHODS)[arm]
    values = {"method": method, **changes, "train.learning_rate": rate, "seed": seed, "engine.name": "serial"}
    held_out = {"data.judge_on": "held-out"} if seed in TUNING_SEEDS else {}
    return ap.Scenario.preset("adapters").with_values({**values, **held_out})


def model_of(arm: str, seed: int) -> Any:
    """Returns the base with adapters of the arm's rank, sampled by the seed."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed))
        return CharLora((ARMS | METHODS)[arm][0]).load_base()


def played(arm: str, rate: float, seed: int) -> dict[str, Any]:
    started = time.process_time()
    records = [
        one for one in ap.run(scenario_of(arm, rate, seed), model=model_of(arm, seed)) if one["kind"] == "global"
    ]
    bits = ("uploaded_bits", "downlink_bits", "backhaul_bits")
    return {
        "arm": arm,
        "learning_rate": rate,
        "seed": seed,
        "time_s": [one["time_s"] for one in records],
        "perplexity": [one["test_perplexity"] for one in records],
        "bits": [sum(one[name] for name in bits) for one in records],
        "cpu_s": round(time.process_time() - started, 1),
    }


class Ledger:
    """Finished runs, one line each; several programs may add to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, arm: str, rate: float, seed: int) -> dict[str, Any]:
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            known: dict[str, Any] = json.loads(line)
            if (known["arm"], known["learning_rate"], known["seed"]) == (arm, rate, seed):
                return known
        found = played(arm, rate, seed)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(
            f"{arm}, rate {rate}, seed {seed}: {found['perplexity'][-1]:.3f} in {found['time_s'][-1]:.4f} s", flush=True
        )
        return found

    def best_rate(self, arm: str) -> float:
        """Tunes an arm; a winner at the end of the grid is compared with one step beyond."""
        tried = {rate: self._tuned(arm, rate) for rate in RATES}
        best = min(tried, key=lambda rate: tried[rate])
        if best in (RATES[0], RATES[-1]):
            beyond = best / 2 if best == RATES[0] else best * 2
            tried[beyond] = self._tuned(arm, beyond)
        return min(tried, key=lambda rate: tried[rate])

    def _tuned(self, arm: str, rate: float) -> float:
        """Returns the mean perplexity at the end over the tuning seeds."""
        ends = [self.run(arm, rate, seed)["perplexity"][-1] for seed in TUNING_SEEDS]
        return float("inf") if None in ends else float(np.mean(ends))


def table(ledger: Ledger, arms: list[str], seeds: range) -> None:
    """Prints the end of every arm, and the time at which it is within 2 % of where the first one ends."""
    print("| arm | rate | perplexity | of rank 8, 32 bits | time | time to within 2 % | of its time |")
    print("|---|---|---|---|---|---|---|")
    whole = [ledger.run(REFERENCE, ledger.best_rate(REFERENCE), seed) for seed in seeds]
    for arm in arms:
        rate = ledger.best_rate(arm)
        runs = [ledger.run(arm, rate, seed) for seed in seeds]
        ends = np.array([run["perplexity"][-1] for run in runs])
        ratio = ends / [run["perplexity"][-1] for run in whole]
        reached = [_time_to(run, WITHIN * other["perplexity"][-1]) for run, other in zip(runs, whole, strict=True)]
        share = np.array(reached) / [other["time_s"][-1] for other in whole]
        to_target = "–" if not np.all(np.isfinite(reached)) else f"{1e3 * np.mean(reached):.1f} ms"
        shares = "–" if not np.all(np.isfinite(share)) else f"{np.mean(share):.3f} (at most {np.max(share):.3f})"
        print(
            f"| {arm} | {rate:g} | {ends.mean():.3f} ± {_half_width(ends):.3f} | {ratio.mean():.4f} ± "
            f"{_half_width(ratio):.4f} | {1e3 * np.mean([run['time_s'][-1] for run in runs]):.1f} ms | {to_target} | "
            f"{shares} |"
        )


def _time_to(run: Mapping[str, Any], target: float) -> float:
    return next((t for t, p in zip(run["time_s"], run["perplexity"], strict=True) if p <= target), np.inf)


def _half_width(values: np.ndarray) -> float:
    """Half of the 95 % interval of the mean."""
    return float(student_t(0.95, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def draw_bias(path: Path, global_rounds: tuple[int, ...] = (1, 2, 4)) -> None:
    """Draws the bias of every adapter as a share of what the round has changed, mean over edges."""
    import matplotlib.pyplot as plt

    scenario, found = ap.Scenario.preset("adapters"), {}
    for number in global_rounds:
        for one in ap.adapter_bias(ap.trace_round(scenario, number)):
            found.setdefault((number, one.adapter), []).append(one.share)
        shares = [share for (round_number, _), each in found.items() if round_number == number for share in each]
        print(f"global round {number}: {np.mean(shares):.1%} on average, at most {np.max(shares):.1%}", flush=True)
    names = sorted({adapter for _, adapter in found}, key=[adapter for _, adapter in found].index)
    figure, axes = plt.subplots(figsize=(7.0, 3.2), layout="constrained")
    for place, number in enumerate(global_rounds):
        heights = [100 * np.mean(found[number, name]) for name in names]
        axes.bar(np.arange(len(names)) + 0.27 * (place - 1), heights, 0.27, label=f"global round {number}")
    axes.set_xticks(np.arange(len(names)), [name.replace("blocks.", "") for name in names], rotation=45, ha="right")
    axes.set_ylabel("bias, % of the change")
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    axes.legend(ncols=len(global_rounds), loc="upper center")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/adapters.jsonl"))
    parser.add_argument("--table", action="store_true", help="print the table at the end")
    parser.add_argument("--only", nargs="+", choices=[*ARMS, *METHODS], default=list(ARMS), metavar="ARM")
    parser.add_argument("--bias", type=Path, metavar="FILE", help="draw the bias of averages, and run nothing else")
    options = parser.parse_args()
    if options.bias is not None:
        return draw_bias(options.bias)
    ledger, arms = Ledger(options.out), options.only
    for arm in arms:
        rate = ledger.best_rate(arm)
        for seed in range(options.seeds):
            ledger.run(arm, rate, seed)
    if options.table:
        table(ledger, arms, range(options.seeds))


if __name__ == "__main__":
    main()
