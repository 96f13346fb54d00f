"""The runs and the reproduction over HTTP: what is found, read, refused and streamed."""

import contextlib
import itertools
import json
import os
import threading
import time
import tracemalloc
from pathlib import Path

import httpx
import pytest

import airprune as ap
from airprune.runs.layout import RunFolder
from airprune.runs.lock import locked
from airprune.runs.record_reader import edge_numbers
from airprune.web.runs import finding, routes, stream
from airprune.web.runs.following import RecordsFile
from airprune.web.runs.thinning import Thinned
from airprune.web.serve import listen, server_of
from airprune.web.site import Site
from support.each import each
from support.processes import wait_for
from support.web_runs import (
    HOSTILE,
    Events,
    edge_line,
    global_line,
    make_reproduction,
    make_run,
    stopped_run,
    tiny,
)

pytest_plugins = ["support.browser"]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "compare" / "optimal-seed0")
    make_run(root / "compare" / "min-max-seed0", plan__scheme="min-max")
    stopped_run(root / "halfway", 4, rounds__global_rounds=3, events__dropout_probability=0.5)
    make_reproduction(root / "paper")
    return root


@pytest.fixture(scope="module")
def site(serve, root):
    return serve(runs_dir=root)


def get(server, path: str, **parameters):
    answer = server.client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(server, path: str, status: int, **parameters) -> str:
    answer = server.client.get(path, params=parameters)
    assert answer.status_code == status, answer.text
    sentence = answer.json()["error"]
    assert sentence.endswith((".", "0")) and "Traceback" not in sentence
    return sentence


# What is found


def test_runs_are_found_at_any_depth_with_what_they_are(site):
    rows = {row["name"]: row for row in get(site, "/api/runs")["runs"]}
    assert set(rows) == {"compare/optimal-seed0", "compare/min-max-seed0", "halfway"}
    done = rows["compare/min-max-seed0"]
    assert (done["state"], done["scheme"], done["seed"], done["data"]) == ("finished", "min-max", "0", "glyphs")
    assert (done["rounds_done"], done["rounds_total"]) == (2, 2) and 0 <= done["test_accuracy"] <= 1
    assert (rows["halfway"]["state"], rows["halfway"]["rounds_done"]) == ("stopped", 1)
    assert abs(done["written"] - time.time()) < 600


def test_a_run_is_running_while_somebody_writes_it_and_no_longer(serve, tmp_path):
    server = serve(runs_dir=tmp_path)

    def state() -> str:
        time.sleep(0.6)  # the list is looked up twice a second
        return get(server, "/api/runs")["runs"][0]["state"]

    records = ap.run(tiny(), out=tmp_path / "live")
    next(records)
    assert state() == "running"
    records.close()
    assert state() == "stopped"
    for _ in ap.run(tiny(), out=tmp_path / "live", resume=True):
        pass
    assert state() == "finished"


def test_looking_whether_a_run_is_at_work_never_keeps_one_from_starting(tmp_path):
    folder = RunFolder(tmp_path / "run")
    looking = threading.Event()

    def look() -> None:
        while not looking.is_set():
            folder.is_running  # noqa: B018

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            with locked(folder.path):
                pass
    finally:
        looking.set()
        for thread in threads:
            thread.join()


def test_an_empty_or_missing_folder_has_no_runs(serve, tmp_path):
    for runs_dir in (tmp_path, tmp_path / "not there"):
        assert get(serve(runs_dir=runs_dir), "/api/runs")["runs"] == []


def test_the_folder_itself_may_be_a_run(serve, root):
    server = serve(runs_dir=root / "halfway")
    assert [row["name"] for row in get(server, "/api/runs")["runs"]] == ["."]
    assert get(server, "/api/runs/curves", run=".")["curves"][0]["num_rounds"] == 1


def test_the_search_is_bounded_and_says_so(tmp_path, monkeypatch):
    for i in range(6):
        (tmp_path / f"r{i}").mkdir()
        (tmp_path / f"r{i}" / "records.jsonl").write_bytes(b"")
        os.utime(tmp_path / f"r{i}" / "records.jsonl", (i, i))
    monkeypatch.setattr(finding, "MAX_RUNS", 4)
    found = finding.find(tmp_path)
    assert [run.name for run in found.runs] == ["r5", "r4", "r3", "r2"] and found.num_left_out == 2
    monkeypatch.setattr(finding, "MAX_FOLDERS", 3)
    assert not finding.find(tmp_path).is_complete
    deep = tmp_path.joinpath(*"abcdefg")
    deep.mkdir(parents=True)
    (deep / "records.jsonl").write_bytes(b"")
    assert all("g" not in run.name for run in finding.find(tmp_path).runs)


