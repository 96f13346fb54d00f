"""The Deployment page in a real browser, and what the runs page says of deployed runs."""

import dataclasses
import json
import time
from pathlib import Path

import pytest

from airprune.deployment.fleet.registry import FILE as REGISTRY_FILE
from airprune.deployment.fleet.registry import Registry
from airprune.deployment.status import Status, write_status, write_status_file
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredLog, measured_s, read_measured
from support.deployed import pretend, pretended_records, status_of
from support.processes import wait_for
from support.web_runs import HOSTILE, make_run, tiny

pytest_plugins = ["support.browser"]

NO_SCROLL = "document.documentElement.scrollWidth <= window.innerWidth"
MARKS = (
    "(id) => (document.getElementById(id).data ?? []).filter((trace) => trace.mode === 'markers')"
    ".reduce((count, trace) => count + trace.x.length, 0)"
)
DAY_S = 86_400


def wait_until(page, expression: str) -> None:
    wait_for(lambda: page.evaluate(expression), expression, patience_s=60)


def tiles_of(page) -> dict[str, str]:
    texts = page.locator("#tiles dt, #tiles dd").all_text_contents()
    return dict(zip(texts[::2], texts[1::2], strict=True))


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
def test_the_page_of_a_run_shows_nodes_arrivals_and_predictions_in_any_looks(site, root, new_page, look):
    size = {"width": 360, "height": 740} if look == "narrow" else {"width": 1400, "height": 1000}
    page = new_page(viewport=size, color_scheme="dark" if look == "dark" else "light")
    page.goto(f"{site.url}/deployment?of=yard")
    rows = read_measured(RunFolder(root / "yard"))
    wait_for(lambda: page.evaluate(MARKS, "arrivals") == len(rows), "one mark per upload")
    assert page.evaluate(MARKS, "predicted") == 2 * sum(row.compute_s is not None for row in rows)
    names = page.evaluate("document.getElementById('arrivals').data.map((trace) => trace.name)")
    assert names[:2] == ["deadline", "in time"] and "missed the deadline" in names
    tiles = tiles_of(page)
    assert tiles["devices online"] == "7 of 8" and "jobs queued" not in tiles
    assert tiles["missed the deadline"] == str(sum(row.fate == "late" for row in rows))
    assert f"measured time {1e3 * measured_s(rows):.1f} ms" in page.inner_text("#rounds-note")
    assert page.locator("#fleet tbody tr").count() == 10 and page.locator("#fleet .bad").count() == 1
    assert page.locator("#times tbody tr").count() == 8
    assert page.locator("#rounds tbody tr").count() == len({row.round for row in rows}) == 8
    assert page.locator("#jobs-panel").is_hidden() and page.locator("#models-panel").is_hidden()
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


def test_the_runs_page_links_a_deployed_run_and_no_simulated_one(site, page):
    page.goto(f"{site.url}/runs?run=yard")
    page.locator("#devices-deployed a").click()
    page.locator("#fleet tbody tr").first.wait_for()
    assert page.url.endswith("/deployment?of=yard")
    page.locator("#run-link").click()
    wait_until(page, "document.getElementById('look')?.value === 'yard'")
    page.goto(f"{site.url}/runs?run=simulated")
    wait_until(page, "!document.getElementById('devices').hidden")
    assert page.locator("#devices-deployed").is_hidden()


def test_it_grows_while_the_deployment_runs_and_says_when_the_cloud_falls_silent(serve, tmp_path, page):
    server = serve(runs_dir=tmp_path)
    page.goto(f"{server.url}/deployment")
    page.get_by_text("No deployment is here yet").wait_for()
    records = pretended_records(tmp_path / "live", tiny(), trouble=0.0)
    folder = RunFolder(tmp_path / "live")
    (tmp_path / "live").mkdir()
    write_status(folder, dataclasses.replace(status_of(4, age_s=-600, state="waiting"), global_round=None))
    page.get_by_text("No edge round is over yet.").wait_for()  # found by itself, before the first round
    assert page.inner_text("#state") == "○ waits for nodes" and tiles_of(page)["devices online"] == "3 of 4"
    next(records)
    write_status(folder, status_of(4, age_s=-600))  # by a clock that is ahead: fresh however slow this machine is
    wait_for(lambda: page.evaluate(MARKS, "arrivals") == 4, "the first round")
    assert page.inner_text("#state") == "● running"
    next(records)
    wait_for(lambda: page.evaluate(MARKS, "arrivals") == 8, "the second round")
    write_status(folder, status_of(4, age_s=60))
    wait_until(page, "document.getElementById('state').textContent.includes('does not answer')")
    wait_until(page, "document.getElementById('alerts').textContent.includes('The cloud does not answer')")
    records.close()


def fleet_status(now_s: float) -> Status:
    """A cloud, two edges, a standby one and four devices: without labels, away, with other software, refused."""
    found = status_of(4, state="idle", away=(1,))
    cloud = dataclasses.replace(found.nodes[0], name="cloud", role="cloud", software="a" * 64)
    standby = dataclasses.replace(found.nodes[0], name="edge-2")
    nodes = [dataclasses.replace(node, software="a" * 64, expires_s=now_s + 300 * DAY_S) for node in found.nodes]
    nodes[2] = dataclasses.replace(nodes[2], trouble="--data x.npz has no y.")
    nodes[4] = dataclasses.replace(nodes[4], software="b" * 64, expires_s=now_s + 5.5 * DAY_S)
    nodes[5] = dataclasses.replace(nodes[5], online=False, trouble="The certificate 1f of device-3 was revoked.")
    return dataclasses.replace(found, run="", global_round=None, nodes=(cloud, *nodes[:2], standby, *nodes[2:]))


