"""Estimates of how long runs take on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from airprune.methods.selection import Selection
from airprune.scenario import Scenario
from airprune.scenario.data import entry_of

# A sample that is tested, in samples that are trained on: forward only.
_TEST_COST = 0.3
# Measured on the presets: what a device's round takes beside its samples, and what a run takes to start and to end.
_DEVICE_ROUND_S = 0.7e-3
_RUN_S = 3.0


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
        return _RUN_S + self.cpu_seconds(seconds_per_sample) / workers


def workload_of(scenario: Scenario) -> Workload:
    """Returns an upper bound of the computation: devices that do not finish train less."""
    scenario.check_names()
    entry, data, train = entry_of(scenario), scenario.data, scenario.train
    num_train = min(data.train_samples or entry.num_train, entry.max_train)
    num_test = min(data.test_samples or entry.num_test, entry.max_test)
    selected, rounds = most_selected(scenario), scenario.edge_rounds_of
    global_rounds = scenario.rounds.global_rounds
    device_rounds = global_rounds * selected * sum(rounds) / len(rounds)
    per_round = train.local_epochs * (data.samples_per_device or num_train / scenario.num_devices)
    if train.local_steps is not None:
        per_round = min(per_round, train.local_steps * train.batch_size)
    tests = {"never": 0, "global": global_rounds, "edge": global_rounds * max(rounds)}[scenario.rounds.evaluate_every]
    return Workload(samples=device_rounds * per_round + _TEST_COST * tests * num_test, device_rounds=device_rounds)


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