# What is refused

OUTSIDE = [
    "..",
    "../secret",
    "compare/../../secret",
    "compare/..",
    "/etc",
    "//etc",
    "~",
    "compare\\..\\secret",
    "..\\secret",
    "compare/./optimal-seed0",
    "compare//optimal-seed0",
    "nul\0byte",
    "new\nline",
    "%2e%2e/secret",
    "..%2fsecret",
    "..%c0%af",
    ".hidden",
    "",
    "x" * 300,
    "x" * 5000,
    "a/b/c/d/e/f/g",
    "link-out",
    "link-out/run",
    "link-in",
    "file.txt",
    "nobody",
    HOSTILE,
    "\u202egnp.exe",
]


@pytest.fixture(scope="module")
def guarded(serve, tmp_path_factory):
    """A runs folder with ways out of it, and a run outside."""
    place = tmp_path_factory.mktemp("guarded")
    for folder in (place / "secret", place / "secret" / "run", place / "runs" / "here", place / "runs" / ".hidden"):
        folder.mkdir(parents=True)
        (folder / "records.jsonl").write_bytes(global_line(1) + edge_line(1))
        (folder / "claims.json").write_text("[]")
    (place / "runs" / "link-out").symlink_to(place / "secret")
    (place / "runs" / "link-in").symlink_to(place / "runs" / "here")
    (place / "runs" / "file.txt").write_text("secret")
    return serve(runs_dir=place / "runs")


@each("name", OUTSIDE)
def test_a_name_never_leads_out_of_the_runs_folder(guarded, name):
    for path, more in (
        ("/api/runs/curves", {}),
        ("/api/runs/devices", {"global_round": 1, "edge_round": 1}),
        ("/api/runs/differences", {}),
    ):
        answer = guarded.client.get(path, params={"run": name, **more})
        assert answer.status_code in (404, 422), (name, answer.text)
        assert set(answer.json()) == {"error"}
    for path, more in (("/api/reproduction", {}), ("/api/reproduction/file", {"file": "fig6.png"})):
        assert guarded.client.get(path, params={"folder": name, **more}).status_code in (404, 422)
    assert guarded.client.get("/runs", params={"run": name}).status_code == 200


def test_links_and_hidden_folders_are_not_listed(guarded):
    assert [row["name"] for row in get(guarded, "/api/runs")["runs"]] == ["here"]


def test_files_of_a_run_that_are_links_or_pipes_are_not_opened(serve, tmp_path):
    (tmp_path / "secret.jsonl").write_bytes(global_line(7))
    linked, piped = tmp_path / "runs" / "linked", tmp_path / "runs" / "piped"
    for folder in (linked, piped):
        folder.mkdir(parents=True)
        (folder / "scenario.toml").write_text(tiny().to_toml())
    (linked / "records.jsonl").symlink_to(tmp_path / "secret.jsonl")
    os.mkfifo(piped / "records.jsonl")
    server = serve(runs_dir=tmp_path / "runs")
    for name in ("linked", "piped"):
        (curve,) = get(server, "/api/runs/curves", run=name)["curves"]
        assert curve["num_rounds"] == 0 and curve["num_bytes"] == 0
    assert {row["rounds_done"] for row in get(server, "/api/runs")["runs"]} == {0}


def test_wrong_questions_are_refused_with_a_sentence(site):
    assert "at most 16" in refused(site, "/api/runs/curves", 422, run=[f"r{i}" for i in range(17)]).lower()
    assert "nobody" in refused(site, "/api/runs/curves", 404, run="nobody")
    assert "round 9" in refused(site, "/api/runs/devices", 404, run="halfway", global_round=9, edge_round=1)
    for wrong in ("0", "-1", "1.5", "x", "99999999999999999999"):
        refused(site, "/api/runs/devices", 422, run="halfway", global_round=wrong, edge_round=1)


# What is read


