"""Time, bits and joules to an accuracy: the first recorded evaluation counts, and failing flatters nobody."""

import math

import numpy as np
import pytest
from scipy import stats

from airprune.results.measures import TO_TARGET
from airprune.results.time_to_target import (
    TIME,
    Costs,
    Evaluation,
    Ratio,
    cost,
    evaluations,
    first_reaching,
    reference_among,
    target_text,
    to_target,
)
from airprune.rounds.records import record_from
from support.each import each


def curve(*accuracies: float, seconds: float = 2.0) -> list[Evaluation]:
    """One evaluation per global round, each of which takes the same."""
    return [
        Evaluation(
            global_round=i,
            edge_round=None,
            test_accuracy=accuracy,
            time_s=seconds * i,
            uploaded_bits=10.0 * i,
            energy_j=0.5 * i,
        )
        for i, accuracy in enumerate(accuracies, start=1)
    ]


def costs(*values: float) -> Costs:
    return Costs(dict(enumerate(values)))


@pytest.mark.parametrize(
    ("accuracies", "round_index"),
    [
        ((0.1, 0.5, 0.9), 2),
        ((0.7, 0.8), 1),  # at the first
        ((0.1, 0.49999), None),  # never
        ((0.1, 0.5, 0.5), 2),  # exactly, and again
        ((0.1, 0.6, 0.2, 0.1), 2),  # that it falls again changes nothing
        ((math.nan, 0.1, math.nan, 0.6), 4),  # what is no number reaches nothing
        ((math.nan,), None),
    ],
)
def test_the_first_evaluation_at_least_as_good_counts(accuracies, round_index):
    found = first_reaching(curve(*accuracies), 0.5)
    assert (found and found.global_round) == round_index


def test_costs_are_those_of_that_evaluation():
    run = curve(0.1, 0.4, 0.6)
    expected = {"time_to_target_s": 6.0, "bits_to_target": 30.0, "joules_to_target": 1.5, "rounds_to_target": 3.0}
    assert {name: cost(run, 0.5, name) for name in TO_TARGET} == expected
    assert cost(run, 0.7, TIME) == math.inf  # not reached
    assert math.isnan(cost([], 0.7, TIME))  # never evaluated: not known


def edge(global_round, edge_round, latencies, **more):
    return record_from(
        {
            "kind": "edge",
            "global_round": global_round,
            "edge_round": edge_round,
            "edge_id": list(latencies),
            "edge_latency_s": list(latencies.values()),
            "uploaded_bits": 100.0,
            "energy_j": 1.0,
            **more,
        }
    )


def world(global_round, **more):
    return record_from({"kind": "global", "global_round": global_round, **more})


def test_an_edge_round_counts_when_its_slowest_edge_has_finished_it():
    records = [
        edge(1, 1, {0: 1.0, 1: 4.0}, test_accuracy=0.1),
        edge(1, 2, {0: 5.0, 1: 1.0}, test_accuracy=0.3),
        world(1, time_s=6.5, uploaded_bits=200.0, energy_j=2.0, test_accuracy=0.3),
        edge(2, 1, {0: 1.0, 1: 2.0}, test_accuracy=0.6),
    ]
    found = evaluations(records)
    assert [(e.global_round, e.edge_round) for e in found] == [(1, 1), (1, 2), (1, None), (2, 1)]
    assert [e.time_s for e in found] == [4.0, 6.0, 6.5, 8.5]  # max(1 + 5, 4 + 1) = 6; then 6.5 + max(1, 2)
    assert [e.uploaded_bits for e in found] == [100.0, 200.0, 200.0, 300.0]
    assert [e.energy_j for e in found] == [1.0, 2.0, 2.0, 3.0]


def test_below_other_nodes_only_global_rounds_count():
    node = record_from(
        {"kind": "node", "global_round": 1, "level": 1, "node_round": 1, "node": [0], "latency_s": [9.0]}
    )
    records = [edge(1, 1, {0: 1.0}, test_accuracy=0.9), node, world(1, time_s=10.0, test_accuracy=0.9)]
    assert [e.time_s for e in evaluations(records)] == [10.0]


def test_a_diverged_run_was_evaluated_and_has_not_reached_anything():
    found = evaluations([world(1, time_s=1.0, test_accuracy=None)])  # null: measured, but no number
    assert cost(found, 0.1, TIME) == math.inf
    assert evaluations([world(1, time_s=1.0)]) == []  # never evaluated


def test_an_unrecorded_cost_is_not_known_though_the_target_was_reached():
    found = evaluations([world(1, time_s=1.0, test_accuracy=0.9)])
    assert cost(found, 0.5, TIME) == 1.0 and math.isnan(cost(found, 0.5, "joules_to_target"))
    assert Costs.of({0: found}, 0.5, "joules_to_target").text("joules_to_target") == "–"


