"""The figure of the README, from the recorded league: PYTHONPATH=src python tools/readme_figure.py.

Accuracy against simulated time of five methods of track A, each at its tuned learning rate; nothing is run.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from rekey_ledger import league_of

from airprune.studies.league.ledger import read_ledger

ROOT = Path(__file__).resolve().parent.parent
# Method of the league, and its name in the figure.
SHOWN = {
    "no-pruning": "no pruning, 64 bit",
    "fp32": "no pruning, 32 bit",
    "adaptive-pruning": "the paper's: least total pruning",
    "variance": "the paper's masks, fair shares",
    "adaptive-bits": "compression without pruning",
}
COLOURS = ("#444444", "#0072b2", "#d55e00", "#009e73", "#cc79a7")


def curves(ledger: Path) -> dict[str, list[list[tuple[float, float]]]]:
    """Returns (seconds, accuracy) of the tuned runs, by method and seed."""
    recorded = read_ledger(ledger)
    found: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in SHOWN}
    for run in league_of(ledger).ranked_runs():
        name = run.label.removeprefix("A ").partition(",")[0]
        if name in found and run.folder_name in recorded:
            tests = recorded[run.folder_name].played.tests
            found[name].append([(test.time_s, test.test_accuracy) for test in tests if test.edge_round is None])
    return found


def main() -> None:
    mpl.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"}
    figure, axes = plt.subplots(figsize=(7.2, 3.1), layout="constrained")
    for colour, (name, runs) in zip(COLOURS, curves(ROOT / "docs" / "league-played.jsonl").items(), strict=True):
        times, accuracy = np.array(runs).mean(0).T
        values = 100 * np.array(runs)[:, :, 1]
        axes.plot(times, 100 * accuracy, "o-", color=colour, label=f"{SHOWN[name]} ({len(runs)} seeds)", markersize=3)
        axes.fill_between(times, values.min(0), values.max(0), color=colour, alpha=0.12, linewidth=0)
    axes.set(xscale="log", xlabel="simulated time, computing and uplink (s)", ylabel="test accuracy (%)", ylim=(20, 85))
    axes.grid(alpha=0.25)
    axes.legend(loc="lower left", bbox_to_anchor=(0.06, 0.0), frameon=False, fontsize=8)
    figure.savefig(ROOT / "docs" / "images" / "readme.png", dpi=160)


if __name__ == "__main__":
    main()