def test_the_page_of_a_fleet_shows_alerts_edges_jobs_and_models(serve, tmp_path, new_page):
    state = tmp_path / "lab/cloud/state"
    state.mkdir(parents=True)
    registry, now_s = Registry(state / REGISTRY_FILE), time.time()
    write_status_file(state / "status.json", fleet_status(now_s))
    server = serve(runs_dir=tmp_path)
    page = new_page()
    page.goto(f"{server.url}/deployment")
    page.get_by_text("No job was submitted yet").wait_for()
    assert page.inner_text("#state") == "○ waits for a job" and "Fleet yard." in page.inner_text("#note")
    alerts = page.locator("#alerts li").all_inner_texts()
    assert [alert.split()[1:3] for alert in alerts] == [
        ["missing", "device-1"],
        ["refused", "device-0"],
        ["refused", "device-3"],
        ["certificate", "device-2"],
        ["software", "device-2"],
    ]
    assert "has no y" in alerts[1] and "was revoked" in alerts[2] and "expires in 5 days" in alerts[3]
    marks = page.locator("#edges .fair").all_inner_texts()  # online, and cannot take part
    assert marks == ["▲ device-0"] and page.locator("#edges li li .good").count() == 1
    edges = page.locator("#edges > li").all_inner_texts()
    assert len(edges) == 3 and "device-0" in edges[0] and "device-1" in edges[1] and "standby" in edges[2]
    job = registry.submit(name="deployed", scenario="", settings={})
    queued = registry.submit(name="next", scenario="", settings={})
    registry.take_next()
    pretend(state / "runs" / job.folder_name, rounds__global_rounds=1)
    registry.finish(job.number, "failed", HOSTILE)
    registry.deliver(job.number, "final")
    for name in ("edge-0", "device-0"):
        registry.note_held(name, 1, "")
    wait_until(page, "document.querySelectorAll('#jobs tbody tr').length === 2")
    newest, oldest = (page.locator("#jobs tbody tr").nth(n).locator("td").all_inner_texts() for n in range(2))
    assert newest[:3] == [str(queued.number), "next", "queued"] and oldest[2] == "failed" and oldest[-1] == HOSTILE
    wait_until(page, "document.getElementById('models').textContent.includes('2 of 7: device-0, edge-0')")
    rows = read_measured(RunFolder(state / "runs" / job.folder_name))
    wait_for(lambda: page.evaluate(MARKS, "arrivals") == len(rows), "the marks of the job")
    tiles = tiles_of(page)
    assert tiles["uploads in time"] == str(sum(row.fate == "ok" for row in rows)) and tiles["jobs queued"] == "1"
    assert page.locator("#rounds-note").inner_text().startswith("Job 1:")
    speeds = page.locator("#fleet tbody tr").nth(4).locator("td").all_inner_texts()
    assert speeds[0] == "device-0" and all("–" in text and text != "–" for text in speeds[6:8])


def test_a_damaged_registry_is_named_and_the_rest_is_shown(serve, tmp_path, page):
    (tmp_path / REGISTRY_FILE).write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    write_status_file(tmp_path / "status.json", status_of(2, state="idle"))
    server = serve(runs_dir=tmp_path)
    page.goto(f"{server.url}/deployment")
    page.get_by_text("cannot be used").wait_for()
    assert tiles_of(page)["devices online"] == "1 of 2"


def test_hostile_and_huge_files_are_text_and_bounded(serve, tmp_path, page):
    folder = RunFolder(pretend(tmp_path / "hostile", rounds__global_rounds=1))
    row = dataclasses.replace(read_measured(folder)[0], name=HOSTILE, reason=HOSTILE)
    log = MeasuredLog(folder, next_round=0)
    log.measured([dataclasses.replace(row, round=n, fate=HOSTILE if n == 7 else "ok") for n in range(5_000)])
    with folder.measured_file.open("ab") as file:
        file.write(b'{oops\n{"round":' + b"9" * 400 + b"}\n" + b"[" * 100_000 + b'\n{"ro')
    status = status_of(1)
    nodes = [dataclasses.replace(status.nodes[0], name=f"{HOSTILE}{n}", trouble=HOSTILE) for n in range(3_000)]
    write_status(folder, dataclasses.replace(status, federation=HOSTILE, state=HOSTILE, nodes=tuple(nodes)))
    server = serve(runs_dir=tmp_path)
    answer = server.client.get("/api/deployment", params={"of": "hostile"}).json()
    run = answer["run"]
    assert run["num_points"] == 5_000 and 1_000 <= len(run["points"]) <= 2_001 and len(run["rounds"]) == 200
    assert run["fates"] == {"ok": 4_999, "other": 1} and run["num_spoilt"] == 3 and len(answer["nodes"]) == 1_000
    assert len(answer["alerts"]) == 100 and max(len(json.dumps(part)) for part in answer.values()) < 2**20
    page.goto(f"{server.url}/deployment?of=hostile")
    wait_for(lambda: page.evaluate(MARKS, "arrivals") > 1_000, "the marks")
    assert HOSTILE in page.inner_text("#fleet") and page.locator("main img").count() == 0
    assert "3 lines of measured.jsonl cannot be read" in page.inner_text("#note")
    assert page.title().startswith("Deployment")


def test_what_is_no_deployment_answers_404_in_a_sentence(site, page):
    answer = site.client.get("/api/deployment", params={"of": "simulated"})
    assert answer.status_code == 404 and "is no deployment" in answer.json()["error"]
    assert site.client.get("/api/deployments").json() == {"deployments": ["yard"]}
    page.goto(f"{site.url}/deployment?of=simulated")
    page.locator("#error").get_by_text("is no deployment").wait_for()
    page.faults.clear()  # the answers that the page asks again for
