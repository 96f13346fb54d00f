"""How accurate is each robust aggregation with 20 % attackers of each kind, and what does it cost without any?

.venv/bin/python benchmarks/hostile.py [--out hostile.jsonl] [--seeds 5] [--table]

30 devices at three edges train an MLP with 64 hidden units on 1,800 samples of Fashion-MNIST at 14 × 14 pixels, 5 × 2
rounds. A run takes a fraction of a CPU-second; finished ones are in the file and not run again. The tables go to stdout
as Markdown.
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

SCENE: dict[str, Any] = {
    "name": "hostile",
    "engine.name": "serial",
    "network.num_edges": 3,
    "network.devices_per_edge": 10,
    "model.name": "mlp",
    "plan.scheme": "no-pruning",
    "train.learning_rate": 0.1,
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
AGGREGATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain mean": ("masked-mean", {}),
    "norm-clip": ("norm-clip", {}),
    "trimmed-mean": ("trimmed-mean", {}),
    "median": ("median", {}),
    "krum": ("krum", {}),
    "multi-krum": ("krum", {"aggregation.krum.keep": 5}),
    "geometric-median": ("geometric-median", {}),
}
Key = tuple[int, str, str, str]
Samples = tuple[np.ndarray, np.ndarray]


@cache
def samples(seed: int) -> tuple[Samples, Samples]:
    """Returns training and test samples, pixels averaged two by two and standardised."""
    found = load_dataset("fashion-mnist", train_samples=1800, test_samples=1000, seed=seed)

    def small(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), 1, 14, 2, 14, 2).mean(axis=(3, 5))

    train, test = small(found.train_x), small(found.test_x)
    mean, spread = train.mean(), train.std()
    return ((train - mean) / spread, found.train_y), ((test - mean) / spread, found.test_y)


def accuracy(seed: int, data: str, attack: str, aggregation: str) -> float:
    """Returns the test accuracy after the last round; that of guessing, if training diverged."""
    name, options = AGGREGATIONS[aggregation]
    changes = {"seed": seed, "attack.kind": attack, "aggregation.edge": name, "aggregation.cloud": name}
    scenario = Scenario.preset("smoke").with_values({**SCENE, **DATA[data], **changes, **options})
    found = [
        record.get("test_accuracy") for record in run(scenario, dataset=samples(seed)) if record["kind"] == "global"
    ]
    return 0.1 if found[-1] is None else float(found[-1])


def finished(path: Path) -> dict[Key, float]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["seed"], row["data"], row["attack"], row["aggregation"]): row["accuracy"] for row in rows}


def table(found: dict[Key, float], data: str) -> str:
    """Returns mean ± standard deviation over seeds, in percent, as Markdown."""
    head = f"| {data} | {' | '.join(AGGREGATIONS)} |\n|{'---|' * (len(AGGREGATIONS) + 1)}"
    rows = [head]
    for attack in ATTACKS:
        cells = []
        for aggregation in AGGREGATIONS:
            values = [100 * v for (_, d, a, g), v in found.items() if (d, a, g) == (data, attack, aggregation)]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.1f} ± {spread:.1f}" if values else "")
        rows.append(f"| {attack} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("hostile.jsonl"), help="file of finished runs")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is finished")
    options = parser.parse_args()
    found = finished(options.out)
    for key in [] if options.table else product(range(options.seeds), DATA, ATTACKS, AGGREGATIONS):
        if key in found:
            continue
        began_s = time.process_time()
        found[key] = accuracy(*key)
        row = dict(zip(("seed", "data", "attack", "aggregation"), key, strict=True))
        row |= {"accuracy": found[key], "cpu_s": round(time.process_time() - began_s, 2)}
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
    for data in DATA:
        print(table(found, data), end="\n\n")


if __name__ == "__main__":
    main()
