"""Estimated against measured CPU time of the runs in a folder: `benchmarks/durations.py FOLDER [--every N]`.

FOLDER holds run folders, such as `runs` of a league; each says what it took (usage.json). Run it on the machine that
made them. Prints estimate over measurement by method, and the share of runs within a factor of two.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from airprune.runs.durations import expected_workload
from airprune.runs.timing import seconds_per_sample
from airprune.scenario import Scenario


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="look at every Nth run only")
    given = parser.parse_args()
    rates: dict[str, float | None] = {}
    ratios: dict[str, list[float]] = defaultdict(list)
    for usage in sorted(given.folder.glob("*/usage.json"))[:: given.every]:
        scenario = Scenario.load(usage.with_name("scenario.toml"))
        kind = repr((scenario.model, scenario.data.source, scenario.train.batch_size))
        if kind not in rates:
            rates[kind] = seconds_per_sample(scenario)
        if (rate := rates[kind]) is None:
            continue
        estimated_s = expected_workload(scenario).cpu_seconds(rate)
        name = scenario.method if scenario.stop.time_s is None else f"{scenario.method}, timed"
        ratios[name].append(estimated_s / json.loads(usage.read_text())["cpu_s"])
    for name, values in sorted(ratios.items()):
        print(
            f"{name:28} {len(values):3} runs  {min(values):5.2f} to {max(values):5.2f}, median {np.median(values):5.2f}"
        )
    every = np.concatenate(list(ratios.values()))
    within = np.mean((every >= 0.5) & (every <= 2.0))
    print(f"{len(every)} runs: {within:.0%} within a factor of two, median {np.median(every):.2f}")


if __name__ == "__main__":
    main()
