"""Estimates of how long runs take on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.methods.selection import Selection
from airprune.scenario import Scenario
from airprune.scenario.data import entry_of

# A sample that is tested, in samples that are trained on: forward only.
_TEST_COST = 0.3
# Measured on the presets: what a device's round takes beside its samples, and what a run takes to start and to end.
_DEVICE_ROUND_S = 0.7e-3
RUN_S = 3.0
# An edge round of a method that chooses its length: a guess.
_AUTO_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The amount of computation of a run.

    Attributes:
      samples: forward and backward passes of one sample each, tests by what they cost.
      device_rounds: edge rounds of all devices.
    """

    samples: float
    device_rounds: float

    def cpu_seconds(self, seconds_per_sample: float) -> float:
        """Returns the CPU time of all workers together."""
        return self.samples * seconds_per_sample + self.device_rounds * _DEVICE_ROUND_S

    def seconds(self, seconds_per_sample: float, *, workers: int) -> float:
        """Returns the time from start to end."""
        return RUN_S + self.cpu_seconds(seconds_per_sample) / workers


def workload_of(scenario: Scenario) -> Workload:
    """Returns an upper bound of the computation: every selected device takes part and passes over all its samples."""
    scenario.check_names()
    given_s = scenario.plan.deadline_s
    round_s = _AUTO_S if isinstance(given_s, str) else given_s
    return _workload(scenario, most_selected(scenario), _samples_per_round(scenario), round_s)


def expected_workload(scenario: Scenario) -> Workload:
    """Estimates the computation from the plan of the first edge round: who takes part, with which work, for how long.

    Reads the data. Returns the upper bound where the first round has no plan.
    """
    # These import the training libraries.
    from airprune.rounds.experiment import Experiment
    from airprune.rounds.first_round import first_round

    scenario.check_names()
    try:
        first = first_round(Experiment.of(scenario))
    except Exception:  # whatever is wrong, the run will say it
        return workload_of(scenario)
    takes_part = ~first.plan.blocking_devices
    if not takes_part.any():
        return workload_of(scenario)
    per_device, work, steps = _samples_per_round(scenario), first.problem.work, first.plan.local_steps
    if work is not None and steps is not None:
        equal_steps = (work.seconds(steps, first.part) - work.extra_s) / work.step_s
        per_device = float(np.mean(equal_steps[takes_part])) * scenario.train.batch_size
    round_s = first.deadline_s if first.plan.failed.any() else float(np.max(first.plan.latency_s))
    return _workload(scenario, int(takes_part.sum()), per_device, round_s)


def _samples_per_round(scenario: Scenario) -> float:
    """Number of samples on which a device trains in an edge round, if it does all of its work."""
    entry, data, train = entry_of(scenario), scenario.data, scenario.train
    num_train = min(data.train_samples or entry.num_train, entry.max_train)
    per_round = train.local_epochs * (data.samples_per_device or num_train / scenario.num_devices)
    return per_round if train.local_steps is None else min(per_round, train.local_steps * train.batch_size)


def _workload(scenario: Scenario, num_devices: int, per_device: float, round_s: float) -> Workload:
    """Adds up all rounds with these devices and samples, and the tests between them; `round_s`: of an edge round."""
    entry, edge_rounds = entry_of(scenario), scenario.edge_rounds_of
    global_rounds = scenario.rounds.global_rounds
    if (time_s := scenario.stop.time_s) is not None:
        global_rounds = max(1, min(global_rounds, round(time_s / (round_s * max(edge_rounds)))))
    num_test = min(scenario.data.test_samples or entry.num_test, entry.max_test)
    device_rounds = global_rounds * num_devices * sum(edge_rounds) / len(edge_rounds)
    tested = {"never": 0, "global": global_rounds, "edge": global_rounds * max(edge_rounds)}
    tests = tested[scenario.rounds.evaluate_every]
    return Workload(samples=device_rounds * per_device + _TEST_COST * tests * num_test, device_rounds=device_rounds)


def most_selected(scenario: Scenario) -> int:
    """Returns the largest number of selected devices of an edge round, over all edges."""
    if scenario.network.table is not None:
        return scenario.num_devices
    counts = [scenario.num_devices] if scenario.is_flat else scenario.network.device_counts
    selection: Selection = scenario.selection.chosen("name")
    return sum(selection.most(count) for count in counts)


def about(seconds: float) -> str:
    """Returns a rounded duration as text: about 40 seconds, about 7 minutes, about 3 hours."""
    for size, unit in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if seconds >= 1.5 * size:
            count = seconds / size
            return f"about {count:.0f} {unit}" if count >= 3 else f"about {count:.1f} {unit}".replace(".0 ", " ")
    return f"about {max(10, round(seconds, -1)):.0f} seconds"
