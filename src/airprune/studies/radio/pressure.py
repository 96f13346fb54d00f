"""The deadline of a rung: that at which the paper's plan prunes as much, on average, as on the paper's radio.

On another radio 30 ms would be no deadline at all or one that no device meets. One deadline per rung, for all methods
and seeds: the mean pruning ratio in the paper's plans, over seeds, rounds and devices, is that of the paper's rung. A
device that blocks its edge is excluded, as in a run, and counts as pruned whole. Rounds are planned without training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from airprune.planning.exclusion import without_blockers
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Scheme
from airprune.rounds.edge import selected_plan
from airprune.rounds.experiment import Experiment
from airprune.scenario import Scenario
from airprune.studies.radio.rungs import PAPERS, scenario_on
from airprune.studies.radio.timetable import few_samples, without_training

_TOLERANCE = 1e-3
_LEAST_S, _MOST_S = 0.01, 10.0


def round_problems(scenario: Scenario) -> tuple[Scheme, list[PlanProblem]]:
    """Returns a scenario's scheme, and the problem of every edge round of a run."""
    experiment = Experiment.of(without_training(scenario), dataset=few_samples(scenario))
    state = experiment.initial_state()
    problems = []
    for index in range(experiment.num_rounds):
        state.global_round, state.counters[-1] = divmod(index, max(scenario.edge_rounds_of))
        at = experiment.place(state)
        candidates, cpu_hz = experiment.candidates(at, state, experiment.served(at, state))
        context = at.context.bounded(state.values)
        charges = context.charges(at.round_index)
        _, problem, _ = selected_plan(context, candidates, cpu_hz, charges, experiment.kappa(state))
        problems.append(problem)
    return experiment.method.scheme, problems


def planned_ratios(scheme: Scheme, problem: PlanProblem, deadline_s: float) -> np.ndarray:
    """Returns the pruning ratio of every device at a deadline; 1 for devices that block their edge."""
    pressed, ratio = replace(problem, deadline_s=deadline_s), np.ones(problem.num_devices)
    plan, in_plan = without_blockers(scheme, pressed, scheme.plan(pressed))
    if not plan.failed.any():
        ratio[in_plan] = plan.pruning_ratio
    return ratio


def mean_ratio(settings: Mapping[str, Any], seeds: Sequence[int]) -> Callable[[float], float]:
    """Returns the mean pruning ratio of the paper's plans on a radio as a function of the deadline."""
    found = [round_problems(scenario_on(settings, PAPERS, seed)) for seed in seeds]

    def at(deadline_s: float) -> float:
        return float(
            np.mean([planned_ratios(scheme, one, deadline_s) for scheme, problems in found for one in problems])
        )

    return at


def pressed_deadline_s(settings: Mapping[str, Any], seeds: Sequence[int], ratio: float) -> float:
    """Returns the deadline at which the paper's plans on a radio prune by `ratio` on average."""
    ratio_at = mean_ratio(settings, seeds)
    low, high = _LEAST_S, _MOST_S
    while high > low * (1.0 + _TOLERANCE):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if ratio_at(middle) > ratio else (low, middle)
    return round(high, 5)
