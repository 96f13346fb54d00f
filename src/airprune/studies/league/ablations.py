"""Ablations: which part of a method does the work. Runs of the first track's scene, in the league's ledger.

pruning         the paper's method: shares (least sum of ratios, min-max, least variance, equal) × zeroed or frozen
                weights × learning rate, all combinations; the choice of the mask around two of them
adaptive-bits   shares, levels, deadline and error feedback, switched off one at a time, at two learning rates
masks           the paper's method: the choice of the mask × all combinations of the first

Learning rates are factors here, not tuned. Every cell has the same seeds, so differences are paired.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from airprune.results.figures.curves import new_figure, note
from airprune.results.statistics import Estimate
from airprune.results.time_to_target import TIME, Costs
from airprune.scenario import Scenario
from airprune.studies.campaign import CampaignRun
from airprune.studies.claims.intervals import points_text
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.league_run import Purpose, league_run
from airprune.studies.league.runs import MEASURED, RunStore
from airprune.studies.league.standings import TARGET_SHARE

SEEDS = (0, 1, 2, 3, 4)
RATES = (0.03, 0.1)
PLANS = {"sum": "optimal", "min-max": "min-max", "variance": "variance", "equal": "equal-resolved"}
MASKS = {"probe": "update", "magnitude": "magnitude", "random": "random"}
WEIGHTS = {"zeroed": ("adaptive-pruning", "probe"), "frozen": ("frozen-pruning", "frozen")}
WHOLE = "no pruning"
# Bits per weight of the level that all devices have where none is chosen; the planner's choices are around it.
ONE_LEVEL_BITS = 0.5
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination.

    Attributes:
      part: its place on the axis, e.g. the plan, or what is switched off.
      group: the bars that it belongs to, e.g. zeroed weights at one rate.
    """

    part: str
    group: str
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.part}, {self.group}"


@dataclass(frozen=True, kw_only=True)
class Ablation:
    name: str
    title: str
    cells: tuple[Cell, ...]


def _rate(rate: float) -> str:
    return f"rate {rate:g}"


def _pruned(plan: str, weights: str, rate: float, mask: str = "probe") -> dict[str, Any]:
    method, masking = WEIGHTS[weights]
    return {
        "method": method,
        "plan.scheme": PLANS[plan],
        f"masking.{masking}.importance": MASKS[mask],
        "train.learning_rate": rate,
    }


def _mask_cells() -> Iterator[Cell]:
    for plan, mask, weights, rate in itertools.product(PLANS, MASKS, WEIGHTS, RATES):
        settings = _pruned(plan, weights, rate, mask)
        yield Cell(part=f"{plan}, {mask}", group=f"{weights}, {_rate(rate)}", settings=settings)


def _pruning_cells() -> Iterator[Cell]:
    for plan, weights, rate in itertools.product(PLANS, WEIGHTS, RATES):
        yield Cell(part=plan, group=f"{weights}, {_rate(rate)}", settings=_pruned(plan, weights, rate))
    for plan, mask in itertools.product(("sum", "min-max"), ("magnitude", "random")):
        group = f"zeroed, {_rate(RATES[-1])}"
        yield Cell(part=f"{plan}, {mask} mask", group=group, settings=_pruned(plan, "zeroed", RATES[-1], mask))
    for rate in RATES:
        whole = {"method": "adaptive-pruning", "plan.scheme": "no-pruning", "train.learning_rate": rate}
        yield Cell(part=WHOLE, group=_rate(rate), settings=whole)


_OFF: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    "no error feedback": {"compression.ladder.memory": False},
    "deadline of 30 ms": {"plan.deadline_s": 0.030},
    "one level": {"plan.scheme": "min-max-time", "plan.deadline_s": 0.030, "compression.ladder.bits": ONE_LEVEL_BITS},
    "one level, equal shares": {
        "plan.scheme": "no-pruning",
        "plan.deadline_s": 0.030,
        "compression.ladder.bits": ONE_LEVEL_BITS,
    },
}


def _bits_cells() -> Iterator[Cell]:
    for (part, off), rate in itertools.product(_OFF.items(), RATES):
        settings = {"method": "adaptive-bits", **off, "train.learning_rate": rate}
        yield Cell(part=part, group=_rate(rate), settings=settings)


PRUNING = Ablation(
    name="pruning", title="The paper's method: shares, masks, zeroed or frozen weights", cells=tuple(_pruning_cells())
)
ADAPTIVE_BITS = Ablation(
    name="adaptive-bits", title="adaptive-bits without one of its parts", cells=tuple(_bits_cells())
)
ALL_MASKS = Ablation(name="masks", title="The paper's method with other masks", cells=tuple(_mask_cells()))
# In the order of work.
ABLATIONS = (PRUNING, ADAPTIVE_BITS, ALL_MASKS)

