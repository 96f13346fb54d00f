"""The runs and reproduction pages in a real browser: live curves, comparison, devices, start and stop."""

import json
import time
from pathlib import Path

import pytest

import airprune as ap
from airprune.runs.layout import RunFolder
from support.processes import wait_for
from support.tiny import TINY_TOML
from support.web_runs import HOSTILE, edge_line, global_line, make_reproduction, make_run, stopped_run, tiny

pytest_plugins = ["support.browser"]

NO_SCROLL = "document.documentElement.scrollWidth <= window.innerWidth"
DRAWN = "(id) => (document.getElementById(id).data ?? []).map((trace) => trace.x.length)"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "compare" / "optimal-seed0")
    make_run(root / "compare" / "min-max-seed0", plan__scheme="min-max")
    make_run(root / "compare" / "optimal-seed1", seed=1)
    stopped_run(root / "events", 4, rounds__global_rounds=9, events__dropout_probability=0.5)
    make_reproduction(root / "paper")
    return root


@pytest.fixture(scope="module")
def site(serve, root):
    return serve(runs_dir=root)


def open_runs(page, server, *names: str, **more: str):
    query = "&".join([*(f"run={name}" for name in names), *(f"{key}={value}" for key, value in more.items())])
    page.goto(f"{server.url}/runs?{query}")


def drawn(page, chart: str = "curves") -> list[int]:
    return page.evaluate(DRAWN, chart)


def wait_until_drawn(page, points: list[int], chart: str = "curves") -> None:
    wait_for(lambda: page.evaluate(DRAWN, chart) == points, f"{points} points should be drawn", patience_s=30)


def wait_until(page, expression: str) -> None:
    """Asks from here: the page's own policy forbids a script that polls."""
    wait_for(lambda: page.evaluate(expression), expression, patience_s=60)


def text(page, selector: str) -> str:
    return page.inner_text(selector)


# Curves


def test_a_live_run_appears_and_its_curve_grows_while_it_is_written(serve, tmp_path, page):
    server = serve(runs_dir=tmp_path)
    page.goto(f"{server.url}/runs")
    assert "airprune run smoke --out" in text(page, "#none-command")
    records = ap.run(tiny(rounds__global_rounds=4), out=tmp_path / "live")
    for _ in range(3):
        next(records)
    wait_until_drawn(page, [1])  # it is chosen by itself, being the first
    assert "running" in text(page, "#list li")
    delays = []
    for rounds in (2, 3):
        for _ in range(3):
            next(records)
        started = time.monotonic()
        wait_until_drawn(page, [rounds])
        delays.append(time.monotonic() - started)
    assert min(delays) < 10, delays
    wait_until(page, "document.getElementById('live').textContent.includes('round 3 of 4')")
    records.close()
    wait_until(page, "document.querySelector('#list li').textContent.includes('stopped')")
    for _ in ap.run(tiny(rounds__global_rounds=4), out=tmp_path / "live", resume=True):
        pass
    wait_until_drawn(page, [4])
    wait_until(page, "document.querySelector('#list li').textContent.includes('finished')")


def test_runs_are_compared_in_their_schemes_colours_and_the_address_says_which(site, page, new_page):
    open_runs(page, site, "compare/optimal-seed0")
    wait_until_drawn(page, [2])
    for name in ("compare/min-max-seed0", "compare/optimal-seed1"):
        page.get_by_role("checkbox", name=name).check()
    wait_until_drawn(page, [2, 2, 2])
    lines = page.evaluate(
        "document.getElementById('curves').data.map((t) => [t.line.color, t.line.dash, t.marker.symbol])"
    )
    assert lines[0][0] == lines[2][0] == "#0072B2" and lines[1][0] == "#009E73"  # the report's
    assert lines[0][1] != lines[2][1] and lines[0][2] != lines[2][2]
    page.select_option("#against", "uploaded_bits")
    page.select_option("#measure", "test_loss")
    wait_until(page, "document.getElementById('curves').layout.xaxis.title.text === 'uploaded (Mbit)'")
    again = new_page()
    again.goto(page.url)
    wait_until_drawn(again, [2, 2, 2])
    same = (
        "JSON.stringify(document.getElementById('curves').data.map((t) => [t.name, [...t.x], [...t.y], t.line.dash]))"
    )
    assert again.evaluate(same) == page.evaluate(same)
    assert again.evaluate("document.getElementById('curves').layout.yaxis.title.text") == "test loss"


