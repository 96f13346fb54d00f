"""The same tuning for every method and every arm of a claim: a race in steps, each of which depends on the one before.

    1. Learning rate: 0.01, 0.03, 0.1, 0.3 on seed 100. While the best is the lowest or the highest one tried, the next
       one of the series 0.001 … 1 follows. The best two also run on seeds 101 and 102; the higher mean of three wins.
       If it is an outermost one, the next of the series challenges it.
    2. The method's own main setting (`Recipe.knob`) at that rate: two other values challenge its own. A method without
       one has as many challengers: two rates between the best and the second best.
    3. On a timed track, where the deadline decides how often models are averaged: a half and a quarter of the deadline
       challenge it, for methods that plan by a given one; devices that cannot meet it then sit out.

A challenger runs on seed 100. The best of them, if it is better there, also runs on seeds 101 and 102, and is taken if
its mean of three is higher. A race has at most `MAX_RUNS` runs, for every method the same.

On another track than the first the setting of step 2 is kept, and step 1 starts from three rates around the one that
the first track chose; or both are kept.

A tuning run has half of the global rounds, rounded up, or half of the time, since that is cheaper, and is evaluated on
training samples that no device trains on, never on the test set.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from airprune.methods import METHODS
from airprune.methods.recipe import Knob
from airprune.scenario import Scenario
from airprune.settings.toml_text import flat
from airprune.studies.campaign import CampaignRun
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.league_run import Purpose, league_run

SEEDS = (100, 101, 102)
SERIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
GRID = (0.01, 0.03, 0.1, 0.3)
RATE = "train.learning_rate"
DEADLINE = "plan.deadline_s"
# Four rates, two more of the series with all seeds, two seeds more for the best two; two challengers, two seeds more.
MAX_RUNS = len(GRID) + 2 * len(SEEDS) + 4 + 4
# The third step of a timed track: two challengers, two seeds more.
MAX_RUNS_TIMED = MAX_RUNS + 4
# Those of a race without surprises; for estimates of what is left.
USUAL_RUNS = len(GRID) + 1 + 4 + 3
USUAL_RUNS_AROUND = 3 + 1 + 4

# Schemes whose plans are whole models, whatever the deadline is.
WHOLE_MODELS = ("no-pruning", "equal-codes", "hfel", "min-max-time")

Knobs = Mapping[str, Any]
"""One combination of tuned values by scenario key."""


class Results(Protocol):
    """Looks up finished runs; `RunStore` is one."""

    def finished(self, run: CampaignRun) -> FinishedRun | None:
        """Returns the measurements of a run; None unless it is finished."""
        ...

    def has_failed(self, run: CampaignRun) -> bool:
        """True if the run cannot be finished, so that nothing waits for it."""
        ...

    @property
    def tunings(self) -> dict[Any, Tuning]:
        """Races that have ended, so that none is looked up twice."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """State of the race of a scenario.

    Attributes:
      tried: the finished tuning runs that it has used.
      wanted: the runs of its next step; empty once it is tuned.
      knobs: the values it has chosen; None before that.
    """

    tried: Sequence[CampaignRun]
    wanted: Sequence[CampaignRun]
    knobs: Knobs | None


class _Waits(Exception):
    """Raised by a race at the first step whose runs are not all finished."""


def tuning_of(
    label: str,
    scenario: Scenario,
    store: Results,
    *,
    prior: Knobs | None = None,
    is_kept: bool = False,
    fixed: Collection[str] = (),
    track: str = "",
    method: str = "",
    is_timed: bool = False,
) -> Tuning:
    """Returns the state of a scenario's race.

    Args:
      label: of its runs, for people.
      scenario: with its own, untuned values.
      prior: the values that the first track has chosen.
      is_kept: True if `prior` is taken as it is.
      fixed: keys that the scenario is about, so that they are not tuned.
      track, method: the table that the runs are for, and its row.
      is_timed: True on a timed track, where deadlines are tuned.
    """
    if is_kept and prior is not None:
        return Tuning(tried=(), wanted=(), knobs=prior)
    key = (label, scenario.hash, repr(prior), tuple(fixed), is_timed)
    if key in store.tunings:
        return store.tunings[key]
    race = _Race(label, scenario, store, track, method)
    rates: Sequence[float] = GRID
    knob = None if RATE in fixed else knob_of(scenario, fixed)
    if prior is not None:
        race.kept = {key: value for key, value in prior.items() if key != RATE and key not in fixed}
        rates = around(prior[RATE])
    knobs: Knobs | None
    try:
        knobs = _run(race, [scenario.train.learning_rate] if RATE in fixed else rates, knob, prior is None)
        if is_timed:
            knobs = _challenged(race, knobs, [{**knobs, **sooner} for sooner in shorter_deadlines(scenario)])
    except _Waits:
        knobs = None
    found = Tuning(tried=race.tried, wanted=race.wanted, knobs=knobs)
    if knobs is not None:
        store.tunings[key] = found
    return found


def wanted(label: str, scenario: Scenario, store: Results, *, fixed: Collection[str] = ()) -> list[CampaignRun]:
    """Returns the tuning runs that the next step needs; none once the scenario is tuned."""
    return list(tuning_of(label, scenario, store, fixed=fixed).wanted)


def knobs_for(scenario: Scenario, store: Results, *, fixed: Collection[str] = ()) -> Knobs | None:
    """Returns the tuned values of a scenario; None while tuning runs are missing."""
    return tuning_of("tuning", scenario, store, fixed=fixed).knobs


def knobs_text(knobs: Knobs) -> str:
    """Returns the values as text: rate 0.03, mu 0.1."""
    names = {key: "rate" if key == RATE else key.rpartition(".")[2] for key in knobs}
    return ", ".join(f"{names[key]} {_value_text(value)}" for key, value in knobs.items())


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, int | float) else "/".join(f"{one:g}" for one in value)


def knob_of(scenario: Scenario, fixed: Collection[str] = ()) -> Knob | None:
    """Returns the main setting of the scenario's method.

    None if there is none, if it is fixed, or if the scenario is not the method as its recipe has it, e.g. an arm of a
    claim that sets this very key.
    """
    recipe = METHODS[scenario.method]
    if recipe.knob is None or recipe.knob.key in fixed:
        return None
    mine, usual = flat(scenario.to_dict()), flat(Scenario().with_("method", scenario.method).to_dict())
    keys = [recipe.knob.key, *(key for key in recipe.settings if key != RATE)]
    return recipe.knob if all(mine.get(key) == usual.get(key) for key in keys) else None


def shorter_deadlines(scenario: Scenario) -> list[Knobs]:
    """Returns a half and a quarter of the deadline; nothing for a method that does not plan by a given one."""
    given_s = scenario.plan.deadline_s
    if isinstance(given_s, str) or scenario.plan.scheme in WHOLE_MODELS:
        return []
    return [{DEADLINE: given_s / part} for part in (2, 4)]


def around(rate: float) -> list[float]:
    """Returns the rate with its neighbours in the series."""
    below = [one for one in SERIES if one < rate * 0.999]
    above = [one for one in SERIES if one > rate * 1.001]
    return [*below[-1:], rate, *above[:1]]


def between(best: float, second: float) -> list[float]:
    """Returns two rates between these, evenly in their logarithm, to two digits."""
    step = (second / best) ** (1 / 3)
    return [float(f"{best * step:.2g}"), float(f"{best * step * step:.2g}")]


def tuning_scenario(scenario: Scenario, knobs: Knobs) -> Scenario:
    """Returns the scenario with these values and half of the rounds, evaluated on held-out samples."""
    halved: Knobs = {"rounds.global_rounds": math.ceil(scenario.rounds.global_rounds / 2)}
    if scenario.stop.time_s is not None:
        halved = {"stop.time_s": scenario.stop.time_s / 2}
    return scenario.with_values({**knobs, **halved, "data.judge_on": "held-out"})


class _Race:
    """Looks up the tuning runs of one scenario, and notes those that are missing."""

    def __init__(self, label: str, scenario: Scenario, store: Results, track: str, method: str) -> None:
        self.kept: Knobs = {}
        self.tried: list[CampaignRun] = []
        self.wanted: list[CampaignRun] = []
        self._label, self._scenario, self._store = label, scenario, store
        self._track, self._method = track, method or scenario.method
        self._known: dict[tuple[str, int], float] = {}

    def scores(self, tried: Sequence[Knobs], seeds: Sequence[int] = SEEDS[:1]) -> list[float]:
        """Returns the mean accuracy of each over these seeds; raises if a run is missing. Failed ones are at −∞."""
        for knobs in tried:
            for seed in seeds:
                self._look_up(knobs, seed)
        if self.wanted:
            raise _Waits
        return [math.fsum(self._known[repr(knobs), seed] for seed in seeds) / len(seeds) for knobs in tried]

    def _look_up(self, knobs: Knobs, seed: int) -> None:
        if (repr(knobs), seed) in self._known:
            return
        own = {**self.kept, **knobs}
        run = league_run(
            f"{self._label} tuning {knobs_text(own)}",
            tuning_scenario(self._scenario, own),
            seed,
            purpose=Purpose.TUNING,
            track=self._track,
            method=self._method,
            knobs=own,
        )
        found = self._store.finished(run)
        if found is None and not self._store.has_failed(run):
            self.wanted.append(run)
            return
        accuracy = math.nan if found is None else found.accuracy
        self._known[repr(knobs), seed] = -math.inf if math.isnan(accuracy) else accuracy
        self.tried.append(run)


def _run(race: _Race, rates: Sequence[float], knob: Knob | None, has_second_step: bool) -> Knobs:
    """Returns the winner of a race; raises `_Waits` where it stands still."""
    best, second, tried = _best_rate(race, rates)
    if not has_second_step:
        return {**race.kept, RATE: best}
    holder: Knobs = {RATE: best}
    if knob is not None:
        return _challenged(race, holder, [{RATE: best, knob.key: value} for value in knob.values])
    finer = between(best, second) if second is not None else []
    return _challenged(race, holder, [{RATE: rate} for rate in finer if rate not in tried])


def _best_rate(race: _Race, rates: Sequence[float]) -> tuple[float, float | None, list[float]]:
    """Returns the best rate, the second best, if there are two, and all that were tried."""
    tried = sorted(rates)
    while True:
        scores = race.scores([{RATE: rate} for rate in tried])
        leader = tried[_first_best(scores)]
        further = _beyond(leader, tried)
        if further is None or len(rates) == 1:
            break
        tried = sorted([*tried, further])
    finalists = [tried[i] for i in sorted(range(len(tried)), key=lambda i: -scores[i])[:2]]
    means = race.scores([{RATE: rate} for rate in finalists], SEEDS) if len(finalists) > 1 else [0.0]
    best = finalists[_first_best(means)]
    second = next((rate for rate in finalists if rate != best), None)
    while second is not None and (further := _beyond(best, tried)) is not None:
        tried = sorted([*tried, further])
        challenged = _challenged(race, {RATE: best}, [{RATE: further}])[RATE]
        if challenged == best:
            break
        best, second = challenged, best
    return best, second, tried


def _beyond(leader: float, tried: Sequence[float]) -> float | None:
    """Returns the next rate of the series outside those tried, if the leader is an outermost one."""
    if leader == tried[0]:
        lower = [rate for rate in SERIES if rate < leader * 0.999]
        return lower[-1] if lower else None
    if leader == tried[-1]:
        return next((rate for rate in SERIES if rate > leader * 1.001), None)
    return None


def _challenged(race: _Race, holder: Knobs, challengers: Sequence[Knobs]) -> Knobs:
    """Returns the holder, or the best challenger if it is better on the first seed and by the mean of all."""
    if not challengers:
        return holder
    first, *scores = race.scores([holder, *challengers])
    place = _first_best(scores)
    if not scores[place] > first:
        return holder
    mean, challenge = race.scores([holder, challengers[place]], SEEDS)
    return challengers[place] if challenge > mean else holder


def _first_best(scores: Sequence[float]) -> int:
    """Returns the place of the highest score, the first of equals."""
    return max(range(len(scores)), key=lambda i: scores[i])
