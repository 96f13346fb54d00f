"""Hundreds of runs as few curves: groups, means and intervals by hand, colours and log axes in a real browser."""

import pytest

from airprune.results.measures import CURVE_COLUMNS
from airprune.results.statistics import Estimate
from airprune.web.runs import groups
from support.processes import wait_for
from support.web_runs import mock_run

pytest_plugins = ["support.browser"]

ACCURACY = CURVE_COLUMNS.index("test_accuracy")
ACCURACIES = {
    ("optimal", 0): [0.5, 0.7],
    ("optimal", 1): [0.6, 0.9],
    ("min-max", 0): [0.4, 0.6],
    ("min-max", 1): [0.4, 0.65],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for (scheme, seed), accuracies in ACCURACIES.items():
        mock_run(root / f"{scheme}-{seed}", accuracies, plan__scheme=scheme, seed=seed)
    return root


@pytest.fixture(scope="module")
def site(serve, root):
    return serve(runs_dir=root)


def asked(site, **query):
    answer = site.client.get("/api/runs/groups", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_seeds_together_have_the_mean_and_the_interval_of_their_runs(site):
    answer = asked(site, match="", group="seeds")
    assert answer["keys"] == ["plan.scheme", "seed"]
    assert [group["label"] for group in answer["groups"]] == ["min-max", "optimal"]
    best = answer["groups"][1]
    expected = [Estimate.of(pair) for pair in ([0.5, 0.6], [0.7, 0.9])]
    assert [row[ACCURACY] for row in best["mean"]] == [estimate.mean for estimate in expected]
    assert [row[ACCURACY] for row in best["half_width"]] == [estimate.half_width for estimate in expected]
    assert best["count"] == [2, 2] and best["num_runs"] == 2 and best["values"] == {"plan.scheme": "optimal"}


def test_what_it_took_to_reach_an_accuracy_has_an_interval_only_if_every_seed_got_there(site):
    low, high = (asked(site, match="", group="seeds", target=target)["groups"] for target in (0.6, 0.65))
    assert [group["to_target"]["reached"] for group in low] == ["2 of 2", "2 of 2"]
    assert low[1]["to_target"]["rounds_to_target"] == "1.5 ± 6.4"  # rounds 2 and 1; t of one degree of freedom is 12.7
    assert [group["to_target"]["reached"] for group in high] == ["1 of 2", "2 of 2"]
    assert high[0]["to_target"]["time_to_target_s"] == "not reached"  # the median of one reached and one not


def test_runs_are_grouped_by_any_key_in_which_they_differ_and_by_no_other(site):
    assert [group["label"] for group in asked(site, match="", group="seed")["groups"]] == ["seed = 0", "seed = 1"]
    assert len(asked(site, match="optimal", group="each")["groups"]) == 2
    refused = site.client.get("/api/runs/groups", params={"match": "", "group": "plan.deadline_s"})
    assert refused.status_code == 422 and "a key in which the runs differ" in refused.json()["error"]


def test_words_match_as_in_the_list(root):
    assert groups.matching(root, "OPTIMAL seed1") == ["optimal-1"]
    assert len(groups.matching(root, "glyphs")) == 4 and groups.matching(root, "no such") == []


def test_many_runs_are_sent_as_a_bounded_number_of_points(tmp_path, monkeypatch):
    mock_run(tmp_path / "long", [0.5] * 900)
    monkeypatch.setattr(groups, "MAX_POINTS", 40)
    (group,) = groups.groups(tmp_path, ["long"], groups.EACH)["groups"]
    rounds = [row[0] for row in group["mean"]]
    assert len(rounds) <= 41 and rounds[0] == 1 and rounds[-1] == 900 and group["is_thinned"]


def test_a_run_that_is_gone_or_unreadable_is_left_out_and_counted(root):
    answer = groups.groups(root, ["optimal-0", "gone"], groups.SEEDS)
    assert answer["num_unreadable"] == 1 and len(answer["groups"]) == 1


# In a browser


TRACES = """
() => (document.getElementById("curves").data ?? []).map(({ name, mode, fill, line }) => (
  { name, mode, fill, colour: line.color }))
"""


def traces(page):
    return page.evaluate(TRACES)


def test_all_shown_runs_are_compared_as_means_with_bands_coloured_by_what_differs(site, page):
    page.goto(f"{site.url}/runs?run=optimal-0")
    page.click("#all")
    wait_for(lambda: len(traces(page)) == 4, "two curves with a band each", patience_s=30)
    drawn = traces(page)
    assert [trace["fill"] == "toself" for trace in drawn] == [True, False, True, False]
    assert [trace["name"] for trace in drawn if trace["name"]][-1] == "optimal"
    assert len({trace["colour"] for trace in drawn if trace["mode"] == "lines+markers"}) == 2
    assert "match=" in page.url and "± " in page.inner_text("#last-rounds")
    page.fill("#target", "0.6")
    page.press("#target", "Tab")
    wait_for(lambda: "1.5 ± 6.4" in page.inner_text("#last-rounds"), "rounds to the target", patience_s=30)
    page.select_option("#group", "each")
    wait_for(lambda: len(traces(page)) == 4, "a curve per run", patience_s=30)
    page.check("#log-x")
    wait_for(lambda: page.evaluate("document.getElementById('curves').layout.xaxis.type") == "log", "a log axis")
    assert "log=x" in page.url


def test_runs_chosen_one_by_one_are_coloured_by_what_is_asked_for(site, page):
    page.goto(f"{site.url}/runs?run=optimal-0&run=optimal-1&run=min-max-0&colour=seed")
    wait_for(lambda: len(traces(page)) == 3, "three curves", patience_s=30)
    first, second, third = (trace["colour"] for trace in traces(page))
    assert first == third != second
