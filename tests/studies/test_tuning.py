"""Tuning as a race: the same allowance for all, no winner on the edge of what was tried, held-out samples only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import airprune as ap
from airprune.methods import METHODS, Recipe
from airprune.methods.recipe import Knob
from airprune.studies.campaign import CampaignRun
from airprune.studies.league import tuning
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.league_run import LeagueRun, Purpose
from airprune.studies.league.lineup import WHOLE, lineup
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.tracks import TRACKS
from airprune.studies.league.tuning import RATE, Tuning, tuning_of
from support.league import BASE, run_of

PLAIN = BASE.with_("method", "hierfavg")
PROX = BASE.with_("method", "fedprox")
MU = "objective.prox.mu"

Score = Callable[[LeagueRun], float]


class Races:
    """Runs whose accuracy is a function of their settings; they count once they are made."""

    def __init__(self, score: Score) -> None:
        self.made: dict[str, FinishedRun] = {}
        self.labels: list[str] = []
        self.tunings: dict[Any, Tuning] = {}
        self.failed: set[str] = set()
        self._score = score

    def finished(self, run: CampaignRun) -> FinishedRun | None:
        return self.made.get(run.folder_name)

    def has_failed(self, run: CampaignRun) -> bool:
        return run.folder_name in self.failed

    def make(self, runs: Any) -> None:
        for run in runs:
            assert run.folder_name not in self.made, f"{run.label} was made twice"
            self.labels.append(run.label)
            self.made[run.folder_name] = run_of(self._score(run))

    def race(self, scenario: ap.Scenario, **given: Any) -> tuning.Knobs:
        """Makes what is wanted until nothing is."""
        for _ in range(30):
            found = tuning_of("x", scenario, self, **given)
            if found.knobs is not None:
                assert not found.wanted
                return found.knobs
            assert found.wanted
            self.make(found.wanted)
        raise AssertionError("the race never ends")

    def seeds_of(self, rate: float) -> list[int]:
        return sorted(int(label.rpartition(" ")[2]) for label in self.labels if f"rate {rate:g}," in label)


def peak(best: float, noise: Callable[[int], float] = lambda seed: 0.0) -> Score:
    """The accuracy falls with the distance from the best rate, in decades."""
    return lambda run: (
        0.8
        - 0.1 * abs(math.log10(run.scenario.train.learning_rate / best))
        + noise(run.scenario.seed) * run.scenario.train.learning_rate
    )


def test_a_race_without_surprises_tries_four_rates_then_two_on_more_seeds_then_two_finer_ones():
    races = Races(peak(0.1))
    assert races.race(PLAIN)[RATE] == 0.1
    assert races.seeds_of(0.1) == [100, 101, 102] and races.seeds_of(0.01) == [100]
    finalists = [rate for rate in tuning.GRID if len(races.seeds_of(rate)) == 3]
    assert finalists == [0.03, 0.1] or finalists == [0.1, 0.3]
    assert len(races.labels) == 4 + 4 + 2


@pytest.mark.parametrize("best", tuning.SERIES)
def test_no_winner_is_an_outermost_rate_unless_the_series_ends_there(best):
    races = Races(peak(best))
    chosen = races.race(PLAIN)[RATE]
    assert chosen == best
    tried = [rate for rate in tuning.SERIES if races.seeds_of(rate)]
    assert best in (tuning.SERIES[0], tuning.SERIES[-1]) or tried[0] < best < tried[-1]


def test_a_winner_by_the_mean_of_three_seeds_is_challenged_from_outside_too():
    """On seed 100 0.1 is best and 0.3 second; on the other seeds 0.3 wins by far, so 1 has to be tried."""
    score: Score = lambda run: {  # noqa: E731
        100: {0.01: 0.3, 0.03: 0.5, 0.1: 0.71, 0.3: 0.70, 1.0: 0.9},
    }.get(run.scenario.seed, {0.03: 0.4, 0.1: 0.5, 0.3: 0.8, 1.0: 0.85})[run.scenario.train.learning_rate]
    races = Races(lambda run: score(run) if run.scenario.train.learning_rate in tuning.SERIES else 0.0)
    assert races.race(PLAIN)[RATE] == 1.0 and races.seeds_of(1.0) == [100, 101, 102]


@pytest.mark.parametrize("score", [peak(0.001), peak(1.0), lambda run: math.nan, lambda run: 0.5])
@pytest.mark.parametrize("scenario", [PLAIN, PROX])
def test_no_race_has_more_runs_than_the_allowance_of_all(score, scenario):
    races = Races(score)
    races.race(scenario)
    assert 0 < len(races.labels) <= tuning.MAX_RUNS


def test_the_main_setting_is_taken_if_it_is_better_on_the_first_seed_and_by_the_mean():
    for gain, expected in ((0.05, 1.0), (-0.05, 0.01)):
        values = {0.01: 0.0, 0.1: -0.1, 1.0: gain}
        races = Races(lambda run, values=values: peak(0.03)(run) + values[run.scenario.objective.prox.mu])
        knobs = races.race(PROX)
        assert knobs[RATE] == 0.03 and knobs.get(MU, 0.01) == expected


def test_a_setting_that_was_lucky_on_one_seed_is_not_taken():
    def score(run: LeagueRun) -> float:
        lucky = run.scenario.objective.prox.mu == 1.0
        return peak(0.03)(run) + (0.0 if not lucky else 0.1 if run.scenario.seed == 100 else -0.2)

    assert MU not in Races(score).race(PROX)


@pytest.mark.parametrize(("method", "expected"), [("drop-stragglers", [1.0, 0.5]), ("fp32", [])])
def test_on_a_timed_track_shorter_deadlines_challenge_that_of_methods_that_plan_by_it(method, expected):
    scenario = BASE.with_values({"method": method, "plan.deadline_s": 2.0, "stop.time_s": 12.0})
    tried = set()

    def score(run: LeagueRun) -> float:
        tried.add(run.scenario.plan.deadline_s)
        return peak(0.1)(run) + (0.1 if run.scenario.plan.deadline_s == 0.5 else 0.0)

    races = Races(score)
    knobs = races.race(scenario, is_timed=True)
    assert tried == {2.0, *expected}
    assert knobs == {RATE: 0.1, **({tuning.DEADLINE: 0.5} if expected else {})}
    assert len(races.labels) <= tuning.MAX_RUNS_TIMED


def test_a_timed_tuning_run_has_half_the_time():
    tried = tuning.tuning_scenario(BASE.with_("stop.time_s", 12.0), {RATE: 0.3})
    assert (tried.stop.time_s, tried.rounds.global_rounds) == (6.0, BASE.rounds.global_rounds)


def test_a_tuning_run_has_half_the_rounds_rounded_up_on_held_out_samples_of_seeds_that_no_table_uses():
    tried = tuning.tuning_scenario(BASE.with_("rounds.global_rounds", 5), {RATE: 0.3})
    assert (tried.rounds.global_rounds, tried.data.judge_on, tried.train.learning_rate) == (3, "held-out", 0.3)
    assert set(tuning.SEEDS).isdisjoint(SCHEDULES["full"].seeds)
    found = tuning_of("x", PLAIN, Races(peak(0.1)), track="A", method="hierfavg")
    assert {run.scenario.data.judge_on for run in found.wanted} == {"held-out"}
    assert {(run.purpose, run.track, run.method) for run in found.wanted} == {(Purpose.TUNING, "A", "hierfavg")}


def test_runs_that_failed_or_diverged_lose_and_nothing_waits_for_them():
    races = Races(peak(0.1))
    first = tuning_of("x", PLAIN, races).wanted
    races.failed = {run.folder_name for run in first if run.scenario.train.learning_rate == 0.1}
    races.make([run for run in first if run.folder_name not in races.failed])
    assert races.race(PLAIN)[RATE] != 0.1
    assert Races(lambda run: math.nan if run.scenario.train.learning_rate > 0.02 else 0.5).race(PLAIN)[RATE] < 0.02


def test_other_tracks_keep_the_main_setting_and_try_three_rates_around():
    races = Races(peak(0.1))
    prior = {RATE: 0.1, MU: 1.0}
    knobs = races.race(PROX, prior=prior)
    assert knobs == {MU: 1.0, RATE: 0.1}
    assert [rate for rate in tuning.SERIES if races.seeds_of(rate)] == [0.03, 0.1, 0.3] and len(races.labels) == 3 + 4
    assert all("mu 1" in label for label in races.labels)
    assert tuning.around(0.045) == [0.03, 0.045, 0.1] and tuning.around(1.0) == [0.3, 1.0]
    assert Races(peak(0.1)).race(PROX, prior=prior, is_kept=True) == prior


def test_a_setting_that_an_arm_is_about_is_never_tuned():
    assert tuning.knob_of(PROX) == METHODS["fedprox"].knob
    assert tuning.knob_of(PROX.with_(MU, 0.5)) is None, "the arm sets it"
    assert tuning.knob_of(PROX, fixed=[MU]) is None
    whole = next(entry for entry in lineup(BASE, TRACKS["A"]).entries if entry.name == WHOLE)
    assert tuning.knob_of(whole.scenario) is None, "no pruning is not the paper's method"
    races = Races(peak(0.1))
    assert set(races.race(PROX, fixed=[MU])) == {RATE}


def test_finer_rates_lie_between_the_best_two():
    assert tuning.between(0.03, 0.1) == pytest.approx([0.045, 0.067])
    low, high = tuning.between(0.1, 0.03)
    assert 0.03 < high < low < 0.1


def test_every_knob_of_a_recipe_changes_its_scenario_and_has_two_other_values():
    for name in METHODS:
        knob = METHODS[name].knob
        if knob is None:
            continue
        own = BASE.with_("method", name)
        hashes = {own.hash, *(own.with_(knob.key, value).hash for value in knob.values)}
        assert len(knob.values) == 2 and len(hashes) == 3, name


def test_a_users_recipe_may_name_its_main_setting(unregistered):
    ap.register(
        Recipe(
            name="mine",
            summary="my own",
            settings={"objective.name": "prox"},
            knob=Knob(key=MU, values=(0.5, 2.0)),
        )
    )
    found = tuning.knob_of(BASE.with_("method", "mine"))
    assert found is not None and found.values == (0.5, 2.0)
