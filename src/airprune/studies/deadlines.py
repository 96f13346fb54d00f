"""Finds which deadlines serve a scenario's devices: how many, pruned by how much, under which clock.

Nothing is trained: the first edge round is planned at several deadlines, with the scenario's model, data, network and
scheme. The clock decides the answer, so there is a second one beside the scenario's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airprune.checks import instance, quantity
from airprune.errors import InvalidValue
from airprune.planning.deadline import deadline_for_bits_s
from airprune.planning.feasibility import min_deadline_s
from airprune.planning.plan import round_up_ms
from airprune.planning.problem import PlanProblem
from airprune.planning.what_if import Outlook, outlook
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import FirstRound, first_round
from airprune.scenario import Scenario
from airprune.text import shown
from airprune.wireless.device_speed.boards import BOARDS

OWN, PAPER = "own", "paper"
OTHER_BOARD = "raspberry-pi-4"
"""Stands beside the paper's clock unless other clocks are given."""
# Deadlines that are tried between the ends.
_BETWEEN = 5


@dataclass(frozen=True, kw_only=True)
class DeadlineRow:
    """One deadline under one clock.

    Attributes:
      note: the reason why the deadline is in the table, if it has one.
    """

    clock: str
    deadline_s: float
    outlook: Outlook
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Deadlines of a scenario under its clocks.

    Attributes:
      scheme: that plans.
      plans_work: whether it chooses local steps and trained parts, and prunes nothing.
      rows: clock by clock, by rising deadline.
      smallest_s: the smallest deadline that serves all devices, by clock; ∞ if none does.
    """

    scheme: str
    plans_work: bool
    rows: tuple[DeadlineRow, ...]
    smallest_s: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Returns all of it for machines, in milliseconds."""
        smallest_ms = {clock: 1e3 * found if np.isfinite(found) else None for clock, found in self.smallest_s.items()}
        return {
            "scheme": self.scheme,
            "smallest_deadline_ms": smallest_ms,
            "deadlines": [
                {"clock": row.clock, "deadline_ms": 1e3 * row.deadline_s, "note": row.note, **row.outlook.as_json()}
                for row in self.rows
            ],
        }


def deadlines(
    scenario: Scenario,
    *,
    model: Any = None,
    dataset: Any = None,
    clocks: Sequence[str] | None = None,
    deadlines_s: Sequence[float] = (),
) -> Deadlines:
    """Returns which deadlines serve the devices of a scenario, without training.

    Args:
      model, dataset: in place of the scenario's, as for `run`.
      clocks: `own`, `paper` or names of boards (docs/clock.md); by default the scenario's own and, beside it, the
        paper's, or a Raspberry Pi 4's where the paper's is its own.
      deadlines_s: the deadlines to try; by default from half of the smallest that serves all to the one at which
        nothing is pruned, and the scenario's.
    """
    instance("deadlines.scenario", scenario, Scenario)
    is_empty = isinstance(deadlines_s, (list, tuple)) and not deadlines_s
    given_s = [] if is_empty else np.atleast_1d(quantity("deadlines.deadlines_s", deadlines_s, above=0.0)).tolist()
    is_papers = scenario.clock.compute == "paper"
    names = [OWN, OTHER_BOARD if is_papers else PAPER]
    if clocks is not None:
        names = list(clocks) if isinstance(clocks, (list, tuple)) else []
        if not names or not all(isinstance(name, str) for name in names):
            rule = "must be a list of names"
            raise InvalidValue("deadlines.clocks", rule, shown(clocks), 'Example: clocks=["own", "paper"]')
    rows: list[DeadlineRow] = []
    smallest_s: dict[str, float] = {}
    found: FirstRound | None = None
    for name in dict.fromkeys(names):
        clocked = _on_clock(scenario, name)
        experiment = Experiment.of(clocked, model=model, dataset=dataset)
        dataset, found = experiment.dataset, first_round(experiment)
        words = clocked.clock.words
        smallest_s[words] = float(np.max(found.plan.min_deadline_s))
        rows += _rows(found, words, given_s, is_own=name == OWN)
    assert found is not None  # there is at least one clock
    scheme = found.scheme
    return Deadlines(scheme=scheme.name, plans_work=scheme.chooses_work, rows=tuple(rows), smallest_s=smallest_s)


def _on_clock(scenario: Scenario, name: str) -> Scenario:
    """Returns the scenario on its own clock, on the paper's, or with every device a board."""
    if name == OWN:
        return scenario
    if name == PAPER:
        return scenario.with_values({"clock.compute": "paper"})
    if name not in BOARDS:
        known = ", ".join((OWN, PAPER, *BOARDS))
        raise InvalidValue("deadlines.clocks", f"must be names among {known}", repr(name))
    if scenario.network.table is not None:  # the table has the CPU frequencies
        speed = BOARDS[name].flops_per_cycle(efficiency=scenario.clock.efficiency)
        return scenario.with_values({"clock.flops_per_cycle": speed, "clock.compute": "flops"})
    return scenario.with_values(
        {
            "network.cpu_hz": BOARDS[name].cpu_hz,
            "network.cpu_hz_max": None,
            "clock.flops_per_cycle": None,
            "clock.board": name,
            "clock.cores": None,
            "clock.compute": "flops",
        }
    )


def _rows(found: FirstRound, clock: str, given_s: Sequence[float], *, is_own: bool) -> list[DeadlineRow]:
    smallest_s = float(np.max(found.plan.min_deadline_s))
    notes: dict[float, str] = {}
    if given_s:
        notes = dict.fromkeys(given_s, "")
    elif np.isfinite(smallest_s):
        least_s, most_s = _rounded_up(smallest_s), _rounded_up(open_deadline_s(found.problem))
        between = np.geomspace(least_s, max(most_s, least_s), _BETWEEN + 2)[1:-1].tolist()
        notes = dict.fromkeys((0.5 * least_s, 0.75 * least_s, *between), "")
        notes[most_s] = "all steps fit" if found.problem.work is not None else "nothing is pruned"
        notes[least_s] = "serves all"
    if is_own:
        tuned = found.experiment.scenario.plan.deadline_s == "auto"
        notes[found.deadline_s] = "found for this round" if tuned else "the scenario's"
    return [
        DeadlineRow(
            clock=clock,
            deadline_s=deadline_s,
            outlook=outlook(replace(found.problem, deadline_s=deadline_s), found.scheme),
            note=notes[deadline_s],
        )
        for deadline_s in sorted(notes)
    ]


def _rounded_up(seconds: float) -> float:
    """Returns the deadline as it is printed, which is feasible too."""
    return float(round_up_ms(seconds)) / 1e3


def open_deadline_s(problem: PlanProblem) -> float:
    """Returns the deadline at which all devices train and send whole models at the most bits.

    For a scheme that plans work: enough time for the most local steps and such an upload, one after the other.
    """
    if problem.work is not None:
        whole_s = float(np.max(problem.work.seconds(problem.work.most_steps)))
        sending = replace(problem, seconds_per_weight=0.0, extra_seconds=0.0, work=None)
        return whole_s + _sent_s(sending)
    return _sent_s(problem)


def _sent_s(problem: PlanProblem) -> float:
    if problem.ladder is not None:
        return deadline_for_bits_s(problem, float(np.max(problem.ladder.bits_per_weight)))
    return float(np.max(min_deadline_s(problem, problem.largest_model_weights)))
