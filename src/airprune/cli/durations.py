"""How long it will take, said before it is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airprune.cli.console import say
from airprune.text import counted

if TYPE_CHECKING:
    from airprune.scenario import Scenario

# What ends sooner is not announced; what has fewer samples is not even timed.
_LONG_S = 20.0
_FEW_SAMPLES = 30_000


def tell_duration(scenarios: Sequence[Scenario], *, at_a_time: int = 1, elsewhere: bool = False) -> None:
    """One line on how long these runs will take together, if that is long and can be told.

    Args:
      at_a_time: runs that go on side by side.
      elsewhere: on machines whose cores are not known here, so that CPU time is told.
    """
    from airprune.runs.durations import about, workload_of
    from airprune.runs.timing import seconds_per_sample

    workloads = [workload_of(scenario) for scenario in scenarios]
    if sum(workload.samples for workload in workloads) < _FEW_SAMPLES:
        return
    rates = {_kind(scenario): scenario for scenario in scenarios}
    timed = {kind: seconds_per_sample(scenario) for kind, scenario in rates.items()}
    total_s, cores = 0.0, at_a_time
    for scenario, workload in zip(scenarios, workloads, strict=True):
        rate = timed[_kind(scenario)]
        if rate is None:
            return  # better nothing than a guess
        elsewhere |= scenario.engine.scheduler is not None
        workers = _workers(scenario)
        total_s += workload.cpu_seconds(rate) if elsewhere else workload.seconds(rate, workers=workers) / at_a_time
        cores = max(cores, workers)
    if total_s < _LONG_S:
        return
    where = "of CPU time" if elsewhere else f"on {counted(cores, 'core')}"
    runs = "" if len(scenarios) == 1 else f" for {counted(len(scenarios), 'run')}"
    say(f"This will take {about(total_s)} {where}{runs}.")


def _kind(scenario: Scenario) -> str:
    """What has the same speed has the same kind."""
    return repr((scenario.model, scenario.data.name, scenario.train))


def _workers(scenario: Scenario) -> int:
    """Cores that a run's devices share."""
    from airprune.engines.machine import num_cores

    if scenario.engine.name == "serial":
        return 1
    return min(scenario.engine.workers or num_cores(), num_cores())
