"""`airprune plan` as a user meets it: its streams, its files and its exit status."""

import contextlib
import io
import json
import subprocess
import sys

import numpy as np
import pytest

import airprune as ap
from airprune.cli import main
from support.processes import AIRPRUNE
from support.processes import airprune as process

FLEET = "device,edge,snr_db\ncam-1,north,40\ncam-2,north,38\ncam-3,south,35\n"


def airprune(*arguments: object, stdin: str | bytes = b"") -> subprocess.CompletedProcess:
    """One command within this process, told apart from one of its own by nothing but the time it takes."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        status = main([str(argument) for argument in arguments])
    return subprocess.CompletedProcess(arguments, status, out.getvalue().encode(), err.getvalue().encode())


def plan_json(*arguments: object, stdin: str = FLEET) -> dict:
    done = airprune("plan", "-", "--json", *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def paper_csv() -> str:
    distance_km = np.array([0.130, 0.140, 0.150, 0.160, 0.170])
    snr_db = 28.0 - (128.1 + 37.6 * np.log10(distance_km)) + 110.0
    return "device,edge,snr_db\n" + "".join(f"{n},7,{x!r}\n" for n, x in enumerate(snr_db.tolist()))


@pytest.mark.parametrize(
    ("options", "stdin", "status"),
    [([], FLEET, 0), (["--deadline-ms", "20"], paper_csv(), 1), (["--scheme", "optimum"], FLEET, 2)],
    ids=["planned", "infeasible", "wrong"],
)
def test_a_process_of_its_own_reads_says_and_returns_the_same(options, stdin, status):
    done, expected = process("plan", "-", *options, input=stdin), airprune("plan", "-", *options, stdin=stdin)
    assert done.returncode == expected.returncode == status
    assert (done.stdout.encode(), done.stderr.encode()) == (expected.stdout, expected.stderr)


def test_json_has_the_documented_shape():
    result = plan_json("--deadline-ms", 30)
    assert set(result) == {"edges", "devices"}
    assert [set(edge) for edge in result["edges"]] == [{"edge", "status", "shadow_price", "min_deadline_ms"}] * 2
    keys = {"device", "edge", "bandwidth_share", "pruning_ratio", "latency_ms"}
    assert [set(device) for device in result["devices"]] == [keys] * 3
    assert [device["device"] for device in result["devices"]] == ["cam-1", "cam-2", "cam-3"]


def test_command_line_gives_the_same_plan_as_python():
    result = plan_json("--deadline-ms", 28, "--bandwidth-mhz", 18, "--max-pruning", 0.95, stdin=paper_csv())
    snr_db = np.array([float(line.split(",")[2]) for line in paper_csv().splitlines()[1:]])
    problem = ap.PlanProblem(
        full_band_rate_bps=18e6 * np.log2(1 + 10 ** (snr_db / 10)),
        seconds_per_weight=2 * 20 / 3e9,
        deadline_s=0.028,
        max_pruning_ratio=0.95,
    )
    expected = ap.plan(problem)
    ratios = [device["pruning_ratio"] for device in result["devices"]]
    np.testing.assert_allclose(ratios, expected.pruning_ratio, rtol=1e-12)  # the same formulas, another order of units
    assert result["edges"][0]["edge"] == 7
    assert result["edges"][0]["min_deadline_ms"] == pytest.approx(1e3 * expected.min_deadline_s[0], rel=1e-12)


def test_air_budget_gives_bits_per_weight_that_fill_the_deadline():
    result = plan_json("--scheme", "air-budget", "--deadline-ms", 2)
    bits = [device["bits_per_weight"] for device in result["devices"]]
    assert all(0 < value < 64 for value in bits) and len(set(bits)) > 1
    assert all(device["pruning_ratio"] == 0 for device in result["devices"])
    north = result["devices"][:2]
    for device, value, snr_db in zip(north, bits, (40, 38), strict=False):
        rate = device["bandwidth_share"] * 20e6 * np.log2(1 + 10 ** (snr_db / 10))
        assert device["latency_ms"] == pytest.approx(1e3 * (43_888 * 40 / 3e9 + 43_888 * value / rate), rel=1e-9)
        assert device["latency_ms"] <= 2


def test_json_fleets_are_read_as_well(tmp_path):
    rows = [{"device": "a", "edge": 1, "snr_db": 40}, {"device": "b", "edge": 1, "snr_db": 38, "cpu_hz": 1e9}]
    for name, content in (("list.json", rows), ("object.json", {"devices": rows})):
        (tmp_path / name).write_text(json.dumps(content))
        done = airprune("plan", tmp_path / name, "--json")
        assert done.returncode == 0
        assert [d["device"] for d in json.loads(done.stdout)["devices"]] == ["a", "b"]


def test_terminal_output_names_devices_and_edges():
    done = airprune("plan", "-", stdin=FLEET)
    text = done.stdout.decode()
    assert done.returncode == 0
    for word in ("cam-1", "north", "south", "pruning", "latency ms"):
        assert word in text


def test_names_that_look_like_markup_are_shown_as_they_are():
    done = airprune("plan", "-", stdin="device,edge,snr_db\n[red]x[/red],[bold],40\n")
    assert b"[red]x[/red]" in done.stdout and b"[bold]" in done.stdout


def test_out_writes_csv_and_leaves_stdout_empty(tmp_path):
    out = tmp_path / "plan.csv"
    done = airprune("plan", "-", "--out", out, stdin=FLEET)
    assert done.returncode == 0 and done.stdout == b""
    lines = out.read_text().splitlines()
    assert lines[0] == "device,edge,snr_db,bandwidth_share,pruning_ratio,latency_ms"
    assert [line.split(",")[0] for line in lines[1:]] == ["cam-1", "cam-2", "cam-3"]


def test_an_infeasible_fleet_names_edge_devices_and_the_deadline_that_works():
    done = airprune("plan", "-", "--deadline-ms", 20, stdin=paper_csv())
    words = done.stderr.decode()
    assert done.returncode == 1
    assert "Edge 7 has no plan for 20 ms" in words and "blocked by 4" in words
    works_ms = words.split("the smallest deadline that works is ")[1].split(" ms")[0]
    assert plan_json("--deadline-ms", works_ms, stdin=paper_csv())["edges"][0]["status"] == "ok"


def test_an_infeasible_fleet_is_still_valid_json():
    done = airprune("plan", "-", "--deadline-ms", 20, "--json", stdin=paper_csv())
    assert done.returncode == 1
    result = json.loads(done.stdout, parse_constant=pytest.fail)
    assert result["edges"][0]["status"] == "infeasible-bandwidth"
    assert result["devices"][0]["bandwidth_share"] is None


def test_a_baseline_that_misses_the_deadline_is_noted_not_refused():
    done = airprune("plan", "-", "--scheme", "no-pruning", "--json", stdin=paper_csv())
    assert done.returncode == 0
    assert b"misses it on 1 of 1 edges" in done.stderr
    assert json.loads(done.stdout)["edges"][0]["status"] == "late"


@pytest.mark.parametrize(
    ("question", "option", "key"),
    [
        ("deadline", "--deadline-ms", "deadline_ms"),
        ("bandwidth", "--bandwidth-mhz", "bandwidth_mhz"),
    ],
)
def test_the_answer_to_an_inverse_question_keeps_the_target_when_planned(question, option, key):
    result = plan_json("--solve", question, "--target-pruning", 0.5, stdin=paper_csv())
    value = result["solve"][key]
    again = plan_json(option, repr(value * (1 + 1e-12)), stdin=paper_csv())
    assert np.mean([device["pruning_ratio"] for device in again["devices"]]) == pytest.approx(0.5, abs=1e-7)
    shown = airprune("plan", "-", "--solve", question, "--target-pruning", 0.5, stdin=paper_csv())
    assert f"Smallest {question}" in shown.stdout.decode()


def test_an_inverse_answer_names_what_it_holds_fixed():
    found = plan_json("--solve", "bandwidth", "--target-pruning", 0.5, stdin=paper_csv())["solve"]
    assert found["deadline_ms"] == 30.0  # the default is told as well
    shown = airprune("plan", "-", "--solve", "bandwidth", "--target-pruning", 0.5, stdin=paper_csv())
    assert "with a deadline of 30 ms: " in shown.stdout.decode()
    shown = airprune("plan", "-", "--solve", "deadline", "--target-pruning", 0.5, stdin=paper_csv())
    assert "with 20 MHz per edge: " in shown.stdout.decode()


def test_no_plan_that_a_user_meets_first_removes_a_classifier():
    cap = ap.Scenario().plan.max_pruning_ratio
    tight = plan_json("--deadline-ms", 28, stdin=paper_csv())
    assert max(device["pruning_ratio"] for device in tight["devices"]) == cap == 0.95
    allowed = plan_json("--deadline-ms", 28, "--max-pruning", 1, stdin=paper_csv())
    assert max(device["pruning_ratio"] for device in allowed["devices"]) == 1.0  # when asked for


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["empty"]),
        ("device,edge,snr_db\n", ["no rows"]),
        ("device,edge,snr\na,0,40\n", ["line 1", "snr_db"]),
        ("device,edge,snr_db\na,0,loud\n", ["line 2", "snr_db", "'loud'"]),
        ("device,edge,snr_db\na,0,40\nb,0,nan\n", ["line 3", "snr_db", "nan"]),
        ("device,edge,snr_db,cpu_hz\na,0,40,-3e9\n", ["line 2", "cpu_hz (CPU frequency in Hz) must be > 0", "-3e9"]),
        ("device,edge,snr_db\na,0,40\nb,0,41\na,1,42\n", ["line 4", "line 2", "a"]),
        ("device,edge,snr_db\na,0\n", ["line 2"]),
        (b"\x00" * 200_000, ["line 1"]),
        (b"x" * 300_000, ["line 1"]),
        (b"\xff\xfe\x80junk", ["UTF-8"]),
        ("[1, 2]", ["device 1"]),
        ('{"devices": 3}', ["devices"]),
        ("[" * 100_000, ["nested"]),
    ],
)
def test_a_bad_fleet_gets_one_sentence_and_status_2(content, words):
    done = airprune("plan", "-", stdin=content)
    message = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b""
    assert message.startswith("error: ") and message.count("\n") == 1
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--deadline-ms", "-1"], ["--deadline-ms must be > 0, got -1"]),
        (["--deadline-ms", "nan"], ["--deadline-ms must be finite"]),
        (["--bandwidth-mhz", "0"], ["--bandwidth-mhz must be > 0"]),
        (["--max-pruning", "1.5"], ["--max-pruning must be in [0, 1], got 1.5"]),
        (["--min-pruning", "0.9", "--max-pruning", "0.5"], ["--min-pruning must be in [0, 0.5], got 0.9"]),
        (["--scheme", "optimum"], ["did you mean 'optimal'"]),
        (["--scheme", "energy"], ["--scheme energy", "plan.max_energy_j"]),
        (["--solve", "deadline"], ["--target-pruning"]),
        (["--solve", "deadline", "--target-pruning", "2"], ["target_pruning must be in [0, 1]"]),
        (["--frobnicate"], ["No such option"]),
        (["--out", "/nonexistent/folder/plan.csv"], ["/nonexistent/folder"]),
    ],
)
def test_a_wrong_option_gets_one_sentence_and_status_2(arguments, words):
    done = airprune("plan", "-", *arguments, stdin=FLEET)
    message = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b""
    assert message.startswith("error: ") and message.count("\n") == 1
    for word in words:
        assert word in message


def test_a_missing_file_is_named():
    done = airprune("plan", "no-such-fleet.csv")
    assert done.returncode == 2 and b"no-such-fleet.csv" in done.stderr


def test_five_gigabytes_of_junk_are_refused_after_the_first_block(tmp_path):
    junk = tmp_path / "junk.csv"
    with junk.open("wb") as file:
        file.truncate(5 * 2**30)  # sparse: five gigabytes of NUL
    done = airprune("plan", junk)
    assert done.returncode == 2 and b"line 1" in done.stderr


def test_a_failed_write_leaves_the_old_plan_alone(tmp_path):
    out = tmp_path / "plan.csv"
    out.write_text("old")
    done = airprune("plan", "-", "--out", out, stdin="device,edge,snr_db\na,0,loud\n")
    assert done.returncode == 2 and out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.csv"]


def test_an_unknown_column_is_noted_with_the_nearest_known_one():
    done = airprune("plan", "-", "--json", stdin="device,edge,snr_db,cpu_ghz\na,0,40,3\n")
    assert done.returncode == 0
    assert b"ignored column cpu_ghz (did you mean cpu_hz?)" in done.stderr


def test_a_reader_that_stops_early_is_not_an_error_message(tmp_path):
    rows = "".join(f"{n},{n // 50},60\n" for n in range(20_000))
    (tmp_path / "fleet.csv").write_text("device,edge,snr_db\n" + rows)
    command = f"'{AIRPRUNE}' plan fleet.csv --deadline-ms 2000 --json | head -c 10"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.stdout == b'{"edges":[' and done.stderr == b""


def test_help_and_version_go_to_stdout():
    for arguments in ([], ["--help"], ["plan", "--help"]):
        done = airprune(*arguments)
        assert done.returncode == 0 and b"Usage" in done.stdout
    assert process("--version").stdout == f"airprune {ap.__version__}\n"


def test_schemes_are_listed_with_their_summaries():
    names = [row["name"] for row in json.loads(airprune("schemes", "--json").stdout)]
    assert names == list(ap.SCHEMES)
    assert all(name in airprune("schemes").stdout.decode() for name in names)


def test_reproduce_table2_prints_every_cell_beside_the_papers():
    cells = json.loads(airprune("reproduce", "table2", "--json").stdout)["cells"]
    assert len(cells) == 6 and all(abs(cell["deviation"]) < 0.05 for cell in cells)
    assert "593" in airprune("reproduce", "table2").stdout.decode()


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (["--deadline-ms", 28], ["--deadline-s", 0.028]),
        (["--bandwidth-mhz", 18], ["--bandwidth-hz", 18e6]),
    ],
)
def test_an_option_in_the_units_of_a_scenario_is_the_same_quantity(here, there):
    assert plan_json(*here) == plan_json(*there) != plan_json()


def test_a_quantity_given_in_two_units_is_refused():
    done = airprune("plan", "-", "--deadline-s", 0.03, "--deadline-ms", 30, stdin=FLEET)
    assert (done.returncode, done.stderr) == (
        2,
        b"error: --deadline-ms and --deadline-s are the same quantity; give one of them.\n",
    )


# Scenarios


WORK = ("method=adaptive-work", "clock.compute=flops", "clock.flops_per_cycle=8", "network.cpu_hz=5e8")


def scenario_json(*words: object) -> dict:
    done = airprune("plan", "smoke", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_plan_of_a_scenario_is_what_its_run_does_first():
    found = scenario_json(*WORK, "network.cpu_hz_max=3e9")
    scenario = ap.Scenario.preset("smoke").with_overrides([*WORK, "network.cpu_hz_max=3e9", "engine.name=serial"])
    record = next(ap.run(scenario))
    for key in ("local_steps", "first_trained"):
        assert [device[key] for device in found["devices"]] == list(record[key])
    shares = [device["bandwidth_share"] for device in found["devices"]]
    assert shares == pytest.approx(record["bandwidth_share"], rel=1e-12)  # the same plan
    assert found["deadline_ms"] == pytest.approx(1e3 * record["deadline_s"], rel=1e-12)


def test_forward_backward_and_upload_make_up_the_latency_of_a_device():
    for device in scenario_json(*WORK, "plan.deadline_s=0.2")["devices"]:
        parts = device["forward_ms"] + device["backward_ms"] + device["upload_ms"]
        assert parts == pytest.approx(device["latency_ms"], rel=1e-9)  # a sum of differences
        assert device["latency_ms"] <= 200 * (1 + 1e-9) and device["local_steps"] >= 1


def test_prices_of_work_are_in_megahertz_seconds_and_gigahertz():
    done = airprune("plan", "smoke", *WORK)
    text = done.stdout.decode()
    for words in ("1 MHz more for each edge buys", "1 s more for each round buys", "1 GHz more for each device buys"):
        assert words in text
    found = scenario_json(*WORK, "plan.deadline_s=0.2", "radio.bandwidth_hz=1e5")
    per_mhz = [edge["progress_per_mhz"] for edge in found["edges"]]
    prices = [edge["shadow_price"] / 0.1 for edge in found["edges"]]
    assert per_mhz == pytest.approx(prices, rel=1e-12) and max(per_mhz) > 0


def test_options_are_changes_of_the_scenario_and_changes_need_one():
    found = scenario_json("--deadline-ms", 25, "--scheme", "min-max")
    assert found["deadline_ms"] == pytest.approx(25.0) and found["scheme"] == "min-max"
    refused = airprune("plan", "-", "seed=3", stdin=FLEET)
    assert refused.returncode == 2 and b"KEY=VALUE changes are for scenarios" in refused.stderr
    solved = airprune("plan", "smoke", "--solve", "deadline", "--target-pruning", 0.5)
    assert solved.returncode == 2 and b"airprune deadline smoke" in solved.stderr


# Many devices


def many_csv(count: int = 600) -> str:
    snr_db = np.random.default_rng(2).uniform(25.0, 45.0, count)
    return "device,edge,snr_db\n" + "".join(f"d{n},e{n % 12},{x!r}\n" for n, x in enumerate(snr_db.tolist()))


def test_many_failures_are_one_sentence_with_a_deadline_that_serves_all():
    done = airprune("plan", "-", "--deadline-ms", 50, stdin=many_csv())
    errors = [line for line in done.stderr.decode().splitlines() if line.startswith("error:")]
    assert done.returncode == 1 and len(errors) == 1
    assert "12 of 12 edges have no plan for 50 ms: 12 are short of bandwidth" in errors[0]
    serves_ms = float(errors[0].split("the smallest deadline that serves all is ")[1].split(" ms")[0])
    assert airprune("plan", "-", "--deadline-ms", serves_ms, stdin=many_csv()).returncode == 0
    assert airprune("plan", "-", "--deadline-ms", serves_ms * 0.999, stdin=many_csv()).returncode == 1
    text = done.stdout.decode()
    assert "the smallest deadline for all" in text and "600 of 600" in text


def test_the_what_if_of_one_more_megahertz_is_the_plan_with_it():
    found = plan_json("--deadline-ms", 400, "--what-if", stdin=many_csv())
    given, more = found["what_if"][:2]
    wider = plan_json("--deadline-ms", 400, "--bandwidth-mhz", 21, stdin=many_csv())
    ratios = [device["pruning_ratio"] for device in wider["devices"]]
    assert more["change"] == "1 MHz more for each edge"
    assert more["mean_pruning_ratio"] == pytest.approx(np.mean(ratios), rel=1e-9)  # bandwidth in another order of units
    assert more["mean_pruning_ratio"] < given["mean_pruning_ratio"]
