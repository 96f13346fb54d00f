"""Verdicts: an interval, a smallest effect, seeds until it decides; and the claims of the methods' sources."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from tools import claims_table

from airprune.methods import METHODS
from airprune.results.time_to_target import Ratio
from airprune.studies.claims import Judgement, Verdict, combined
from airprune.studies.claims.decision import DELTA, ONE_LOOK, SEQUENTIAL, Aim, Looks, decide, interval_of
from airprune.studies.claims.intervals import judge_better, judge_ratio, judge_saving, judge_trend
from airprune.studies.claims.student import student_p, student_t
from airprune.studies.league import claims, judges, tuning
from airprune.studies.league.league_run import Purpose
from airprune.studies.league.sources import CLAIMS
from airprune.studies.league.tracks import TRACKS
from support.league import BASE, run_of

POINTS = DELTA["test_accuracy"]

# The rule, on numbers made by hand


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 19, 30])
def test_students_t_is_scipys(freedom):
    for level in (0.95, SEQUENTIAL.level):
        assert student_t(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-9)  # bisection
    t = np.array([0.0, 0.3, -1.7, 2.776, 12.0])
    assert [student_p(float(x), freedom) for x in t] == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-13)


def test_the_interval_of_a_look_is_scipys_at_a_third_of_the_error():
    values = np.array([0.01, 0.04, 0.02, 0.05, 0.03])
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(1 - 0.05 / 3)
    assert interval_of(values, SEQUENTIAL.level) == pytest.approx((0.03, low, high), rel=1e-9)


def _verdict(aim: Aim, mean: float, spread: float, *, count: int = 5) -> Verdict:
    """Of effects whose interval is about mean ± 2.8 spreads: five seeds at a sixtieth on either side."""
    values = mean + spread * np.linspace(-1.0, 1.0, count)
    return decide(list(values), aim, delta=0.03, looks=SEQUENTIAL).verdict


@pytest.mark.parametrize(
    ("aim", "mean", "spread", "verdict"),
    [
        (Aim.BETTER, 0.05, 0.01, Verdict.HOLDS),
        (Aim.BETTER, 0.01, 0.001, Verdict.HOLDS),  # beyond its interval, though less than δ
        (Aim.BETTER, -0.05, 0.01, Verdict.FAILS),
        (Aim.BETTER, 0.001, 0.005, Verdict.SAME),
        (Aim.BETTER, 0.02, 0.05, Verdict.UNDECIDED),
        (Aim.MUCH_BETTER, 0.05, 0.01, Verdict.HOLDS),
        (Aim.MUCH_BETTER, 0.01, 0.001, Verdict.SAME),  # a difference, but not one that matters
        (Aim.MUCH_BETTER, -0.03, 0.025, Verdict.FAILS),  # the direction is open, δ is excluded
        (Aim.MUCH_BETTER, 0.04, 0.05, Verdict.UNDECIDED),
        (Aim.NO_WORSE, -0.01, 0.005, Verdict.HOLDS),
        (Aim.NO_WORSE, 0.05, 0.05, Verdict.HOLDS),
        (Aim.NO_WORSE, -0.05, 0.005, Verdict.FAILS),
        (Aim.NO_WORSE, -0.03, 0.01, Verdict.UNDECIDED),
        (Aim.SAME, 0.01, 0.005, Verdict.HOLDS),
        (Aim.SAME, -0.05, 0.005, Verdict.FAILS),
        (Aim.SAME, 0.03, 0.01, Verdict.UNDECIDED),
    ],
)
def test_verdicts_follow_from_interval_and_smallest_effect(aim, mean, spread, verdict):
    assert _verdict(aim, mean, spread) is verdict


@pytest.mark.parametrize("aim", Aim)
def test_fewer_seeds_than_the_first_look_decide_nothing(aim):
    for count in (1, 2, 4):
        assert _verdict(aim, 0.5, 1e-6, count=count) is Verdict.UNDECIDED


@pytest.mark.parametrize("aim", Aim)
def test_one_seed_never_decides_whatever_the_looks(aim):
    for looks in (ONE_LOOK, SEQUENTIAL, Looks((1,))):
        assert decide([0.9], aim, delta=0.03, looks=looks).verdict is Verdict.UNDECIDED


def test_the_first_look_that_decides_is_final_and_later_seeds_change_nothing():
    early = [0.05, 0.051, 0.049, 0.052, 0.05]
    found = decide([*early, *[-0.5] * 15], Aim.BETTER, delta=0.03, looks=SEQUENTIAL)
    assert (found.verdict, found.seeds) == (Verdict.HOLDS, 5) and found.effect == pytest.approx(0.0504)
    noisy = [0.3, -0.2, 0.3, -0.2, 0.1]
    late = decide([*noisy, *[0.2, 0.21] * 7, 0.2], Aim.BETTER, delta=0.03, looks=SEQUENTIAL)
    assert (late.verdict, late.seeds) == (Verdict.HOLDS, 20)


@pytest.mark.parametrize("mean", [0.0, 0.03])
def test_all_looks_together_err_in_at_most_one_of_twenty(mean):
    """At no difference "holds" and "does not hold" are errors; at δ, "no difference larger than δ" is one."""
    rng = np.random.default_rng(0)
    wrong = {0.0: (Verdict.HOLDS, Verdict.FAILS), 0.03: (Verdict.SAME, Verdict.FAILS)}[mean]
    trials = 2_000
    found = [decide(list(row), Aim.BETTER, delta=0.03, looks=SEQUENTIAL).verdict for row in _noise(rng, mean, trials)]
    errors = sum(verdict in wrong for verdict in found) / trials
    assert errors < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)  # three standard errors of the simulation
    naive = [_undivided(row) in wrong for row in _noise(np.random.default_rng(0), mean, trials)]
    assert np.mean(naive) > errors, "three looks at 95 % each err more often"


def _noise(rng: np.random.Generator, mean: float, trials: int) -> np.ndarray:
    return rng.normal(mean, 0.04, (trials, 20))


def _undivided(row: np.ndarray) -> Verdict:
    """Three looks, each as if it were the only one."""
    for count in SEQUENTIAL.at:
        found = decide(list(row[:count]), Aim.BETTER, delta=0.03, looks=ONE_LOOK).verdict
        if found is not Verdict.UNDECIDED:
            break
    return found


def test_the_seeds_that_a_claim_would_take_decide_it():
    """At the observed mean and variance: one seed fewer leaves it open."""
    effects = [0.10, -0.06, 0.08, -0.04, 0.06]
    needed = decide(effects, Aim.BETTER, delta=0.03, looks=SEQUENTIAL).seeds_needed
    mean, deviation = np.mean(effects), np.std(effects, ddof=1)

    def half(count: int) -> float:
        return float(stats.t.ppf(1 - 0.05 / 6, count - 1) * deviation / math.sqrt(count))

    assert needed is not None and half(needed) < mean <= half(needed - 1)


def test_a_seed_on_which_only_one_arm_reached_the_target_counts_by_the_median():
    """Ten seeds: the extremes enclose the median except with probability 2 / 1,024; five cannot at 1.7 %."""
    ratios = {0: 0.0} | {seed: 0.5 + 0.01 * seed for seed in range(1, 10)}
    ten = judge_ratio(Ratio(ratios), "made up", {}, looks=SEQUENTIAL)
    assert ten.verdict is Verdict.HOLDS and ten.decision.seeds == 10
    five = judge_ratio(Ratio({s: ratios[s] for s in range(5)}), "made up", {}, looks=SEQUENTIAL)
    assert five.verdict is Verdict.UNDECIDED
    neither = judge_ratio(Ratio({s: math.nan for s in range(10)}), "made up", {}, looks=SEQUENTIAL)
    assert neither.verdict is Verdict.UNDECIDED and "neither reaches" in neither.reason


def test_a_saving_is_shown_as_a_share_and_ten_percent_matter():
    much = judge_saving([math.log(0.6)] * 5, "made up", {}, much=True, looks=SEQUENTIAL)
    assert much.verdict is Verdict.HOLDS and much.as_json()["effect"] == pytest.approx(0.4)
    little = judge_saving([math.log(0.97 + 0.001 * i) for i in range(5)], "made up", {}, much=True, looks=SEQUENTIAL)
    assert little.verdict is Verdict.SAME and little.as_json()["delta"] == pytest.approx(0.10)
    assert judge_saving([math.log(1.2)] * 5, "made up", {}, looks=SEQUENTIAL).verdict is Verdict.FAILS


def test_a_trend_is_one_on_which_seeds_agree():
    levels = ["a", "b", "c"]
    rising = [np.array([0.1, 0.3, 0.5, 0.2, 0.4]) + step for step in (0.0, 0.05, 0.1)]
    kwargs = {"delta": POINTS, "what": "made up", "looks": SEQUENTIAL}
    assert judge_trend(levels, rising, rising=True, **kwargs).verdict is Verdict.HOLDS
    assert judge_trend(levels, rising, rising=False, **kwargs).verdict is Verdict.FAILS
    level = [rising[0] + 0.001 * np.array(shift) for shift in ([0, 1, 0, 1, 0], [1, 0, 1, 0, 0], [0, 0, 1, 1, 1])]
    assert judge_trend(levels, level, rising=True, **kwargs).verdict is Verdict.SAME
    assert judge_trend(levels, [v[:1] for v in rising], rising=True, **kwargs).verdict is Verdict.UNDECIDED


def test_parts_of_a_claim_hold_together_or_in_part():
    def part(verdict: Verdict) -> Judgement:
        return Judgement(verdict, "made up.")

    holds, fails, same, open_ = map(part, (Verdict.HOLDS, Verdict.FAILS, Verdict.SAME, Verdict.UNDECIDED))
    assert combined([holds, holds]).verdict is Verdict.HOLDS
    assert combined([holds, fails]).verdict is combined([same, holds]).verdict is Verdict.PARTLY
    assert combined([same, fails]).verdict is Verdict.FAILS and combined([same, open_]).verdict is Verdict.UNDECIDED
    assert combined([holds, open_]).is_undecided and not combined([holds, fails]).is_undecided


def test_a_judgement_carries_seeds_effect_interval_and_smallest_effect():
    first, second = np.array([0.8, 0.81, 0.8, 0.82, 0.8]), np.array([0.7, 0.7, 0.71, 0.7, 0.72])
    found = judge_better(first, second, delta=POINTS, what="accuracy", names=("a", "b"), looks=SEQUENTIAL).as_json()
    assert found["seeds"] == 5 and found["delta"] == POINTS and found["seeds_needed"] is None
    assert found["effect"] == pytest.approx(0.1) and found["interval"][0] < 0.1 < found["interval"][1]
    assert found["tuned"] is None and "5 seeds" in found["reason"]


# The rules on arms


def test_the_kinds_of_judgement_go_both_ways():
    fast = {"a": {s: run_of(0.4, 0.8, round_s=0.5) for s in range(5)}, "b": {s: run_of(0.4, 0.8) for s in range(5)}}
    turned = {"a": fast["b"], "b": fast["a"]}
    poor = {"a": {s: run_of(0.3, 0.5) for s in range(5)}, "b": fast["b"]}
    for judge, good, bad in (
        (judges.cheaper("a", "b"), fast, turned),
        (judges.spends_less("a", "b", "time_s"), fast, turned),
        (judges.ahead_at_equal_time("a", "b"), fast, turned),
        (judges.no_worse("a", "b"), fast, poor),
        (judges.same("a", "b"), fast, poor),
        (judges.better("b", "a"), poor, {"a": poor["b"], "b": poor["a"]}),
        (judges.trend("b", "a", rising=False), poor, {"a": poor["b"], "b": poor["a"]}),
    ):
        assert judge(good).verdict is Verdict.HOLDS and judge(bad).verdict is Verdict.FAILS
    unreached = judges.every(judges.cheaper("a", "b"), judges.no_worse("a", "b"))
    assert unreached(fast).verdict is Verdict.HOLDS and unreached(poor).verdict is Verdict.UNDECIDED


# The claims of sources


def _arms_of(claim: claims.LeagueClaim, order: list[str], seeds: range) -> dict[str, dict[int, object]]:
    return {
        name: {seed: run_of(0.3 + 0.1 * i, 0.4 + 0.1 * i + 1e-4 * seed, round_s=1.0 / (1 + i)) for seed in seeds}
        for i, name in enumerate(order)
    }


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_arms_differ_in_the_claimed_thing_alone(claim):
    found = claim.differing(BASE)
    assert found, "the arms are the same"
    declared = [key for key in found if any(key == one or key.startswith(f"{one}.") for one in claim.differs)]
    assert found == declared
    assert all(any(key == one or key.startswith(f"{one}.") for key in found) for one in claim.differs)
    hashes = [scenario.hash for scenario in claim.scenarios(BASE).values()]
    assert len(set(hashes)) == len(hashes) >= 2


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_says_what_its_source_compared(claim):
    for text in (claim.statement, claim.baseline, claim.assumption, claim.measure, claim.scene.words, claim.text):
        assert len(text) > 5
    assert set(claim.needs) <= set(METHODS)


@pytest.mark.parametrize("turned", [False, True])
def test_no_claim_of_a_source_is_decided_on_one_seed(turned):
    for claim in CLAIMS:
        names = list(claim.scenarios(BASE))
        arms = _arms_of(claim, names[::-1] if turned else names, range(1))
        judgement = claims.judged(claim, {name: arms[name] for name in names})
        assert judgement.verdict is Verdict.UNDECIDED, claim.name
        assert "one seed has no interval" in judgement.reason, claim.name


def test_every_claim_of_a_source_can_be_decided_by_five_seeds_that_agree():
    for claim in CLAIMS:
        names = list(claim.scenarios(BASE))
        found = {claims.judged(claim, _arms_of(claim, order, range(5))).verdict for order in (names, names[::-1])}
        assert found != {Verdict.UNDECIDED}, claim.name


def test_momentum_is_the_same_in_both_arms_of_scaffold_and_both_arms_of_dropout_drop_the_same_layers():
    by_name = {claim.name: claim.scenarios(BASE) for claim in CLAIMS}
    assert {s.train.momentum for s in by_name["scaffold-beats-fedavg-per-round"].values()} == {0.0}
    assert len({s.model.prunable for s in by_name["ordered-dropout-beats-random"].values()}) == 1


def test_a_claim_whose_method_is_not_registered_is_skipped():
    assert len(claims.applicable(CLAIMS, BASE)) == len(CLAIMS) == len({claim.name for claim in CLAIMS})
    ghost = dataclasses.replace(CLAIMS[0], arms=lambda start: {"a": {"method": "not-written"}})
    assert claims.applicable([ghost], BASE) == []


class Store:
    """Finished runs made up from their scenarios; nothing is on disk."""

    def __init__(self, accuracy) -> None:
        self.accuracy = accuracy
        self.done: set[str] = set()
        self.tunings: dict = {}

    def finished(self, run):
        return run_of(0.2, self.accuracy(run.scenario)) if run.folder_name in self.done else None

    def has_failed(self, run) -> bool:
        return False

    def play(self, found: list[claims.LeagueClaim]) -> list[set[int]]:
        """Finishes what is wanted until nothing is; returns the seeds of each step that was no tuning."""
        steps = []
        while runs := claims.wanted(found, BASE, self):
            self.done |= {run.folder_name for run in runs}
            if any(run.purpose is not Purpose.TUNING for run in runs):
                steps.append({run.scenario.seed for run in runs})
        return steps


def _claim(name: str) -> claims.LeagueClaim:
    return next(claim for claim in CLAIMS if claim.name == name)


def test_arms_are_tuned_first_and_a_clear_claim_needs_the_first_block_alone():
    claim = _claim("frozen-beats-zeroed")
    store = Store(
        lambda s: (0.8 if s.method == "frozen-pruning" else 0.7) - abs(math.log(s.train.learning_rate / 0.03)) / 50
    )
    first = claims.wanted([claim], BASE, store)
    assert {run.purpose for run in first} == {Purpose.TUNING}
    assert store.play([claim]) == [set(range(5))]
    judgement = claims.judgement_of(claim, BASE, store)
    assert judgement.verdict is Verdict.HOLDS and judgement.tuned is True and judgement.decision.seeds == 5
    rates = {
        run.scenario.train.learning_rate
        for runs in claims.trials(claim, BASE, [0], store).by_arm.values()
        for run in runs
    }
    assert rates == {0.03}


def test_an_open_claim_gets_more_seeds_up_to_twenty_and_says_how_many_it_would_take():
    rng = np.random.default_rng(1)
    noise = {seed: value for seed, value in enumerate(rng.normal(0.0, 0.1, 200))}
    claim = _claim("frozen-beats-zeroed")
    store = Store(lambda s: 0.6 + (noise[s.seed] if s.method == "frozen-pruning" else 0.0))
    assert store.play([claim]) == [set(range(5)), set(range(5, 10)), set(range(10, 20))]
    judgement = claims.judgement_of(claim, BASE, store)
    assert judgement.verdict is Verdict.UNDECIDED and judgement.decision.seeds_needed > 20
    assert f"about {judgement.decision.seeds_needed:,} seeds would" in judgement.reason


def test_claims_are_finished_one_after_the_other_and_none_gets_ten_seeds_before_all_have_five():
    """Both are undecided, since both arms have random accuracies; a step is as small as it can be."""
    rng = np.random.default_rng(1)
    noise = rng.normal(0.0, 0.1, 200)
    found = [_claim("frozen-beats-zeroed"), _claim("taylor-beats-magnitude")]
    store = Store(lambda s: 0.6 + noise[s.seed] * (1 + ("frozen" in s.method) + ("taylor" in str(s.masking))))
    steps: list[tuple[str, int]] = []
    while runs := claims.wanted(found, BASE, store, at_least=1):
        store.done |= {run.folder_name for run in runs}
        of_seeds = [run for run in runs if run.purpose is Purpose.CLAIM]
        assert not of_seeds or of_seeds == runs, "arms are tuned before"
        steps += [(run.label.partition(" (")[0], run.scenario.seed) for run in of_seeds]
    expected = [(claim.name, seeds) for seeds in (range(5), range(5, 10), range(10, 20)) for claim in found]
    assert list(dict.fromkeys(steps)) == [(name, seed) for name, seeds in expected for seed in seeds]
    every = claims.wanted(found, BASE, Store(lambda s: 0.5))
    one = claims.wanted(found, BASE, Store(lambda s: 0.5), at_least=1)
    assert 0 < len(one) < len(every) and {run.label.partition(" (")[0] for run in one} == {found[0].name}


def test_a_claim_with_a_run_that_failed_gets_no_more_seeds():
    claim = _claim("hfel-saves-energy")
    store = Store(lambda s: 0.5)
    store.has_failed = lambda run: run.scenario.seed == 3
    assert {run.scenario.seed for run in claims.wanted([claim], BASE, store)} == {0, 1, 2, 4}
    assert store.play([claim]) == [{0, 1, 2, 4}]


def test_a_page_of_claims_shows_those_whose_runs_are_not_complete_as_not_run_yet():
    claim = _claim("frozen-beats-zeroed")
    noise = np.random.default_rng(1).normal(0.0, 0.1, 200)
    store = Store(lambda s: 0.6 + (noise[s.seed] if s.method == "frozen-pruning" else 0.0))

    def line() -> str:
        found = claims.as_json(claim, claims.judgement_of(claim, BASE, store))
        page = claims_table.page_text({claim.name: found}, None)
        return next(line for line in page.splitlines() if line.startswith(f"| `{claim.name}`"))

    assert "| not run yet | – | – |" in line()
    seen = []
    while runs := claims.wanted([claim], BASE, store):
        store.done |= {run.folder_name for run in runs[:-1]}
        if all(run.purpose is Purpose.CLAIM for run in runs):
            seen.append(line())
        store.done |= {run.folder_name for run in runs}
    assert "| not run yet | – | – |" in seen[0], "four seeds of one arm"
    assert "**cannot be decided** so far: 5 of 20 seeds | 5 |" in seen[1]
    assert "| **cannot be decided** | 20 |" in line() and "seeds would decide" in line()


def test_an_arm_that_diverged_decides_nothing_and_is_named():
    claim = _claim("frozen-beats-zeroed")
    accuracy = {"frozen-pruning": math.nan, "adaptive-pruning": 0.7}
    finished = {name: {seed: run_of(0.1, value) for seed in range(5)} for name, value in accuracy.items()}
    found = claims.judged(claim, finished)
    assert found.verdict is Verdict.UNDECIDED and found.reason == "Training diverged: frozen-pruning."
    assert found.as_json()["seeds"] == 5 and found.as_json()["effect"] is None is found.as_json()["delta"]


def test_costs_that_no_learning_rate_changes_need_no_tuning():
    claim = _claim("hfel-saves-energy")
    store = Store(lambda s: 0.5)
    assert {run.purpose for run in claims.wanted([claim], BASE, store)} == {Purpose.CLAIM}
    store.play([claim])
    assert claims.judgement_of(claim, BASE, store).tuned is None


def test_an_untuned_judgement_says_so():
    claim = _claim("frozen-beats-zeroed")
    store = Store(lambda s: 0.8 if s.method == "frozen-pruning" else 0.7)
    runs = claims.wanted([claim], BASE, store, seeds=range(5), is_tuned=False)
    store.done |= {run.folder_name for run in runs}
    found = claims.judgement_of(claim, BASE, store, is_tuned=False)
    assert found.tuned is False and found.reason.startswith("Untuned: ")


def test_a_claim_that_cannot_be_tested_needs_no_runs_and_says_where_it_could():
    claim = dataclasses.replace(_claim("frozen-beats-zeroed"), not_testable="It needs two continents.")
    assert claims.wanted([claim], BASE, Store(lambda s: 0.5)) == []
    found = claims.judgement_of(claim, BASE, Store(lambda s: 0.5))
    assert found.verdict is Verdict.NOT_TESTABLE and found.reason == "It needs two continents."


def test_an_arm_that_is_a_method_of_the_track_shares_its_runs():
    arms = _claim("least-variance-beats-least-pruning").scenarios(TRACKS["A"].scenario(BASE))
    assert arms["variance"].hash == TRACKS["A"].scenario(BASE).with_("method", "variance").hash


def test_a_slower_link_changes_no_model_so_the_arm_is_tuned_as_the_league_has_it():
    claim = dataclasses.replace(_claim("fog-saves-time"), same_model=("topology.hierarchical.backhaul_bps",))
    arm = claim.scenarios(BASE)["hierfavg"]
    tuned = claim.tuned_scenario(arm, BASE)
    assert arm.hash != tuned.hash and tuned.hash == claim.scene.scenario(BASE).with_("method", "hierfavg").hash


def test_the_cost_of_claims_counts_shared_arms_once():
    rows = {row.name: row for row in claims.cost(CLAIMS, BASE)}
    lost, mixed = rows["lost-updates-of-moving-devices-hurt"], rows["moving-devices-mix-data"]
    assert (lost.arms, lost.shared, lost.first) == (3, 0, 15) and (mixed.shared, mixed.first) == (1, 10)
    assert mixed.tuning == 2 * tuning.USUAL_RUNS and rows["hfel-saves-energy"].tuning == 0
    shared = {scenario.hash for claim in CLAIMS for scenario in claim.scenarios(BASE).values()}
    assert all(
        row.first == row.tuning == 0 for row in claims.cost(CLAIMS, BASE, shared) if row.name != "fog-saves-time"
    )
    assert claims.cost_text(list(rows.values())).splitlines()[-1].startswith("all")
