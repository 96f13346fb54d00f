"""The table and the figure of docs/promise.md, computed from the recorded league docs/league-played.jsonl.

.venv/bin/python tools/promise_table.py     brings the page's table and docs/images/promise-tuned.png up to date

Runs nothing: tuning and test runs are looked up in the ledger by `airprune league`'s own functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from airprune.results.statistics import Estimate
from airprune.studies.league.finished import ALL_LINKS
from airprune.studies.league.folder import League
from airprune.studies.league.ledger import read_ledger
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.standings import Result
from airprune.studies.league.tracks import tracks_named

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/promise.md"
FIGURE = ROOT / "docs/images/promise-tuned.png"
LEDGER = ROOT / "docs/league-played.jsonl"
REFERENCE = "no-pruning"
SHOWN = {
    "no-pruning": "no pruning, 64 bits",
    "adaptive-pruning": "the paper's: `adaptive-pruning`",
    "minmax-pruning": "the paper's masks, fair shares: `minmax-pruning`",
    "variance": "the paper's masks, fair shares: `variance`",
    "frozen-pruning": "`frozen-pruning`",
    "snip": "`snip`",
    "prunefl": "`prunefl`",
    "fp32": "no pruning, 32 bits: `fp32`",
    "bf16": "no pruning, 16 bits: `bf16`",
    "fixed-8": "no pruning, 8 bits: `fixed-8`",
    "fixed-4": "no pruning, 4 bits: `fixed-4`",
    "sign": "1 bit with error feedback: `sign`",
    "stc": "sparse ternary 1/32: `stc`",
    "topk-1": "largest 1 %: `topk-1`",
    "adaptive-bits": "bits, shares and deadline planned: `adaptive-bits`",
}
HEAD = "| | rate | accuracy % | difference to no pruning | time s | Mbit, all links | of these uplink | energy J |"
MARKED = re.compile(r"(<!-- tuned -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)


def results() -> dict[str, Result]:
    """Returns tuned runs of the methods shown, by method."""
    schedule = SCHEDULES["default"]
    base = schedule.scenario()
    league = League(
        base=base,
        note=schedule.note,
        tracks=tuple(tracks_named("A")),
        methods=tuple(name for name in SHOWN if name != REFERENCE),
        seeds=schedule.seeds,
        is_tuned=True,
        out=ROOT / "build/no-league",
        engine=base.engine,
        recorded=read_ledger(LEDGER),
    )
    (found,) = league.standings()
    return {name: row.result for name in SHOWN if (row := found.row(name)) is not None}


def table(found: Mapping[str, Result]) -> str:
    reference = found[REFERENCE].runs
    rows = []
    for name, title in SHOWN.items():
        if name not in found or not found[name].runs:
            continue
        runs = found[name].runs
        last = {seed: run.tests[-1] for seed, run in runs.items()}
        accuracy = Estimate.of([100 * test.test_accuracy for test in last.values()])
        gap = Estimate.of(
            [100 * (test.test_accuracy - reference[seed].tests[-1].test_accuracy) for seed, test in last.items()]
        )
        seconds = float(np.mean([test.time_s for test in last.values()]))
        joules = float(np.mean([test.energy_j for test in last.values()]))
        bits, uplink = (
            float(np.mean([run.tests_by(link)[-1].uploaded_bits for run in runs.values()]))
            for link in (ALL_LINKS, "uplink")
        )
        difference = "–" if name == REFERENCE else f"{gap.mean:+.2f} ± {gap.half_width:.2f}".replace("-", "−")
        knobs = found[name].knobs
        assert knobs is not None
        cells = (
            title,
            f"{knobs['train.learning_rate']:g}",
            f"{accuracy.mean:.2f} ± {accuracy.half_width:.2f}",
            difference,
            f"{seconds:.2f}",
            f"{bits / 1e6:.0f}",
            f"{uplink / 1e6:.0f}",
            f"{joules:.1f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([HEAD, "|---" * 8 + "|", *rows])


def draw(found: Mapping[str, Result]) -> None:
    """Draws mean accuracy with 95 % intervals against simulated time."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.2, 3.9), layout="constrained")
    styles = {
        "no-pruning": ("#1d2330", "o", "no pruning, 64 bits"),
        "adaptive-pruning": ("#b3261e", "s", "the paper's: adaptive-pruning"),
        "minmax-pruning": ("#1f6f43", "D", "its masks, fair shares: minmax-pruning"),
        "fp32": ("#3146a8", "v", "fp32, no pruning"),
        "adaptive-bits": ("#8a5a00", "^", "adaptive-bits, no pruning"),
    }
    for name, (colour, marker, label) in styles.items():
        runs = found[name].runs.values()
        times = np.mean([[test.time_s for test in run.tests] for run in runs], axis=0)
        accuracy = np.array([[100 * test.test_accuracy for test in run.tests] for run in runs])
        estimates = [Estimate.of(list(column)) for column in accuracy.T]
        ax.errorbar(
            times,
            [one.mean for one in estimates],
            yerr=[one.half_width for one in estimates],
            color=colour,
            marker=marker,
            capsize=2,
            lw=1.4,
            ms=4.5,
            label=label,
        )
    ax.set(
        xlabel="simulated time (s), paper's clock, all links charged",
        ylabel="test accuracy (%)",
        ylim=(30, 84),
        xlim=(0, None),
    )
    ax.grid(alpha=0.3)
    ax.legend(loc="lower right", frameon=False)
    figure.savefig(FIGURE, dpi=130, metadata={"Software": None})


def up_to_date(page: str, found: Mapping[str, Result]) -> str:
    """Returns the page with its table made again."""
    return MARKED.sub(lambda match: f"{match[1]}{table(found)}\n{match[2]}", page)


if __name__ == "__main__":
    tuned = results()
    PAGE.write_text(up_to_date(PAGE.read_text(), tuned))
    draw(tuned)
