"""How accurate is each robust aggregation with 20 % attackers of each kind, and what does it cost without any?

.venv/bin/python benchmarks/hostile.py [--out hostile.jsonl] [--seeds 10] [--table]

30 devices at three edges train an MLP with 64 hidden units on 1,800 samples of Fashion-MNIST at 14 × 14 pixels, 5 × 2
rounds. The learning rate of each aggregation is tuned for each kind of data, without attackers, since these do not
announce themselves: the best mean over three tuning seeds on 1,000 held-out training samples, in a grid that is
extended while its end is best. A run takes a fraction of a CPU-second; finished ones are in the file and not run again.
The tables go to stdout as Markdown: accuracies, then differences to the plain mean, paired by seed, with intervals that
hold together for the six aggregations of a row with 95 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from airprune import Scenario, run
from airprune.data import load_dataset
from airprune.studies.league.statistics import student_quantile

SCENE: dict[str, Any] = {
    "name": "hostile",
    "engine.name": "serial",
    "network.num_edges": 3,
    "network.devices_per_edge": 10,
    "model.name": "mlp",
    "plan.scheme": "no-pruning",
    "train.momentum": 0.0,
    "train.batch_size": 20,
    "train.local_epochs": 1,
    "rounds.global_rounds": 5,
    "rounds.edge_rounds": 2,
}
DATA: dict[str, dict[str, Any]] = {
    "IID": {},
    "Dirichlet 0.5": {"data.partition": "dirichlet", "data.alpha": 0.5},
}
ATTACKS = ("none", "sign-flip", "noise", "scaled", "label-flip", "free-rider", "colluding")
# Columns of the table: the aggregation at edges and cloud, and its options.
PLAIN = "plain mean"
AGGREGATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    PLAIN: ("masked-mean", {}),
    "norm-clip": ("norm-clip", {}),
    "trimmed-mean": ("trimmed-mean", {}),
    "median": ("median", {}),
    "krum": ("krum", {}),
    "multi-krum": ("krum", {"aggregation.krum.keep": 5}),
    "geometric-median": ("geometric-median", {}),
}
# Learning rates: those that are always tried, and those beyond them.
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
FIRST = (0.03, 0.1, 0.3)
TUNING_SEEDS = (100, 101, 102)
# Points that matter; smaller differences are called none.
MATTERS = 3.0
# Data, attack, aggregation.
Cell = tuple[str, str, str]
# Seed and learning rate.
Key = tuple[str, str, str, int, float]
Samples = tuple[np.ndarray, np.ndarray]


@cache
def samples(seed: int, judge_on: str) -> tuple[Samples, Samples]:
    """Returns training and test (or held-out) samples, pixels averaged two by two and standardised."""
    found = load_dataset("fashion-mnist", train_samples=1800, test_samples=1000, seed=seed, judge_on=judge_on)

    def small(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), 1, 14, 2, 14, 2).mean(axis=(3, 5))

    train, test = small(found.train_x), small(found.test_x)
    mean, spread = train.mean(), train.std()
    return ((train - mean) / spread, found.train_y), ((test - mean) / spread, found.test_y)


def accuracy(data: str, attack: str, aggregation: str, seed: int, rate: float) -> float:
    """Returns the accuracy after the last round; that of guessing, if training diverged. Tuning seeds are held out."""
    name, options = AGGREGATIONS[aggregation]
    changes = {"seed": seed, "attack.kind": attack, "aggregation.edge": name, "aggregation.cloud": name}
    changes["train.learning_rate"] = rate
    scenario = Scenario.preset("smoke").with_values({**SCENE, **DATA[data], **changes, **options})
    dataset = samples(seed, "held-out" if seed in TUNING_SEEDS else "test")
    found = [record.get("test_accuracy") for record in run(scenario, dataset=dataset) if record["kind"] == "global"]
    return 0.1 if found[-1] is None else float(found[-1])


class Runs:
    """Finished runs in a file, and new ones.

    Attributes:
      may_run: whether missing ones are run; else they raise LookupError.
    """

    def __init__(self, path: Path, *, may_run: bool) -> None:
        self.path, self.may_run = path, may_run
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.found: dict[Key, float] = {
            (row["data"], row["attack"], row["aggregation"], row["seed"], row["rate"]): row["accuracy"] for row in rows
        }

    def __getitem__(self, key: Key) -> float:
        if key not in self.found:
            if not self.may_run:
                raise LookupError(key)
            began_s = time.process_time()
            self.found[key] = accuracy(*key)
            row = dict(zip(("data", "attack", "aggregation", "seed", "rate"), key, strict=True))
            row |= {"accuracy": self.found[key], "cpu_s": round(time.process_time() - began_s, 2)}
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return self.found[key]

    def tuned(self, data: str, aggregation: str) -> float:
        """Returns the learning rate with the best mean on the tuning seeds; the grid grows while its end is best."""

        def score(rate: float) -> float:
            return statistics.mean(self[(data, "none", aggregation, seed, rate)] for seed in TUNING_SEEDS)

        rates = list(FIRST)
        while True:
            best = max(rates, key=score)
            place = RATES.index(best)
            beyond = [RATES[n] for n in (place - 1, place + 1) if 0 <= n < len(RATES) and RATES[n] not in rates]
            if not beyond:
                return best
            rates += beyond

    def accuracies(self, cell: Cell, num_seeds: int) -> list[float]:
        """Returns those of the tuned rate on the test seeds, in percent."""
        rate = self.tuned(cell[0], cell[2])
        return [100.0 * self[(*cell, seed, rate)] for seed in range(num_seeds)]


def difference(values: list[float], plain: list[float]) -> tuple[float, float]:
    """Returns the mean paired difference, and the half-width of its interval, simultaneous over a row (Bonferroni)."""
    gaps = [a - b for a, b in zip(values, plain, strict=True)]
    level = 1.0 - 0.05 / (len(AGGREGATIONS) - 1)
    return statistics.mean(gaps), student_quantile(level, len(gaps) - 1) * statistics.stdev(gaps) / len(gaps) ** 0.5


def verdict(mean: float, half: float) -> str:
    if abs(mean) > half:
        return "better" if mean > 0.0 else "worse"
    return "equal" if abs(mean) + half < MATTERS else "?"


def tables(runs: Runs, data: str, num_seeds: int) -> str:
    """Returns accuracies (mean ± standard deviation over seeds), differences and learning rates, as Markdown."""
    others = [name for name in AGGREGATIONS if name != PLAIN]
    rows = [f"| {data} | {' | '.join(AGGREGATIONS)} |\n|{'---|' * (len(AGGREGATIONS) + 1)}"]
    gaps = [f"| {data} | {' | '.join(others)} |\n|{'---|' * (len(others) + 1)}"]
    for attack in ATTACKS:
        found = {name: runs.accuracies((data, attack, name), num_seeds) for name in AGGREGATIONS}
        cells = [f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}" for values in found.values()]
        rows.append(f"| {attack} | {' | '.join(cells)} |")
        judged = [difference(found[name], found[PLAIN]) for name in others]
        cells = [f"{mean:+.1f} ± {half:.1f} {verdict(mean, half)}" for mean, half in judged]
        gaps.append(f"| {attack} | {' | '.join(cells)} |")
    rows.append(f"| learning rate | {' | '.join(f'{runs.tuned(data, name):g}' for name in AGGREGATIONS)} |")
    return "\n".join(rows) + "\n\n" + "\n".join(gaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("hostile.jsonl"), help="file of finished runs")
    parser.add_argument("--seeds", type=int, default=10, help="number of test seeds, from 0")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is finished")
    options = parser.parse_args()
    runs = Runs(options.out, may_run=not options.table)
    for num_seeds, cell in product(sorted({5, options.seeds}), product(DATA, ATTACKS, AGGREGATIONS)):
        if num_seeds <= options.seeds:
            runs.accuracies(cell, num_seeds)
    for data in DATA:
        print(tables(runs, data, options.seeds), end="\n\n")


if __name__ == "__main__":
    main()
