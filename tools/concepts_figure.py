"""Draws the figure of docs/concepts.md: what is configured, what happens in a global round, what is run.

.venv/bin/python tools/concepts_figure.py     writes docs/images/concepts.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

FIGURE = Path(__file__).parents[1] / "docs/images/concepts.svg"
INK, PALE, BLUE, GREEN, ORANGE = "#1d2330", "#eef1f8", "#dbe4fb", "#dcf0e1", "#fbe6d0"
COMPONENTS = (
    ("association", "which edge serves a device"),
    ("client selection", "which devices take part"),
    ("scheme", "bandwidth shares, pruning ratios"),
    ("masking", "which weights stay"),
    ("objective", "what a device minimises"),
    ("compression", "what travels"),
    ("aggregation", "how updates are averaged"),
    ("server optimiser", "how edge and cloud step"),
    ("topology", "which node averages which"),
)


def box(
    ax: Axes, x: float, y: float, width: float, height: float, colour: str, title: str = "", note: str = ""
) -> None:
    """Draws a rounded box, with a bold title and a note inside."""
    patch = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.12", fc=colour, ec=INK, lw=0.9)
    ax.add_patch(patch)
    middle = y + height / 2
    ax.text(x + width / 2, middle + (0.17 if note else 0), title, ha="center", va="center", weight="bold", size=9)
    if note:
        ax.text(x + width / 2, middle - 0.2, note, ha="center", va="center", size=7.4)


def label(ax: Axes, x: float, y: float, text: str, size: float = 8.5, **options: object) -> None:
    ax.text(x, y, text, size=size, va="center", color=INK, **options)  # type: ignore[arg-type]


def configured(ax: Axes) -> None:
    """Draws the scenario, which contains a method, which contains components."""
    box(ax, 0.1, 0.1, 11.8, 6.1, PALE)
    label(ax, 0.35, 5.85, "scenario: every setting of a run", weight="bold", size=10)
    label(ax, 4.05, 5.85, "(a preset is a scenario that ships: paper, demo, smoke, …)")
    settings = (
        ("network, radio", "devices, edges, channels"),
        ("clock", "paper, FLOP-based, measured"),
        ("model, data", "what is trained on what"),
        ("training, rounds", "steps, edge and global rounds"),
    )
    for i, (title, note) in enumerate(settings):
        box(ax, 0.35 + 2.88 * i, 4.6, 2.7, 0.9, "white", title, note)
    box(ax, 0.35, 0.3, 11.34, 4.05, BLUE)
    label(ax, 0.6, 4.05, "method: a published recipe, a named bundle of components", weight="bold", size=10)
    for i, (title, note) in enumerate(COMPONENTS):
        colour = GREEN if title == "scheme" else "white"
        box(ax, 0.6 + 3.68 * (i % 3), 2.8 - 1.15 * (i // 3), 3.5, 0.95, colour, title, note)


def in_time(ax: Axes) -> None:
    """Draws a global round of three edge rounds, each of local steps and an upload before the deadline."""
    label(ax, 0.1, 3.75, "one global round: E edge rounds, then the cloud averages the edges", weight="bold", size=10)
    for i in range(3):
        x = 0.1 + 3.45 * i
        box(ax, x, 0.75, 3.3, 2.65, PALE)
        label(ax, x + 0.12, 3.15, f"edge round {i + 1}", weight="bold")
        for device, (compute, upload) in enumerate(((0.9, 1.6), (0.7, 1.8), (1.1, 1.4))):
            y = 2.4 - 0.62 * device
            for step in range(3):
                width = compute / 3
                ax.add_patch(plt.Rectangle((x + 0.15 + step * width, y), width, 0.42, fc=ORANGE, ec=INK, lw=0.6))
            ax.add_patch(plt.Rectangle((x + 0.15 + compute, y), upload, 0.42, fc=BLUE, ec=INK, lw=0.6))
            if i == 0 and device == 0:
                label(ax, x + 0.15 + compute / 2, y + 0.21, "local steps", 6.6, ha="center")
                label(ax, x + 0.15 + compute + upload / 2, y + 0.21, "upload", 6.6, ha="center")
        ax.plot([x + 2.65] * 2, [0.85, 2.95], color="#b3261e", lw=1.4, ls="--")
        ax.text(x + 2.72, 1.9, "deadline", size=7.2, color="#b3261e", rotation=90, va="center")
        label(ax, x + 3.0, 1.9, "edge averages", 7.2, rotation=90)
    box(ax, 10.5, 0.75, 1.4, 2.65, GREEN, "cloud", "averages")
    label(
        ax,
        0.1,
        0.35,
        "the pruning ratio of a device: the share of its prunable weights that it neither trains nor sends",
    )


def what_is_run(ax: Axes) -> None:
    """Draws the kinds of studies, from one run to a league, and what happens on real machines."""
    label(ax, 0.1, 3.3, "what is run", weight="bold", size=10)
    rows = (
        ("run", "one scenario, one seed"),
        ("comparison", "variants × seeds"),
        ("sweep", "values of keys × seeds"),
        ("league", "all methods, one set of rules"),
    )
    for i, (title, note) in enumerate(rows):
        box(ax, 0.1 + 2.98 * i, 1.95, 2.8, 0.95, "white", title, note)
    label(ax, 0.1, 1.5, "a league has tracks: one network and rule set each (A, B, C, …)", 8)
    box(ax, 0.1, 0.1, 5.78, 0.95, ORANGE, "deployment", "the same scenario on real machines, over TLS")
    box(ax, 6.06, 0.1, 5.78, 0.95, ORANGE, "replay", "a deployment's recorded rounds, computed again")


def main() -> None:
    plt.rcParams.update({"svg.fonttype": "path", "svg.hashsalt": "airprune", "font.family": "DejaVu Sans"})
    heights = (6.3, 4.0, 3.5)
    figure, axes = plt.subplots(3, 1, figsize=(8.4, 9.8), height_ratios=heights, layout="constrained")
    for ax, height, draw in zip(axes, heights, (configured, in_time, what_is_run), strict=True):
        ax.set(xlim=(0, 12), ylim=(0, height))
        ax.axis("off")
        draw(ax)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
