"""What do secure sums cost, and what do they save of the noise of differential privacy?

.venv/bin/python benchmarks/secure.py [--seeds 5]

Prints three tables as Markdown. Bytes of the exchange beside the paper's CNN in 32-bit words, by the function that the
clock charges with. CPU-seconds of one edge round's cryptography in this process, all devices and the edge. Accuracy on
the scene of `hostile.py`, without attackers and at learning rate 0.1, with noise on every update and on sums alone: the
same (epsilon, delta) against the edge.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from hostile import SCENE, samples

from airprune import Scenario, privacy_epsilon, run
from airprune.components.component import paper_shape
from airprune.methods.secure.cohort import SecureCohort
from airprune.methods.secure.exchange import Sizes
from airprune.methods.secure.fixed_point import FixedPoint

WORD_BITS, WORD_BYTES = 32, 4
DEVICES = (5, 10, 30, 100)
CLIP, ROUNDS = 1.0, 10
NOISE = (0.2, 0.5, 1.0)


def bytes_table(num_weights: int) -> str:
    rows = [
        "| devices of an edge | value bits | up, per device | down, per device | share of its upload |",
        "|---" * 5 + "|",
    ]
    for count in DEVICES:
        sizes = Sizes(count)
        up = sizes.keys + sizes.shares + sizes.revealed
        down = sizes.all_keys + sizes.shares + sizes.survivors
        bits = FixedPoint(WORD_BITS, count, 1.0).value_bits
        rows.append(f"| {count} | {bits} | {up:,} B | {down:,} B | {100 * up / (WORD_BYTES * num_weights):.1f} % |")
    return "\n".join(rows)


def seconds_table(num_weights: int) -> str:
    """Returns CPU-seconds with 30 % of the devices missing when the sum is opened."""
    rows = [
        "| devices of an edge | masking, per device | exchange and unmasking, all devices and edge |",
        "|---" * 3 + "|",
    ]
    for count in DEVICES:
        fixed = FixedPoint(WORD_BITS, count, 1.0)
        group = SecureCohort(devices=tuple(range(count)), threshold=count // 2 + 1, fixed=fixed, secret=bytes(32))
        survivors, whole = group.devices[: count - int(0.3 * count)], np.zeros(num_weights, dtype=np.int64)
        group.masked(0, whole)  # the keys of all devices are computed once
        began_s = time.process_time()
        words = group.masked(0, whole)
        masked_s = time.process_time() - began_s
        for device in survivors[1:]:
            words = words + group.masked(device, whole)
        began_s = time.process_time()
        assert not group.opened(words, survivors).any()
        rows.append(f"| {count} | {1e3 * masked_s:.1f} ms | {1e3 * (time.process_time() - began_s):.0f} ms |")
    return "\n".join(rows)


def accuracy(seed: int, changes: dict[str, Any]) -> float:
    """Returns that of a run in percent; its sums are in the clear, which changes no result."""
    beside = {"seed": seed, "train.learning_rate": 0.1, "plan.bits_per_weight": 32.0, "aggregation.edge": "secure-sum"}
    beside["aggregation.secure-sum.masked"] = False
    scenario = Scenario.preset("smoke").with_values({**SCENE, **beside, **changes})
    found = [
        record["test_accuracy"] for record in run(scenario, dataset=samples(seed, "test")) if "test_accuracy" in record
    ]
    return 100.0 * float(found[-1])


def noise_table(num_seeds: int) -> str:
    clip = {"privacy.clip_norm": CLIP, "aggregation.secure-sum.limit": 10.0}

    def cell(changes: dict[str, Any]) -> str:
        found = [accuracy(seed, clip | changes) for seed in range(num_seeds)]
        return f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}"

    rows = ["| z | epsilon | noise on every update | noise on sums |", "|---" * 4 + "|", f"| 0 | – | {cell({})} | |"]
    for z in NOISE:
        cells = [cell({"privacy.noise_multiplier": z, "privacy.noise_of": of}) for of in ("update", "sum")]
        rows.append(f"| {z:g} | {privacy_epsilon(z, ROUNDS):,.0f} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    num_weights = paper_shape().num_weights
    num_seeds = parser.parse_args().seeds
    print(bytes_table(num_weights), end="\n\n", flush=True)
    print(seconds_table(num_weights), end="\n\n", flush=True)
    print(noise_table(num_seeds))


if __name__ == "__main__":
    main()