def test_a_chart_with_fewer_lines_in_its_legend_still_shows_the_name_of_its_axis(site, page):
    names = ["compare/optimal-seed0", "compare/min-max-seed0", "compare/optimal-seed1", "events"]
    page.set_viewport_size({"width": 1440, "height": 1000})
    open_runs(page, site, *names)
    wait_until(page, "document.getElementById('curves').data?.length === 4")
    high = page.evaluate("document.getElementById('curves').clientHeight")
    for name in names[1:]:
        page.get_by_role("checkbox", name=name).uncheck()
    wait_until_drawn(page, [2])
    bottoms = (
        "['#curves', '#curves .xtitle'].map((name) => document.querySelector(name).getBoundingClientRect().bottom)"
    )
    chart, title = page.evaluate(bottoms)
    assert page.evaluate("document.getElementById('curves').clientHeight") < high
    assert title <= chart


def test_a_target_adds_columns_and_is_in_the_address(site, page):
    open_runs(page, site, "compare/optimal-seed0")
    wait_until_drawn(page, [2])
    page.fill("#target", "0")
    page.press("#target", "Enter")
    wait_until(page, "document.getElementById('last-rounds').textContent.includes('time to target (s)')")
    assert "target=0" in page.url
    page.fill("#target", "1")
    page.press("#target", "Enter")
    wait_until(page, "document.getElementById('last-rounds').textContent.includes('not reached')")
    page.fill("#target", "")
    page.press("#target", "Enter")
    wait_until(page, "!document.getElementById('last-rounds').textContent.includes('to target')")


def test_what_differs_is_shown_and_nothing_else(site, page):
    open_runs(page, site, "compare/optimal-seed0", "compare/min-max-seed0", "compare/optimal-seed1")
    page.wait_for_selector("#differences table")
    keys = page.eval_on_selector_all("#differences tbody td:first-child", "cells => cells.map((c) => c.textContent)")
    assert keys == ["seed", "plan.scheme"] or keys == ["plan.scheme", "seed"]
    page.get_by_role("button", name="Choose none").click()
    page.wait_for_selector("#differences-panel", state="hidden")
    assert "Choose one or more runs" in text(page, "#curves-empty")
    assert "run=" not in page.url


def note_starts(words: str) -> str:
    return f"document.getElementById('devices-note').textContent.startsWith({json.dumps(words)})"


def test_devices_of_an_edge_round_are_marked_by_words_and_hatching(site, root, page):
    open_runs(page, site, "events")
    record = next(r for r in RunFolder(root / "events").records() if "dropped" in r.get("fate", []))
    page.fill("#global-round", str(record["global_round"]))
    page.fill("#edge-round", str(record["edge_round"]))
    page.keyboard.press("Tab")
    wanted = f"Global round {record['global_round']}, edge round {record['edge_round']}"
    wait_until(page, note_starts(wanted))
    assert f"{record['fate'].count('dropped')} dropped" in text(page, "#devices-note")
    wait_until(page, "document.getElementById('devices').layout?.annotations?.length > 0")
    marks = page.evaluate("document.getElementById('devices').layout.annotations.map((mark) => mark.text)")
    assert marks == ["✗ dropped"] * record["fate"].count("dropped")
    hatched = page.evaluate("document.getElementById('devices').data[0].marker.pattern.shape")
    assert hatched == ["/" if fate == "dropped" else "" for fate in record["fate"]]
    assert f"round={record['global_round']}.{record['edge_round']}" in page.url
    page.click("#devices-all summary")
    wait_until(page, "document.querySelectorAll('#devices-table tbody tr').length === 4")
    page.click("#newest")
    wait_until(page, "document.getElementById('devices-note').textContent.startsWith('Global round 2, edge round 1')")
    page.click("#previous")
    wait_until(page, "document.getElementById('devices-note').textContent.startsWith('Global round 1, edge round 2')")


