"""Axes of curves: whole rounds, and times that can be told apart."""

import pytest

from airprune.results.figures.curves import draw_curves, new_figure


def records(seconds_per_round: float, rounds: int = 4) -> list[dict]:
    return [{"global_round": q, "time_s": q * seconds_per_round, "test_loss": 1 / q} for q in range(1, rounds + 1)]


def axis(against: str, *seconds_per_round: float):
    _, (ax,) = new_figure(1)
    runs = {str(seconds): [records(seconds)] for seconds in seconds_per_round}
    draw_curves(ax, runs, measure="test_loss", against=against)
    return ax


def test_rounds_are_counted_in_whole_numbers():
    ticks = axis("global_round", 0.1).get_xticks()
    assert len(ticks) >= 4 and all(tick == round(tick) for tick in ticks)


@pytest.mark.parametrize(("slowest", "scale"), [(0.3, "linear"), (1.2, "log")])
def test_a_scheme_that_takes_many_times_as_long_does_not_squeeze_the_others(slowest, scale):
    assert axis("time_s", 0.1, slowest).get_xscale() == scale


def test_time_from_zero_stays_linear():
    assert axis("time_s", 0.0, 1.0).get_xscale() == "linear"


def test_a_picture_of_no_runs_can_be_drawn():
    assert axis("time_s").get_xscale() == "linear"