def test_if_every_seed_gets_there_the_interval_is_students():
    values = [1.0, 2.0, 4.0]
    found = costs(*values)
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert found.estimate.mean == pytest.approx(np.mean(values), rel=1e-12)
    assert found.estimate.half_width == pytest.approx((high - low) / 2, rel=1e-3)  # quantiles to four digits
    assert found.reached_text == "3 of 3" and "±" in found.text(TIME)


@pytest.mark.parametrize(
    ("values", "median", "text"),
    [
        ((1.0, 2.0, math.inf), 2.0, "median 2"),
        ((1.0, math.inf, 3.0, 2.0, 9.0), 3.0, "median 3"),
        ((1.0, math.inf), None, "not reached"),  # half of them
        ((1.0, 2.0, math.inf, math.inf), None, "not reached"),
        ((math.inf, math.inf), None, "not reached"),
        ((), None, "–"),
    ],
)
def test_seeds_that_fail_leave_a_median_at_best(values, median, text):
    found = costs(*values)
    assert (found.estimate, found.median, found.text(TIME)) == (None, median, text)
    assert found.as_json() == {"mean": None, "half_width_95": None, "median": median}


@each("seed", range(20))
def test_failing_on_a_seed_never_makes_a_variant_look_better(seed):
    """Whatever value the failed seed would have had: the estimate that is shown is no lower without it."""
    values = np.random.default_rng(seed).uniform(1.0, 9.0, 5)
    failed = values.copy()
    failed[seed % 5] = math.inf
    assert (costs(*failed).median or math.inf) >= costs(*values).median
    reference = costs(*np.ones(5))
    assert Ratio.of(costs(*failed), reference).middle >= np.median(values) - 1e-12


def test_ratios_are_paired_by_seed_with_the_interval_of_their_logarithms():
    this, other = Costs({0: 1.0, 1: 4.0, 2: 3.0, 7: 1.0}), Costs({2: 6.0, 1: 4.0, 0: 8.0, 9: 1.0})
    found = Ratio.of(this, other)
    logs = np.log([1 / 8, 4 / 4, 3 / 6])
    low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert set(found.by_seed) == {0, 1, 2} and found.num_pairs == 3
    assert found.middle == pytest.approx(math.exp(logs.mean()), rel=1e-12)
    assert found.interval == pytest.approx((math.exp(low), math.exp(high)), rel=1e-2)  # e to a four-digit quantile
    turned = Ratio.of(other, this)
    assert turned.middle == pytest.approx(1 / found.middle, rel=1e-12)


@pytest.mark.parametrize(
    ("this", "other", "middle", "text"),
    [
        ((1.0,), (2.0,), 0.5, "0.5"),
        ((1.0, 1.0, math.inf), (2.0, 2.0, 2.0), 0.5, "median 0.5, 2 of 3 pairs"),
        ((1.0, math.inf, math.inf), (2.0, 2.0, 2.0), math.inf, "not reached"),
        ((1.0, 1.0, 1.0), (2.0, math.inf, math.inf), 0.0, "other not reached"),
        ((1.0, math.inf), (math.inf, 1.0), math.nan, "undecided"),
        ((math.inf, math.inf), (math.inf, math.inf), math.nan, "not reached"),
        ((), (), math.nan, "–"),
    ],
)
def test_a_seed_that_one_of_two_fails_decides_for_the_other(this, other, middle, text):
    found = Ratio.of(costs(*this), costs(*other))
    assert found.middle == middle or (math.isnan(middle) and math.isnan(found.middle))
    assert (found.text, found.interval) == (text, None)
    told = found.as_json()
    assert told["pairs"] + told["only_this"] + told["only_other"] + told["neither"] == len(this)


def test_variants_are_told_against_the_one_that_does_not_prune():
    assert reference_among({"a": "optimal", "b": "no-pruning", "c": "no-pruning"}) == "b"
    assert reference_among({"a": "optimal", "b": "min-max"}) == "a"
    assert reference_among({"a": "optimal"}) is None
    runs = {"whole": {0: curve(0.1, 0.9), 1: curve(0.9)}, "pruned": {0: curve(0.2, 0.9, seconds=1.0), 1: curve(0.1)}}
    found = to_target(runs, 0.5, reference="whole")
    assert found["whole"].time_ratio is None and found["whole"].reached_text == "2 of 2"
    assert dict(found["pruned"].time_ratio.by_seed) == {0: 0.5, 1: math.inf}
    told = found["pruned"].as_json()
    assert (told["target_accuracy"], told["reached"], told["seeds"], told[TIME]["mean"]) == (0.5, 1, 2, None)
    assert told["time_ratio"]["to"] == "whole" and told["time_ratio"]["only_other"] == 1


def test_a_target_is_told_in_percent():
    assert (target_text(0.7), target_text(0.755)) == ("70 %", "75.5 %")