def test_curves_are_the_numbers_of_the_records(site, root):
    answer = get(site, "/api/runs/curves", run=["compare/optimal-seed0", "halfway"])
    for curve in answer["curves"]:
        records = RunFolder(root / curve["name"]).records()
        rounds = [record for record in records if record["kind"] == "global"]
        assert curve["rows"] == [[record.get(name) for name in answer["columns"]] for record in rounds]
        edges = [record for record in records if record["kind"] == "edge"]
        assert [entry[:2] for entry in curve["edges"]] == [[edge["global_round"], edge["edge_round"]] for edge in edges]
        for (*_, coverage), edge in zip(curve["edges"], edges, strict=True):
            known = [row for row in coverage if row[1] is not None]  # an edge that lost all its devices has none
            assert known == [[row["edge"], row["min_count"], row["num_uncovered"]] for row in edge["coverage"]]
        assert curve["num_spoilt"] == 0 and not curve["is_thinned"]


def test_what_a_target_took_is_told_for_any_target(site, root):
    names = ["compare/optimal-seed0", "halfway"]
    for target in (0.0, 1.0):
        answer = get(site, "/api/runs/reached", run=names, target=target)
        for name, found in zip(names, answer["runs"], strict=True):
            rounds = [record for record in RunFolder(root / name).records() if record["kind"] == "global"]
            first = next((record for record in rounds if record["test_accuracy"] >= target), None)
            assert (found["name"], found["reached"]) == (name, first is not None)
            assert found["time_to_target_s"] == (first and first["time_s"])
            assert found["bits_to_target"] == (first and first["uploaded_bits"])
    for wrong in ("-0.1", "70", "x", "nan"):
        refused(site, "/api/runs/reached", 422, run=names[0], target=wrong)


def test_devices_of_an_edge_round_are_those_of_its_record(site, root):
    records = RunFolder(root / "halfway").records()
    record = next(record for record in records if (record["global_round"], record.get("edge_round")) == (1, 2))
    answer = get(site, "/api/runs/devices", run="halfway", global_round=1, edge_round=2)
    for column in ("device", "edge", "fate", "compute_s", "uplink_s", "bandwidth_share", "pruning_ratio"):
        assert answer[column] == record[column]
    assert "dropped" in answer["fate"] and answer["deadline_s"] == 0.01
    assert sorted(answer["drawn"]) == list(range(4))


def test_only_keys_that_differ_are_differences(site):
    answer = get(site, "/api/runs/differences", run=["compare/optimal-seed0", "compare/min-max-seed0", "halfway"])
    assert answer["keys"] == {
        "plan.scheme": ["optimal", "min-max", "optimal"],
        "rounds.global_rounds": ["2", "2", "3"],
        "events.dropout_probability": ["0.0", "0.0", "0.5"],
    }


def test_the_page_holds_its_first_data(site):
    text = site.client.get("/runs", params={"run": "halfway"}).text
    initial = json.loads(text.partition('id="initial-data">')[2].partition("</script>")[0])
    assert initial["chosen"] == ["halfway"] and initial["curves"][0]["num_rounds"] == 1
    assert initial["styles"]["optimal"]["colour"] == "#0072B2"  # the report's