def test_coverage_is_drawn_by_round_and_edge(site, root, page):
    open_runs(page, site, "compare/min-max-seed0")
    wait_until(page, "document.getElementById('coverage').data?.length === 1")
    edges = [record for record in RunFolder(root / "compare/min-max-seed0").records() if record["kind"] == "edge"]
    z = page.evaluate("document.getElementById('coverage').data[0].z")
    assert z == [[record["coverage"][edge]["num_uncovered"] for record in edges] for edge in (0, 1)]
    page.select_option("#coverage-what", "1")
    wait_until(page, "document.getElementById('coverage').data[0].z[0][0] < 3")
    page.click("#coverage-all summary")
    wait_until(page, f"document.querySelectorAll('#coverage-table tbody tr').length === {2 * len(edges)}")


def test_broken_and_long_records_are_shown_with_a_word_about_it(serve, tmp_path, page):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "records.jsonl").write_bytes(global_line(1) + b"{oops\n" + global_line(2) + b'{"ki')
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "records.jsonl").write_bytes(b"".join(edge_line(i) + global_line(i) for i in range(1, 2101)))
    server = serve(runs_dir=tmp_path)
    open_runs(page, server, "broken", "long", "not-there")
    wait_until(page, "document.getElementById('curves').data?.length === 2")
    assert drawn(page)[0] == 2 and 500 < drawn(page)[1] <= 1001
    notes = text(page, "#curves-notes")
    assert "broken: 2 lines of records.jsonl cannot be read" in notes
    assert "long: 2,100 global and 2,100 edge rounds, of which at most 1,000 each are drawn" in notes
    assert "Not a run here: not-there." in text(page, "#notice")


