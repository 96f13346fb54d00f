"""The figure of a track: every cloud model of every method, mean over seeds."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from airprune.results.figures.pareto import Curve, pareto_figure
from airprune.results.measures import MEASURES
from airprune.studies.league.finished import ALL_LINKS
from airprune.studies.league.lineup import FP32, SEED, WHOLE
from airprune.studies.league.standings import Row, Standings

AGAINST = ("time_s", "uploaded_bits", "energy_j")


def league_figure(found: Standings, *, caption: str) -> Figure:
    """Draws accuracy against simulated seconds, bits and joules; references that send nothing are horizontal lines."""
    rows = [row for row in found.rows if row.entry.has_costs and row.result.runs]
    levels = {
        row.entry.name: float(np.mean([run.accuracy for run in row.result.runs.values()]))
        for row in found.rows
        if row.result.runs and not row.entry.has_costs
    }
    return pareto_figure(
        {against: {row.entry.name: curve(row, against) for row in rows} for against in AGAINST},
        known=[name for name in (SEED, FP32, WHOLE) if any(row.entry.name == name for row in rows)],
        levels=levels,
        target=found.target,
        caption=caption,
        headings={"uploaded_bits": "bits on all links (Mbit)", "energy_j": "energy, a model's (J)"},
    )


def curve(row: Row, against: str) -> Curve:
    """Returns (cost, accuracy) of each cloud model, mean over seeds, as far as all of them go."""
    runs = [
        [
            (value * MEASURES[against].axis_scale, test.test_accuracy)
            for test in run.tests_by(ALL_LINKS)
            if (value := getattr(test, against)) is not None
        ]
        for run in row.result.runs.values()
    ]
    shortest = min(map(len, runs), default=0)
    if not shortest:
        return []
    mean = np.mean([run[:shortest] for run in runs], axis=0)
    return [(float(cost), float(accuracy)) for cost, accuracy in mean]