def test_broken_lines_are_counted_and_the_rest_is_shown(serve, tmp_path):
    (tmp_path / "broken").mkdir()
    spoilt = [b"{not json\n", b'{"kind":\n', b"\xff\xfe\n", b"[1]\n", b"null\n", b"[" * 100_000 + b"\n"]
    lines = [global_line(1), *spoilt, b"\n", edge_line(1), global_line(2), global_line(3)[:40]]
    (tmp_path / "broken" / "records.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "broken" / "scenario.toml").write_text("][")
    server = serve(runs_dir=tmp_path)
    (curve,) = get(server, "/api/runs/curves", run="broken")["curves"]
    assert (curve["num_rounds"], curve["num_edge_rounds"]) == (2, 1)
    assert curve["num_spoilt"] == len(spoilt) + 1  # the last line was cut off
    (row,) = get(server, "/api/runs")["runs"]
    assert row["scheme"] is None and row["rounds_done"] == 2
    assert get(server, "/api/runs/differences", run="broken")["unreadable"] == ["broken"]


STRANGE = [
    {"kind": "global", "global_round": "x"},
    {"kind": "global", "global_round": 1e308, "test_accuracy": {"a": []}},
    {"kind": "edge", "global_round": 1, "edge_round": 1, "edge_id": 5, "coverage": "x"},
    {"kind": "edge", "global_round": 1, "edge_round": 2, "edge_id": [[]], "coverage": [{}]},
    {"kind": "edge", "global_round": None, "edge_round": [], "device": 3},
    {"kind": ["global"]},
    {"kind": HOSTILE},
]


def test_strange_records_are_no_server_error(serve, tmp_path):
    for i, record in enumerate(STRANGE):
        (tmp_path / f"strange{i}").mkdir()
        (tmp_path / f"strange{i}" / "records.jsonl").write_text(json.dumps(record) + "\n")
    server = serve(runs_dir=tmp_path)
    assert len(get(server, "/api/runs")["runs"]) == len(STRANGE)
    for i in range(len(STRANGE)):
        get(server, "/api/runs/curves", run=f"strange{i}")
        get(server, "/api/runs/reached", run=f"strange{i}", target=0.5)
        for edge_round in (1, 2):
            refused(server, "/api/runs/devices", 404, run=f"strange{i}", global_round=1, edge_round=edge_round)


# Long files


def test_a_long_run_is_thinned_evenly_and_says_so(serve, tmp_path):
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "records.jsonl").write_bytes(b"".join(edge_line(i) + global_line(i) for i in range(1, 5001)))
    server = serve(runs_dir=tmp_path)
    (curve,) = get(server, "/api/runs/curves", run="long")["curves"]
    rounds = [row[0] for row in curve["rows"]]
    assert curve["is_thinned"] and curve["num_rounds"] == 5000 and len(rounds) <= 1001
    assert rounds[0] == 1 and rounds[-1] == 5000
    assert {b - a for a, b in itertools.pairwise(rounds[:-1])} == {8}
    # Every edge round can still be looked at, drawn or not.
    for number in (1, 2, 777, 4999, 5000):
        answer = get(server, "/api/runs/devices", run="long", global_round=number, edge_round=1)
        assert answer["global_round"] == number


def test_a_large_file_is_read_in_little_memory(tmp_path):
    path = tmp_path / "records.jsonl"
    rounds, padding = 600, b'"padding":"' + b"x" * 60_000 + b'"}\n'
    with path.open("wb") as file:
        for i in range(1, rounds + 1):
            file.write(edge_line(i).replace(b"}\n", b"," + padding) + global_line(i))
    size = path.stat().st_size
    assert size > 30e6
    records = RecordsFile(path)
    tracemalloc.start()
    records.refresh()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert records.rounds.total == records.edges.total == rounds
    assert peak < size / 6


def test_very_long_lines_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(RecordsFile, "max_line_bytes", 2_000)
    path = tmp_path / "records.jsonl"
    path.write_bytes(
        global_line(1) + edge_line(1, num_devices=500) + b"x" * 5_000 + b"\n" + global_line(2) + b"y" * 9_000
    )
    records = RecordsFile(path)
    records.refresh()
    assert [row[0] for row in records.rounds.items()] == [1, 2]
    assert records.edges.items()[0][:2] == (1, 1) and records.edges.items()[0].coverage is None
    assert records.num_damaged == 1 and records.has_tail
    assert records.edge_record(1, 1).device == tuple(range(500))


def test_a_huge_file_is_read_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(RecordsFile, "max_bytes_at_once", 10_000)
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"".join(global_line(i) for i in range(1, 101)))
    records, steps = RecordsFile(path), 0
    while records.num_bytes_read < path.stat().st_size:
        records.refresh()
        steps += 1
    assert records.rounds.total == 100 and 2 < steps < 6


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"edge","global_round":3,"edge_round":12,"device":[1]}',
        b' { "edge_round" : 12 , "name" : "x, y" , "kind" : "edge" , "global_round" : 3 , "device" : [ 1',
        b'{"global_round":3,"edge_round":12,"kind":"edge"}',
    ],
)
def test_the_round_of_a_record_is_told_by_its_keys_whatever_their_order_and_blanks(line):
    assert edge_numbers(line) == (3, 12)


@pytest.mark.parametrize(
    "line",
    [
        b'{"device":[{"kind":"edge","global_round":3,"edge_round":1}]}',  # the keys of something inside
        b'{"text":"\\",\\"kind\\":\\"edge\\"","global_round":3,"edge_round":1,"kind":"edge"}',  # an escaped text
        b'{"kind":"edge","global_round":3.0,"edge_round":1}',
        b'{"kind":"edge","global_round":3,"edge_round":1',  # the number may go on
        b'{"kind":"edge","global_round":3',
        b'"kind":"edge","global_round":3,"edge_round":1}',
        b"",
    ],
)
def test_a_beginning_that_does_not_tell_the_round_is_left_to_the_parser(line):
    assert edge_numbers(line) is None


