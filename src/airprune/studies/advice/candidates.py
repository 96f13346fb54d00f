"""The methods to choose from, on one network and one schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airprune.errors import UsageError
from airprune.methods import DEFAULT_METHOD, METHODS
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario

LOSSLESS = "no-pruning"
"""Whole models, every bit of them: the reference of the others."""
DEFAULT_CANDIDATES = (LOSSLESS, "adaptive-pruning", "frozen-pruning", "adaptive-bits")
PLANS_WORK = "adaptive-work"
"""The method for devices whose time goes into computing; the paper's clock has no such devices."""


def default_candidates(base: Scenario) -> tuple[str, ...]:
    """Returns the methods to choose from unless others are named: on a device clock also the one that plans work."""
    return DEFAULT_CANDIDATES if base.clock.compute == "paper" else (*DEFAULT_CANDIDATES, PLANS_WORK)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A method as a scenario of its own.

    Attributes:
      words: its changes of the common scenario, as on a command line.
    """

    name: str
    scenario: Scenario
    words: tuple[str, ...]


def candidates(base: Scenario, names: Sequence[str] = DEFAULT_CANDIDATES, words: Sequence[str] = ()) -> list[Candidate]:
    """Returns the named methods, the lossless one always first: the others are compared with it.

    Args:
      words: `key=value` changes that apply to all, and win over what a method sets.
    """
    if len(set(names)) != len(names) or not names:
        raise UsageError(f"--methods must name at least one method, each once, got {', '.join(names) or 'nothing'}.")
    for name in names:
        if name != LOSSLESS and name not in METHODS:
            raise METHODS.unknown(name, "--methods")
    others = [name for name in names if name != LOSSLESS]
    return [_candidate(base, name, words) for name in (LOSSLESS, *others)]


def _candidate(base: Scenario, name: str, words: Sequence[str]) -> Candidate:
    own = (f"method={DEFAULT_METHOD}", "plan.scheme=no-pruning") if name == LOSSLESS else (f"method={name}",)
    return Candidate(name=name, scenario=base.with_overrides([*words, *own]), words=(*words, *own))


def without_plan(methods: Sequence[Candidate], lossless: Experiment) -> dict[str, float]:
    """Returns the methods that have no plan for their deadline, with the smallest that they have one for.

    A deadline that tunes itself has one. A scenario that drops the devices which block their edge has one too, as long
    as a device is left.
    """
    found: dict[str, float] = {}
    for method in methods[1:]:
        settings = method.scenario.plan
        if settings.deadline_s == "auto":
            continue
        planned = first_round(Experiment.of(method.scenario, dataset=lossless.dataset, kernel=lossless.kernel)).plan
        drops = settings.infeasible == "drop" and not planned.blocking_devices.all()
        if planned.failed.any() and not drops:
            found[method.name] = float(np.max(planned.min_deadline_s))
    return found