def test_names_and_scenarios_are_text_and_never_html(serve, tmp_path, page):
    hostile = HOSTILE.replace("/", "")
    make_run(tmp_path / hostile, name=HOSTILE)
    make_run(tmp_path / "<b>bold<b>%{x}", name="plain")
    (tmp_path / "paper").mkdir()
    claim = {"where": HOSTILE, "text": HOSTILE, "verdict": HOSTILE, "reason": HOSTILE, "numbers": {HOSTILE: HOSTILE}}
    (tmp_path / "paper" / "claims.json").write_text(json.dumps([claim | {"preset": "</script>" + HOSTILE}]))
    server = serve(runs_dir=tmp_path)
    page.goto(f"{server.url}/runs")
    wait_until_drawn(page, [2, 2])
    page.wait_for_selector("#differences table")
    assert hostile in text(page, "#list") and HOSTILE in text(page, "#differences")
    assert hostile in page.evaluate(
        "[...document.querySelectorAll('#curves .legendtext')].map((t) => t.textContent).join()"
    )
    page.goto(f"{server.url}/reproduction")
    assert text(page, "#claims").count(HOSTILE) >= 3
    for _ in range(2):
        assert page.locator("img[src=x], #curves a, main b b").count() == 0
        assert page.title().startswith(("Runs", "Reproduction"))
        page.goto(f"{server.url}/runs?run={hostile}&measure={HOSTILE}&look={HOSTILE}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_does_not_scroll_sideways_in_light_and_dark(site, new_page, scheme):
    page = new_page(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    open_runs(page, site, "compare/optimal-seed0", "compare/min-max-seed0", "events", look="events")
    wait_until_drawn(page, [2, 2, 1])
    wait_until(page, "document.getElementById('devices').data?.length === 3")
    wait_until(page, NO_SCROLL)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
    page.goto(f"{site.url}/reproduction")
    page.wait_for_selector("#claims table")
    wait_until(page, NO_SCROLL)


def test_every_control_has_a_name_and_live_words_are_polite(site, page):
    open_runs(page, site, "events")
    page.wait_for_selector("#one-run:not([hidden])")
    nameless = page.evaluate(
        "[...document.querySelectorAll('input, select, button, textarea')].filter((c) => !c.closest('[hidden]'))"
        ".filter((c) => !(c.labels?.length || c.getAttribute('aria-label') || c.textContent.trim()))"
        ".map((c) => c.outerHTML)"
    )
    assert nameless == []
    assert page.get_attribute("#live", "aria-live") == "polite"
    page.focus("#filter")
    page.keyboard.type("optimal seed1")
    wait_until(page, "document.querySelectorAll('#list li').length === 1")
    for _ in range(6):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.type") == "checkbox":
            break
    page.keyboard.press("Space")
    wait_until_drawn(page, [1, 2])


# The reproduction


def test_the_reproduction_shows_verdicts_in_words_and_its_pictures(site, root, page):
    page.goto(f"{site.url}/reproduction")
    claims = json.loads((root / "paper" / "claims.json").read_text())
    assert page.locator("#claims .claims > table > tbody > tr").count() == len(claims)
    words = page.eval_on_selector_all("#claims .badge", "badges => badges.map((b) => b.textContent)")
    assert [word[2:] for word in words] == [claim["verdict"] for claim in claims]
    picture = page.locator("#pictures img")
    picture.scroll_into_view_if_needed()
    wait_until(page, "document.querySelector('#pictures img').naturalWidth > 100")
    assert "Fig. 6" in picture.get_attribute("alt")
    page.select_option("#only", "holds in part")
    wait_for(lambda: page.locator("#claims .claims > table > tbody > tr").count() < len(claims), "the filter")
    assert "docs/errata.md" in text(page, "main")


def test_without_a_reproduction_the_page_says_how_to_make_one(serve, tmp_path, page):
    page.goto(f"{serve(runs_dir=tmp_path).url}/reproduction")
    assert text(page, "#none-command") == f"airprune reproduce all --quick --out {tmp_path}/reproduction"


# Starting


def test_without_allow_run_or_token_the_page_says_how_to_get_them(site, serve, tmp_path, page):
    open_runs(page, site)
    assert text(page, "#start-command") == f"airprune web {site.site.runs_dir} --allow-run"
    assert page.locator("#start-form").is_hidden() and page.get_by_role("button", name="Resume").count() == 0
    page.goto(f"{serve(runs_dir=tmp_path, allow_run=True).url}/runs")
    assert "it carries the token" in text(page, "#start-refused")


def test_a_run_is_set_up_started_stopped_and_resumed_from_the_page(serve, tmp_path, page):
    server = serve(runs_dir=tmp_path, allow_run=True)
    page.goto(f"{server.url}/runs?token={server.site.token}")
    page.wait_for_selector("#start-form:not([hidden])")
    page.fill("#find-field", "deadline_s")
    page.fill("[id='field-plan.deadline_s']", "-1")
    wait_until(page, "document.getElementById('check').textContent.includes('deadline_s must be > 0')")
    assert page.get_attribute("[id='field-plan.deadline_s']", "aria-invalid") == "true"
    assert page.locator("#start-button").is_disabled()
    page.faults.clear()  # browsers log a refusal
    page.fill("[id='field-plan.deadline_s']", "0.02")
    wait_until(page, "document.getElementById('check').textContent.includes('plan.deadline_s = 0.02')")
    assert "airprune run smoke plan.deadline_s=0.02 --out" in text(page, "#same-command")

    page.get_by_label("TOML text").check()
    page.fill("#toml", TINY_TOML + '[engine]\nname = "serial"\n[rounds]\nglobal_rounds = 3000\n')
    wait_until(page, "document.getElementById('check').textContent.startsWith('Valid.')")
    page.fill("#folder", "from-the-page")
    page.click("#start-button")
    wait_until(page, "(document.getElementById('curves').data?.[0]?.x.length ?? 0) >= 2")
    page.get_by_role("button", name="Stop from-the-page").click()
    wait_until(page, "document.getElementById('work').textContent.includes('can be resumed')")
    wait_until(page, "document.querySelector('#list li').textContent.includes('stopped')")
    before = drawn(page)[0]
    page.get_by_role("button", name="Resume from-the-page").click()
    wait_until(page, f"document.getElementById('curves').data[0].x.length > {before}")
    wait_for(lambda: RunFolder(tmp_path / "from-the-page").is_running, "it should run")
    page.locator("#work button").click()
    wait_until(page, "document.getElementById('work').textContent.includes('can be resumed')")
