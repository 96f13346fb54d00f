"""The first page shows what was measured, and says what the documentation says."""

import json

from tools import recorded_results

from airprune.web import recorded

pytest_plugins = ["support.browser"]


def test_the_results_that_come_with_the_package_are_those_of_the_documentation():
    fresh = recorded_results.recorded()
    assert recorded_results.FILE.read_text() == fresh, "run: .venv/bin/python tools/recorded_results.py"


def test_cells_of_a_table_are_read_without_their_markup():
    text = "| a | b |\n|---|---|\n| **holds** | `x` [y](z.md) \\| w |\n\nno table\n"
    assert recorded_results.tables(text) == [[["a", "b"], ["holds", "x y | w"]]]


def test_prices_are_numbers_with_an_interval_or_none_for_the_reference():
    reference, *others = recorded.prices()
    assert reference["points"] is None
    assert all(abs(price["points"]) < 10 and price["half_width"] > 0 for price in others)


def test_every_verdict_of_the_recorded_reproduction_is_counted():
    found = recorded.reproduction()
    assert sum(verdict["count"] for verdict in found["verdicts"]) == found["num_claims"] == len(found["claims"])
    overview = recorded.overview()
    holding = next(verdict["count"] for verdict in overview["verdicts"] if verdict["word"] == "holds")
    assert len(overview["exceptions"]) == found["num_claims"] - holding


def test_idea_price_reproduction_and_league_are_there_before_anything_was_run(server, page):
    page.goto(server.url)
    assert page.locator(".diagram .node").count() == 7
    paper = next(price for price in recorded.prices() if "adaptive-pruning" in price["method"])
    assert paper["difference"] in page.inner_text("#price-words")
    assert page.locator("#exceptions li").count() == len(recorded.overview()["exceptions"])
    assert page.locator("#standings tbody tr.own").count() >= 3
    assert page.evaluate("window.Plotly === undefined")
    page.goto(f"{server.url}/league")
    rows = json.loads(recorded_results.FILE.read_text())["league"]["divisions"][0]["tables"][0]["rows"]
    assert page.locator("#standings tbody tr").count() == 10
    page.get_by_role("button", name=f"Show all {len(rows)} rows").click()
    assert page.locator("#standings tbody tr").count() == len(rows)
    assert page.locator("#claims .claims > table > tbody > tr").count() == len(recorded.league()["claims"])
    page.goto(f"{server.url}/reproduction")
    assert page.locator("#claims .claims > table > tbody > tr").count() == recorded.reproduction()["num_claims"]
