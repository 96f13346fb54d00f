"""Where pruning stops paying: ratios over what was swept, and between which values they pass 1."""

import math

import pytest

from airprune.results.crossover import Swept, crossings, crossover_of
from airprune.results.figures.crossover import crossover_figure
from airprune.results.figures.curves import save_figure
from airprune.results.time_to_target import Costs, Ratio


def entry(scheme: str, deadline: float, *values: float, **more) -> Swept:
    keys = {"plan.scheme": scheme, "plan.deadline_s": deadline, **more}
    return Swept(values=keys, scheme=scheme, costs=Costs(dict(enumerate(values))))


@pytest.fixture
def found():
    return crossover_of(
        [
            entry("optimal", 0.01, math.inf, math.inf, math.inf),
            entry("optimal", 0.02, 1.0, 1.1, math.inf),
            entry("optimal", 0.03, 1.0, 1.1, 1.2),
            entry("optimal", 0.04, 3.0, 3.1, 3.2),
            *(entry("no-pruning", deadline, 2.0, 2.0, 2.0) for deadline in (0.01, 0.02, 0.03, 0.04)),
        ]
    )


def ratio(value: float) -> Ratio:
    return Ratio({0: value})


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ((0.5, 0.8, 1.2, 1.5), [(2, 3)]),
        ((1.5, 0.5, 1.5), [(1, 2), (2, 3)]),
        ((0.5, 0.6), []),
        ((0.5, 1.0, 2.0), [(2, 2)]),
        ((math.inf, 0.5), [(1, 2)]),  # from never reached to faster
        ((0.0, math.inf), [(1, 2)]),
        ((0.5, math.nan, 2.0), [(1, 3)]),  # neither reached it in between
        ((math.nan,), []),
    ],
)
def test_the_ratio_passes_1_between_neighbours(values, places):
    assert crossings([(x, ratio(value)) for x, value in enumerate(values, start=1)]) == places


def test_the_numeric_key_is_the_axis_and_the_others_tell_groups_apart(found):
    assert (found.key, found.reference, found.whole) == ("plan.deadline_s", "no-pruning", True)
    assert [x for x, _ in found.ratios["optimal"]] == [0.01, 0.02, 0.03, 0.04]
    assert found.sentences == [
        "optimal and no-pruning change places at plan.deadline_s between 0.01 and 0.02 and between 0.03 and 0.04."
    ]


def test_without_one_numeric_key_with_two_values_there_is_no_crossover():
    assert crossover_of([]) is None
    assert crossover_of([entry("optimal", 0.01, 1.0), entry("no-pruning", 0.01, 1.0)]) is None
    two = [entry("optimal", 0.01 * i, 1.0, **{"radio.bits": i}) for i in (1, 2)]
    assert crossover_of(two) is None


def test_one_group_has_costs_but_nobody_to_change_places_with():
    found = crossover_of([entry("optimal", x, 1.0, 2.0) for x in (0.01, 0.02)])
    assert (found.ratios, found.sentences) == ({}, [])
    assert len(crossover_figure(found, 0.7).axes) == 1


def test_an_advantage_within_its_interval_is_said_to_be_in_doubt():
    entries = [entry("optimal", 0.01, 1.0, 1.1), entry("optimal", 0.02, 1.0, 3.0)]
    entries += [entry("no-pruning", x, 2.0, 2.0) for x in (0.01, 0.02)]
    (sentence,) = crossover_of(entries).sentences
    assert sentence.endswith("from 0.01 to 0.02; at 0.02 the interval includes 1.")


def test_always_faster_is_said():
    entries = [entry("optimal", x, 1.0) for x in (0.01, 0.02)] + [entry("no-pruning", x, 2.0) for x in (0.01, 0.02)]
    assert crossover_of(entries).sentences == [
        "optimal is faster than no-pruning at every plan.deadline_s from 0.01 to 0.02."
    ]


def test_the_table_has_empty_cells_and_counts_where_the_target_was_not_reached(found):
    rows = {(row["series"], row["plan.deadline_s"]): row for row in found.rows()}
    never, half = rows["optimal", 0.01], rows["optimal", 0.02]
    assert (never["reached"], never["time_to_target_s_mean"], never["time_ratio"]) == (0, None, None)
    assert (half["reached"], half["seeds"], half["time_to_target_s_median"], half["time_pairs"]) == (2, 3, 1.1, 2)
    assert rows["no-pruning", 0.01]["time_ratio"] is None


def test_the_figure_marks_what_was_not_reached_at_the_border(found, tmp_path):
    figure = crossover_figure(found, 0.7)
    border = [line for line in figure.axes[1].lines if line.get_marker() == "^" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in border] == [[0.01]]
    assert any("pruning stops paying" in text.get_text() for text in figure.axes[1].texts)
    save_figure(figure, tmp_path / "crossover.png")
    assert (tmp_path / "crossover.png").stat().st_size > 1000