Runs = Mapping[str, Mapping[int, FinishedRun]]
"""Finished runs by cell and seed."""


def runs_by_cell(ablation: Ablation, base: Scenario, seeds: Sequence[int] = SEEDS) -> dict[str, list[CampaignRun]]:
    """Returns the runs of every cell."""
    found: dict[str, list[CampaignRun]] = {}
    for cell in ablation.cells:
        scenario = base.with_values({**cell.settings, **MEASURED})
        knobs = {"train.learning_rate": scenario.train.learning_rate}
        found[cell.name] = [
            league_run(
                f"{ablation.name} ({cell.name})",
                scenario,
                seed,
                purpose=Purpose.ABLATION,
                method=scenario.method,
                knobs=knobs,
            )
            for seed in seeds
        ]
    return found


def ablation_runs(base: Scenario, store: RunStore, seeds: Sequence[int] = SEEDS) -> list[CampaignRun]:
    """Returns the runs of all ablations that are missing, each once."""
    runs = {
        run.folder_name: run
        for ablation in ABLATIONS
        for mine in runs_by_cell(ablation, base, seeds).values()
        for run in mine
    }
    return [run for run in runs.values() if store.finished(run) is None and not store.has_failed(run)]


@dataclass(frozen=True, kw_only=True)
class AblationResult:
    """The finished runs of an ablation.

    Attributes:
      seeds: those that every cell has finished.
    """

    ablation: Ablation
    runs: Runs
    seeds: tuple[int, ...]

    def accuracy(self, name: str) -> np.ndarray:
        return np.array([self.runs[name][seed].accuracy for seed in self.seeds])

    def best(self, part: str) -> str:
        """Returns the cell of a part with the highest mean accuracy over its groups."""
        cells = [cell.name for cell in self.ablation.cells if cell.part == part]
        return max(cells, key=lambda name: float(np.nan_to_num(self.accuracy(name), nan=-1.0).mean()))

    def gap(self, first: str, second: str) -> str:
        """Returns the paired difference of two cells in points."""
        return points_text(self.accuracy(first) - self.accuracy(second))

    def as_json(self) -> dict[str, Any]:
        rows = [
            {
                "cell": cell.name,
                "part": cell.part,
                "group": cell.group,
                "accuracy": [None if np.isnan(value) else float(value) for value in self.accuracy(cell.name)],
                "time_s": [self.runs[cell.name][seed].tests[-1].time_s for seed in self.seeds],
            }
            for cell in self.ablation.cells
        ]
        return {
            "name": self.ablation.name,
            "title": self.ablation.title,
            "seeds": list(self.seeds),
            "conclusion": conclusion(self),
            "picture": f"{figure_name(self.ablation.name)}.png",
            "cells": rows,
        }


def ablation_results(base: Scenario, store: RunStore, seeds: Sequence[int] = SEEDS) -> list[AblationResult]:
    """Returns the ablations of which at least one seed is complete."""
    found = []
    for ablation in ABLATIONS:
        finished = {
            name: {run.scenario.seed: one for run in runs if (one := store.finished(run)) is not None}
            for name, runs in runs_by_cell(ablation, base, seeds).items()
        }
        shared = tuple(seed for seed in seeds if all(seed in mine for mine in finished.values()))
        if shared:
            found.append(AblationResult(ablation=ablation, runs=finished, seeds=shared))
    return found


def figure_name(ablation: str) -> str:
    """Returns the name of an ablation's figure files, without the ending."""
    return f"ablation-{ablation}"


def conclusion(found: AblationResult) -> str:
    """Returns what the numbers say, in a sentence or two."""
    about = {PRUNING.name: _about_pruning, ADAPTIVE_BITS.name: _about_bits, ALL_MASKS.name: _about_masks}
    words = about[found.ablation.name](found)
    seeds = len(found.seeds)
    return f"{words} ({seeds} seed{'' if seeds == 1 else 's'}; mean ± half of the 95 % interval, in points)."


