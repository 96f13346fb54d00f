"""The Deployment panel of the runs page in a real browser."""

import dataclasses
import json
from pathlib import Path

import pytest

from airprune.deployment.status import write_status
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredLog, measured_s, read_measured
from support.deployed import pretend, pretended_records, status_of
from support.processes import wait_for
from support.web_runs import HOSTILE, make_run, tiny

pytest_plugins = ["support.browser"]

SHOWN = "!document.getElementById('deployment').hidden"
NO_SCROLL = "document.documentElement.scrollWidth <= window.innerWidth"
MARKS = (
    "(id) => (document.getElementById(id).data ?? []).filter((trace) => trace.mode === 'markers')"
    ".reduce((count, trace) => count + trace.x.length, 0)"
)


def wait_until(page, expression: str) -> None:
    wait_for(lambda: page.evaluate(expression), expression, patience_s=60)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    pretend(root / "yard", rounds__edge_rounds=4, network__devices_per_edge=4)
    write_status(RunFolder(root / "yard"), status_of(8, state="ended"))
    make_run(root / "simulated")
    return root


@pytest.fixture(scope="module")
def site(serve, root):
    return serve(runs_dir=root)


@pytest.mark.parametrize("look", ["light", "dark", "narrow"])
def test_the_panel_shows_who_is_there_arrivals_and_predictions_in_any_looks(site, root, new_page, look):
    size = {"width": 360, "height": 740} if look == "narrow" else {"width": 1400, "height": 1000}
    page = new_page(viewport=size, color_scheme="dark" if look == "dark" else "light")
    page.goto(f"{site.url}/runs?run=yard")
    wait_until(page, SHOWN)
    rows = read_measured(RunFolder(root / "yard"))
    wait_for(lambda: page.evaluate(MARKS, "arrivals") == len(rows), "one mark per upload")
    assert page.evaluate(MARKS, "predicted") == 2 * sum(row.compute_s is not None for row in rows)
    names = page.evaluate("document.getElementById('arrivals').data.map((trace) => trace.name)")
    assert names[:2] == ["deadline", "in time"] and "late" in names
    tiles = page.inner_text("#deployment-tiles").split("\n")
    assert tiles[tiles.index("devices online") + 1] == "7 of 8"
    assert tiles[tiles.index("late") + 1] == str(sum(row.fate == "late" for row in rows))
    assert tiles[tiles.index("measured time") + 1] == f"{1e3 * measured_s(rows):.1f} ms"
    assert page.locator("#nodes tbody tr").count() == 10 and page.locator("#nodes .bad").count() == 1
    wait_until(page, NO_SCROLL)


@pytest.mark.parametrize(
    ("runs", "called"),
    [
        (["yard"], "planned"),
        (["simulated"], "simulated"),
        (["simulated", "yard"], "simulated or planned"),
    ],
)
@pytest.mark.parametrize("group", ["each", "seeds"])
def test_times_of_a_deployment_are_called_planned_wherever_they_stand(site, page, runs, called, group):
    chosen = "&".join(f"run={name}" for name in runs)
    page.goto(f"{site.url}/runs?{chosen}&against=time_s&group={group}")
    title = "document.getElementById('curves').layout?.xaxis?.title?.text"
    wait_until(page, f"{title} === '{called} time (s)'")
    page.get_by_text("the slowest was planned to take" if runs[0] == "yard" else "the slowest takes").wait_for()
    assert page.locator("#against option[value=time_s]").text_content() == f"{called} time (s)"
    assert f"{called} s" in page.locator("#last-rounds th").all_text_contents()
    page.click("#points summary")
    wait_until(page, "document.querySelectorAll('#points-table th').length === 3")
    assert page.locator("#points-table th").nth(1).text_content() == f"{called} time (s)"
    assert "All times are simulated" not in page.inner_text("body")


def test_a_simulated_run_has_no_such_panel_and_looking_at_another_run_changes_it(site, page):
    page.goto(f"{site.url}/runs?run=simulated&run=yard")
    wait_until(page, "document.getElementById('look').options.length === 2")
    page.wait_for_timeout(300)
    assert not page.evaluate(SHOWN)
    page.select_option("#look", "yard")
    wait_until(page, SHOWN)
    page.select_option("#look", "simulated")
    assert not page.evaluate(SHOWN)


def test_it_grows_while_the_deployment_runs_and_says_when_the_cloud_falls_silent(serve, tmp_path, page):
    server = serve(runs_dir=tmp_path)
    records = pretended_records(tmp_path / "live", tiny(), trouble=0.0)
    folder = RunFolder(tmp_path / "live")
    next(records)
    write_status(folder, status_of(4, age_s=-600))  # by a clock that is ahead: fresh however slow this machine is
    page.goto(f"{server.url}/runs?run=live")
    wait_until(page, SHOWN)
    wait_for(lambda: page.evaluate(MARKS, "arrivals") == 4, "the first round")
    assert page.inner_text("#deployment-state") == "● running"
    next(records)
    wait_for(lambda: page.evaluate(MARKS, "arrivals") == 8, "the second round")
    write_status(folder, status_of(4, age_s=60))
    wait_until(page, "document.getElementById('deployment-state').textContent.includes('does not answer')")
    records.close()


def test_hostile_and_huge_files_are_text_and_bounded(serve, tmp_path, page):
    folder = RunFolder(pretend(tmp_path / "hostile", rounds__global_rounds=1))
    row = dataclasses.replace(read_measured(folder)[0], name=HOSTILE, reason=HOSTILE)
    log = MeasuredLog(folder, next_round=0)
    log.measured([dataclasses.replace(row, round=n, fate=HOSTILE if n == 7 else "ok") for n in range(5_000)])
    with folder.measured_file.open("ab") as file:
        file.write(b'{oops\n{"round":' + b"9" * 400 + b"}\n" + b"[" * 100_000 + b'\n{"ro')
    status = status_of(1)
    nodes = [dataclasses.replace(status.nodes[0], name=f"{HOSTILE}{n}") for n in range(3_000)]
    write_status(folder, dataclasses.replace(status, federation=HOSTILE, state=HOSTILE, nodes=tuple(nodes)))
    server = serve(runs_dir=tmp_path)
    answer = server.client.get("/api/runs/deployment", params={"run": "hostile"}).json()
    assert answer["num_points"] == 5_000 and 1_000 <= len(answer["points"]) <= 2_001
    assert answer["fates"] == {"ok": 4_999, "other": 1} and answer["num_spoilt"] == 3 and len(answer["nodes"]) == 1_000
    assert max(len(json.dumps(part)) for part in answer.values()) < 2**20
    page.goto(f"{server.url}/runs?run=hostile")
    wait_until(page, SHOWN)
    wait_for(lambda: page.evaluate(MARKS, "arrivals") > 1_000, "the marks")
    assert HOSTILE in page.inner_text("#nodes") and page.locator("#deployment img").count() == 0
    assert "3 lines of measured.jsonl cannot be read" in page.inner_text("#deployment-note")
    assert page.title().startswith("Runs")


def test_a_run_without_measurements_answers_404_in_a_sentence(site):
    answer = site.client.get("/api/runs/deployment", params={"run": "simulated"})
    assert answer.status_code == 404 and "did not run on real machines" in answer.json()["error"]