def test_a_file_with_blanks_and_another_order_of_keys_is_followed_like_any_other(tmp_path):
    """More rounds than points, so that most lines are told by their first keys only."""
    path = tmp_path / "records.jsonl"
    lines = [edge_line(i) for i in range(1, 2101)]
    spaced = [json.dumps(dict(reversed(json.loads(line).items()))).encode() + b"\n" for line in lines]
    found = []
    for content in (lines, spaced):
        path.write_bytes(b"".join(content))
        records = RecordsFile(path)
        records.refresh()
        found.append([entry[:2] for entry in records.edges.items()])
        assert records.num_damaged == 0 and records.edges.total == 2100
    assert found[0] == found[1]


@pytest.mark.parametrize("total", [0, 1, 7, 8, 9, 16, 17, 100, 1_000])
def test_thinning_keeps_first_last_and_even_steps_within_its_limit(total):
    thinned = Thinned(8)
    for i in range(total):
        thinned.append(i)
    items = thinned.items()
    assert thinned.total == total and len(items) <= 9
    assert items[:1] == [0][:total] and items[-1:] == [total - 1][: min(total, 1)]
    assert all(b - a == thinned.stride for a, b in itertools.pairwise(items[:-1]))


def test_following_a_file_that_is_cut_and_written_anew_equals_reading_it_once(tmp_path):
    path = tmp_path / "records.jsonl"
    versions = [
        b"",
        global_line(1),
        global_line(1) + global_line(2)[:30],
        global_line(1) + global_line(2),
        global_line(1) + global_line(2) + global_line(3),
        global_line(1),  # a resumed run cuts
        global_line(1) + global_line(2) + global_line(3) + global_line(4),
        global_line(1, test_loss=9.0) + global_line(2) + global_line(3) + global_line(4),  # another run
        global_line(5),
    ]
    followed = RecordsFile(path)
    for i, content in enumerate(versions):
        path.write_bytes(content)
        os.utime(path, (i, i))
        followed.refresh()
        fresh = RecordsFile(path)
        fresh.refresh()
        assert followed.rounds.items() == fresh.rounds.items()
    path.unlink()
    followed.refresh()
    assert followed.rounds.items() == []


# The stream


@contextlib.contextmanager
def listening(server, *names: str):
    with server.client.stream("GET", "/api/runs/events", params={"run": list(names)}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer)


def test_records_arrive_as_they_are_written_and_a_cut_takes_them_back(serve, tmp_path):
    server = serve(runs_dir=tmp_path)
    records = ap.run(tiny(rounds__global_rounds=4), out=tmp_path / "live")
    next(records)
    with listening(server, "live") as events:
        curve = events.until(lambda kind, data: kind == "curve")
        assert curve["rows"] == [] and len(curve["edges"]) == 1
        next(records), next(records)
        written = time.monotonic()
        curve = events.until(lambda kind, data: kind == "curve" and data["num_rounds"] == 1)
        assert curve["edge_from"] >= 1, "only what is new is sent"
        assert time.monotonic() - written < 10
        for _ in range(3):
            next(records)
        curve = events.until(lambda kind, data: kind == "curve" and data["num_rounds"] == 2)
        assert curve["row_from"] == 1 and [row[0] for row in curve["rows"]] == [2]
        records.close()
        lines = (tmp_path / "live" / "records.jsonl").read_bytes().splitlines(keepends=True)
        os.truncate(tmp_path / "live" / "records.jsonl", sum(map(len, lines[:3])))
        curve = events.until(lambda kind, data: kind == "curve" and data["num_rounds"] == 1)
        assert (curve["row_from"], curve["rows"]) == (1, [])


def test_a_run_that_appears_or_goes_is_told(serve, tmp_path):
    server = serve(runs_dir=tmp_path)
    with listening(server, "later") as events:
        assert events.until(lambda kind, data: kind == "curve")["gone"]
        make_run(tmp_path / "later")
        told: set[str] = set()

        def has_told_all(kind, data) -> bool:
            if kind == "runs" and [row["rounds_done"] for row in data["changed"]] == [2]:
                told.add(data["changed"][0]["name"])
            if kind == "curve" and data.get("num_rounds") == 2:
                told.add("curve")
            return told == {"later", "curve"}

        events.until(has_told_all)
        (tmp_path / "later").rename(tmp_path / ".away")
        events.until(lambda kind, data: kind == "runs" and data["gone"] == ["later"])