def _about_pruning(found: AblationResult) -> str:
    """Compares plans at the higher rate, frozen with zeroed weights, rates, masks; the best cell with no pruning."""
    high = _rate(RATES[-1])
    plans = ", ".join(
        f"{plan} {found.gap(f'{plan}, zeroed, {high}', f'sum, zeroed, {high}')}" for plan in PLANS if plan != "sum"
    )
    frozen = ", ".join(
        f"{found.gap(f'{plan}, frozen, {high}', f'{plan}, zeroed, {high}')} with {plan} shares"
        for plan in ("sum", "min-max")
    )
    rate = ", ".join(
        f"{found.gap(f'{plan}, zeroed, {high}', f'{plan}, zeroed, {_rate(RATES[0])}')} with {plan} shares"
        for plan in ("sum", "min-max")
    )
    masks = ", ".join(
        f"{mask} {found.gap(f'min-max, {mask} mask, zeroed, {high}', f'min-max, zeroed, {high}')}"
        for mask in MASKS
        if mask != "probe"
    )
    best = max(
        (cell.name for cell in found.ablation.cells if cell.part != WHOLE),
        key=lambda name: float(np.nan_to_num(found.accuracy(name), nan=-1.0).mean()),
    )
    return (
        f"With zeroed weights at learning rate {RATES[-1]:g}, other shares than those of the least sum of ratios gain: "
        f"{plans}; freezing weights in place of zeroing them: {frozen}; rate {RATES[-1]:g} in place of {RATES[0]:g}: "
        f"{rate}; other masks than the paper's with min-max shares: {masks}; the best cell ({best}) differs from no "
        f"pruning by {found.gap(best, found.best(WHOLE))}"
    )


def _about_bits(found: AblationResult) -> str:
    """Compares each variant with the whole method, both at the better of the two rates, by accuracy and time."""
    whole = found.best("all")
    target = TARGET_SHARE * float(found.accuracy(whole).mean())
    parts = []
    for part in _OFF:
        if part == "all":
            continue
        name = found.best(part)
        parts.append(f"{part} {found.gap(name, whole)} ({_time_text(found, name, target)})")
    listed = "; ".join(parts)
    return (
        f"Against all parts ({_time_text(found, whole, target)} to {target:.1%}), each at its better learning rate: "
        f"{listed}"
    )


def _about_masks(found: AblationResult) -> str:
    """Compares every other mask with the paper's, over all combinations of plan, weights and rate."""
    others = []
    for mask in MASKS:
        if mask == "probe":
            continue
        gaps = np.array(
            [
                found.accuracy(f"{plan}, {mask}, {group}") - found.accuracy(f"{plan}, probe, {group}")
                for plan in PLANS
                for group in dict.fromkeys(cell.group for cell in found.ablation.cells)
            ]
        )
        low, high = 100.0 * gaps.mean(axis=1).min(), 100.0 * gaps.mean(axis=1).max()
        others.append(f"{mask} {points_text(gaps.mean(axis=0))} (single combinations {low:+.1f} to {high:+.1f})")
    return (
        "Against the paper's masks, by a probe, on the mean over all shares, zeroed and frozen weights and both rates: "
        f"{', '.join(others)}"
    )


def _time_text(found: AblationResult, name: str, target: float) -> str:
    costs = Costs.of({seed: found.runs[name][seed].tests for seed in found.seeds}, target, TIME)
    text = costs.text(TIME)
    return text if costs.median is None else f"{text} s"


def figure(found: AblationResult) -> Figure:
    """Draws the accuracy of every cell as a point with its interval, grouped by part."""
    cells = found.ablation.cells
    parts = list(dict.fromkeys(cell.part for cell in cells))
    groups = list(dict.fromkeys(cell.group for cell in cells))
    drawn, (ax,) = new_figure(1, width=max(6.0, 1.1 * len(parts) + 2.0), height=3.8)
    for group in groups:
        _points(ax, found, group, parts, groups)
    ax.set_xticks(range(len(parts)), [part.replace(", ", ",\n") for part in parts], fontsize=8)
    ax.set_xlim(-0.5, len(parts) - 0.5)
    ax.grid(visible=False, axis="x")
    ax.set_ylabel("test accuracy after all rounds (%)")
    ax.legend(frameon=False, fontsize=8, ncols=len(groups), loc="upper center", bbox_to_anchor=(0.5, -0.16))
    note(drawn, f"{found.ablation.title} · {len(found.seeds)} seeds, 95 % intervals")
    return drawn


def _points(ax: Axes, found: AblationResult, group: str, parts: Sequence[str], groups: Sequence[str]) -> None:
    """Draws the points of one group, beside those of the other groups that share their parts."""
    x, mean, half_width = [], [], []
    for cell in (cell for cell in found.ablation.cells if cell.group == group):
        beside = [one.group for one in found.ablation.cells if one.part == cell.part]
        estimate = Estimate.of(list(100.0 * found.accuracy(cell.name)))
        x.append(parts.index(cell.part) + (beside.index(group) - (len(beside) - 1) / 2.0) * 0.8 / len(groups))
        mean.append(estimate.mean)
        half_width.append(0.0 if np.isnan(estimate.half_width) else estimate.half_width)
    place = groups.index(group)
    colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
    ax.errorbar(x, mean, yerr=half_width, fmt=marker, color=colour, capsize=3, markersize=6, label=group)