def test_a_stream_ends_when_its_client_leaves_and_there_are_not_too_many(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(routes, "MAX_STREAMS", 2)
    server = serve(runs_dir=tmp_path)

    def is_open() -> bool:
        with server.client.stream("GET", "/api/runs/events") as answer:
            return answer.status_code == 200

    with listening(server) as one, listening(server) as two:
        for events in (one, two):
            events.until(lambda kind, data: kind == "work")
        assert "Close one" in refused(server, "/api/runs/events", 503)
    wait_for(is_open, "the streams should end", patience_s=10)
    assert "path from" in refused(server, "/api/runs/events", 422, run="../x")


def test_a_quiet_stream_has_a_heartbeat(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.3)
    server = serve(runs_dir=tmp_path)
    with server.client.stream("GET", "/api/runs/events") as answer:
        assert any(line.startswith(": still here") for line in answer.iter_lines())


def test_a_stopping_server_does_not_wait_for_its_streams(tmp_path):
    socket = listen("127.0.0.1", 0)
    site = Site(port=socket.getsockname()[1], runs_dir=tmp_path)
    server = server_of(site, log_level="critical")
    before = threading.active_count()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    with httpx.stream("GET", f"{site.origin}/api/runs/events", timeout=20) as answer:
        for i, _ in enumerate(answer.iter_lines()):  # to its end
            server.should_exit = i > 0
    thread.join(timeout=10)
    assert not thread.is_alive()
    wait_for(lambda: threading.active_count() <= before, "no thread should be left", patience_s=5)


# The reproduction


def test_a_reproduction_shows_claims_verdicts_pictures_and_tables(site, root):
    answer = get(site, "/api/reproduction", folder="paper")
    claims = json.loads((root / "paper" / "claims.json").read_text())
    assert [claim["text"] for claim in answer["claims"]] == [claim["text"] for claim in claims]
    assert [claim["verdict"]["word"] for claim in answer["claims"]] == [claim["verdict"] for claim in claims]
    assert sum(verdict["count"] for verdict in answer["verdicts"]) == len(claims)
    assert [picture["file"] for picture in answer["pictures"]] == ["fig6.png"]
    assert [table["file"] for table in answer["tables"]] == ["table1.csv", "table2.csv", "errata.csv"]
    assert "paper (ms)" in answer["tables"][1]["header"]


def test_pictures_and_tables_are_served_and_nothing_else(site, root):
    picture = site.client.get("/api/reproduction/file", params={"folder": "paper", "file": "fig6.png"})
    assert picture.headers["content-type"] == "image/png"
    assert picture.content == (root / "paper" / "fig6.png").read_bytes()
    for name, kind in (("fig6.pdf", "application/pdf"), ("fig6.csv", "text/csv"), ("table2.csv", "text/csv")):
        answer = site.client.get("/api/reproduction/file", params={"folder": "paper", "file": name})
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["content-disposition"].startswith("attachment")
    (root / "paper" / "fig2.png").symlink_to("/etc/passwd")
    (root / "paper" / "private.png").write_bytes((root / "paper" / "fig6.png").read_bytes())
    (root / "paper" / "fig3.html").write_text("<script>")
    for name in (
        "claims.json",
        "../halfway/scenario.toml",
        "/etc/passwd",
        "fig2.png",
        "private.png",
        "fig3.html",
        "",
        "x",
    ):
        refused(site, "/api/reproduction/file", 404, folder="paper", file=name)
    refused(site, "/api/reproduction", 404, folder="halfway")


def test_broken_claims_are_no_server_error(serve, tmp_path):
    broken = ["", "{}", "[1, null]", '[{"verdict": 5, "numbers": [], "text": {"a": 1}}]', "[" * 9999]
    for i, content in enumerate(broken):
        (tmp_path / f"paper{i}").mkdir()
        (tmp_path / f"paper{i}" / "claims.json").write_text(content)
        (tmp_path / f"paper{i}" / "table2.csv").write_text("a,b\n1,2,3\n")
    server = serve(runs_dir=tmp_path)
    for i in range(len(broken)):
        assert get(server, "/api/reproduction", folder=f"paper{i}")["tables"] == []
        assert server.client.get("/reproduction", params={"folder": f"paper{i}"}).status_code == 200
