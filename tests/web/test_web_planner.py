"""The planner page's addresses: the same plans as in Python and on the command line, and no input that breaks them."""

import dataclasses
import json
import re
import string

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import airprune as ap
from airprune.cli import main
from airprune.errors import UsageError
from airprune.results.figures.styles import STYLES
from airprune.units import dbm_to_watt
from airprune.web.planner.density import MAX_CELLS, cell_size_m, density
from airprune.web.planner.fleets import FleetMemory
from airprune.web.planner.picture import MAX_DRAWN
from airprune.web.planner.settings import PlannerSettings
from airprune.wireless.channel import Radio, full_band_rates
from airprune.wireless.network import Ring, place_hierarchical
from support.each import each
from support.processes import airprune

pytest_plugins = ["support.browser"]

FLEET = "device,edge,snr_db,cpu_hz\ncam-1,north,43.0,3e9\ncam-2,north,42.0,1e9\nçam-3,south,38.9,2e9\n"
OFFERED = [name for name, scheme in ap.SCHEMES.items() if scheme.plans_fleets()]
ROUNDING = 1e-9  # the page draws edges elsewhere than `place_hierarchical`, so distances differ in their last digits


def planned(server, path="/api/plan", **query):
    answer = server.client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json() if path == "/api/plan" else answer.text


def in_python(scheme="optimal", deadline_s=0.030, max_pruning=0.95, moved=(), **network):
    """The same network and plan by the public calls."""
    bandwidth_hz = network.pop("bandwidth_hz", 20e6)
    power_w = dbm_to_watt(network.pop("power_dbm", 28.0))
    seed = network.setdefault("seed", 0)
    placed = place_hierarchical(**network)
    places = placed.device_position_m.copy()
    for index, offset_m in moved:
        places[index] = placed.edge_position_m[placed.edge[index]] + offset_m
    placed = dataclasses.replace(placed, device_position_m=places)
    radio = Radio(bandwidth_hz=bandwidth_hz, transmit_power_w=power_w)
    problem = ap.PlanProblem(
        full_band_rate_bps=full_band_rates(placed, radio, seed=seed),
        seconds_per_weight=2 * 20 / placed.cpu_hz,
        edge=placed.edge,
        deadline_s=deadline_s,
        max_pruning_ratio=max_pruning,
    )
    return ap.plan(problem, scheme)


def same_plan(answer, plan):
    np.testing.assert_allclose(answer["devices"]["ratio"], plan.pruning_ratio, rtol=ROUNDING, atol=ROUNDING)
    np.testing.assert_allclose(answer["devices"]["share"], plan.bandwidth_share, rtol=ROUNDING)
    np.testing.assert_allclose(answer["devices"]["latency_ms"], 1e3 * plan.latency_s, rtol=ROUNDING)
    total = np.add(answer["devices"]["compute_ms"], answer["devices"]["uplink_ms"])
    np.testing.assert_allclose(total, answer["devices"]["latency_ms"], rtol=ROUNDING)
    assert answer["summary"]["mean_pruning"] == pytest.approx(plan.mean_pruning_ratio, rel=ROUNDING, abs=ROUNDING)
    assert answer["summary"]["sum_pruning"] == pytest.approx(plan.pruning_ratio.sum(), rel=ROUNDING, abs=ROUNDING)
    assert answer["edges"]["status"] == plan.status.tolist()


@pytest.mark.parametrize("scheme", [name for name in OFFERED if name != "closed-form"])
def test_the_page_plans_as_python_does(server, scheme):
    same_plan(planned(server, scheme=scheme), in_python(scheme))


def test_every_setting_reaches_the_plan(server):
    answer = planned(
        server, deadline_ms=55, bandwidth_mhz=17.5, transmit_power_dbm=21, inner_m=60, outer_m=210, num_edges=3,
        devices_per_edge=7, cpu_ghz=2, cpu_spread=0.5, max_pruning=0.9, seed=11,
    )  # fmt: skip
    plan = in_python(
        deadline_s=0.055, bandwidth_hz=17.5e6, power_dbm=21.0, placement=Ring(60.0, 210.0), num_edges=3,
        devices_per_edge=7, cpu_hz=(1e9, 3e9), max_pruning=0.9, seed=11,
    )  # fmt: skip
    same_plan(answer, plan)


def test_the_defaults_are_the_preset_paper():
    paper, page = ap.Scenario.preset("paper"), PlannerSettings()
    assert page.deadline_ms / 1e3 == paper.plan.deadline_s and page.bandwidth_mhz * 1e6 == paper.radio.bandwidth_hz
    assert (page.inner_m, page.outer_m) == (paper.network.inner_m, paper.network.outer_m)
    assert (page.num_edges, page.devices_per_edge) == (paper.network.num_edges, paper.network.devices_per_edge)
    assert page.max_pruning == paper.plan.max_pruning_ratio and page.cpu_ghz * 1e9 == paper.network.cpu_hz


def test_a_moved_device_is_planned_where_it_stands(server):
    answer = planned(server, moved="1.2_300_-40.5*4.4_3_4*9.0_1_1")  # there is no edge 9
    same_plan(answer, in_python(moved=[(7, (300.0, -40.5)), (24, (3.0, 4.0))]))
    edges, devices = answer["edges"], answer["devices"]
    assert devices["x_m"][7] - edges["x_m"][1] == pytest.approx(300.0, abs=0.011)  # places come rounded to centimetres
    assert devices["y_m"][7] - edges["y_m"][1] == pytest.approx(-40.5, abs=0.011)


def test_drawn_edges_keep_their_circles_apart(server):
    for count in (1, 2, 5, 8, 9, 40):
        edges = planned(server, num_edges=count, devices_per_edge=1)["edges"]
        places = np.column_stack((edges["x_m"], edges["y_m"]))
        apart = np.hypot(*(places[:, None] - places[None]).T) + np.where(np.eye(count), np.inf, 0.0)
        assert apart.min() > 2 * 152 and np.hypot(*places.T).min() > 152


def test_an_infeasible_setting_names_who_blocks_and_a_deadline_that_works(server):
    answer = planned(server, deadline_ms=20)
    plan = in_python(deadline_s=0.020)
    marks = np.array(answer["devices"]["mark"])
    assert (marks == "blocks").tolist() == plan.blocking_devices.tolist()
    assert set(marks) == {"blocks", "waits"}
    assert answer["words"]["kind"] == "bad" and len(answer["words"]["failures"]) == 5
    assert "blocked by" in answer["words"]["failures"][0]
    suggested = answer["suggested_deadline_ms"]
    assert suggested == pytest.approx(1e3 * plan.min_deadline_s.max(), rel=1e-5)  # six digits, rounded up
    assert planned(server, deadline_ms=suggested)["words"]["kind"] == "good"
    assert planned(server, deadline_ms=0.999 * suggested)["words"]["kind"] == "bad"
    # The picture shows each edge at its own smallest deadline.
    np.testing.assert_allclose(np.max(answer["devices"]["latency_ms"]), suggested, rtol=1e-5)


def test_edges_without_a_plan_do_not_enter_the_statistics(server):
    answer = planned(server, deadline_ms=22.8)
    plan = in_python(deadline_s=0.0228)
    has_plan = plan.problem.groups.spread(~plan.failed)
    assert 0 < has_plan.sum() < 25
    assert answer["summary"]["num_planned"] == has_plan.sum()
    assert answer["summary"]["mean_pruning"] == pytest.approx(plan.pruning_ratio[has_plan].mean(), rel=ROUNDING)


def test_a_baseline_that_is_late_says_so_and_a_formula_out_of_bounds_too(server):
    late = planned(server, scheme="no-pruning")
    assert late["summary"]["num_late"] == 25 and set(late["devices"]["mark"]) == {"late"}
    assert planned(server, scheme="no-pruning", deadline_ms=late["suggested_deadline_ms"])["summary"]["num_late"] == 0
    outside = planned(server, scheme="closed-form")
    assert outside["summary"]["num_outside"] > 0 and outside["suggested_deadline_ms"] is None
    assert "optimal" in outside["words"]["verdict"]


@pytest.mark.parametrize("scheme", ["optimal", "min-max"])
def test_the_price_in_words_is_the_difference_of_two_plans(server, scheme):
    band, time = planned(server, scheme=scheme)["words"]["prices"]
    before = 100 * in_python(scheme).mean_pruning_ratio
    for sentence, after in (
        (band, 100 * in_python(scheme, bandwidth_hz=21e6).mean_pruning_ratio),
        (time, 100 * in_python(scheme, deadline_s=0.031).mean_pruning_ratio),
    ):
        points, first, second = re.search(r"by ([\d.]+) points \(([\d.]+) % → ([\d.]+) %\)", sentence).groups()
        assert float(points) == pytest.approx(before - after, abs=0.05)  # one decimal
        assert (float(first), float(second)) == pytest.approx((before, after), abs=0.005)  # two decimals
    assert "change nothing" in planned(server, scheme=scheme, deadline_ms=500)["words"]["prices"][0]


def test_all_schemes_are_compared_in_the_reports_colours(server):
    rows = {row["scheme"]: row for row in server.client.get("/api/compared").json()}
    assert list(rows) == OFFERED
    for name in ("optimal", "no-pruning", "min-max"):
        assert rows[name]["mean_pruning"] == pytest.approx(
            in_python(name).mean_pruning_ratio, rel=ROUNDING, abs=ROUNDING
        )
    embedded = re.search(r'id="initial-data">(.*?)</script>', server.client.get("/planner").text, re.DOTALL)[1]
    colours = {scheme["name"]: scheme["colour"] for scheme in json.loads(embedded)["schemes"]}
    assert colours == {name: STYLES[name].colour for name in [*OFFERED, "energy"]}  # preset iot has it


def test_of_many_devices_some_are_drawn_but_all_are_counted(server):
    query = {"num_edges": 40, "devices_per_edge": 100, "deadline_ms": 600, "moved": "7.33_10_20"}
    answer = planned(server, **query)
    plan = in_python(num_edges=40, devices_per_edge=100, deadline_s=0.6, moved=[(733, (10.0, 20.0))])
    assert answer["num_devices"] == 4000 and answer["num_drawn"] == len(answer["devices"]["index"])
    assert MAX_DRAWN <= answer["num_drawn"] <= MAX_DRAWN + 1
    assert 733 in answer["devices"]["index"]  # moved by hand
    assert answer["summary"]["sum_pruning"] == pytest.approx(plan.pruning_ratio.sum(), rel=ROUNDING)
    index = answer["devices"]["index"]
    np.testing.assert_allclose(answer["devices"]["ratio"], plan.pruning_ratio[index], rtol=1e-6, atol=ROUNDING)
    assert planned(server, **query) == answer
    blocked = planned(server, **{**query, "deadline_ms": 430})
    assert blocked["summary"]["num_blocking"] > 0 and "blocks" in blocked["devices"]["mark"]


def test_a_density_counts_every_device_once_where_it_stands(server):
    answer = planned(server, num_edges=40, devices_per_edge=100, deadline_ms=600)
    plan = in_python(num_edges=40, devices_per_edge=100, deadline_s=0.6)
    grid, cells = answer["density"], np.array(answer["density"]["count"]).reshape(-1, answer["density"]["columns"])
    assert cells.sum() == 4000 and max(cells.shape) <= MAX_CELLS
    mean = np.array([np.nan if value is None else value for value in grid["pruning"]]).reshape(cells.shape) / 100
    assert np.nansum(mean * cells) == pytest.approx(plan.pruning_ratio.sum(), abs=0.005 * 4000)  # whole percent
    for x_m, y_m in zip(answer["devices"]["x_m"], answer["devices"]["y_m"], strict=True):
        assert cells[int((y_m - grid["south_m"]) // grid["cell_m"]), int((x_m - grid["west_m"]) // grid["cell_m"])] > 0
    assert planned(server)["density"] is None  # 25 devices are drawn one by one


def test_the_cells_of_a_density_have_round_sizes_and_are_few():
    assert [cell_size_m(metres) for metres in (99.0, 100.0, 2970.0, 0.0)] == [1.0, 2.0, 50.0, pytest.approx(2e-5)]
    rng = np.random.default_rng(0)
    for spread_m in (0.0, 1e-2, 3.0, 997.0, 1e5):
        place = spread_m * rng.uniform(-1, 1, (500, 2))
        found = density(place, np.full(500, np.nan))
        rows = len(found["count"]) / found["columns"]
        assert sum(found["count"]) == 500 and found["columns"] <= MAX_CELLS and rows <= MAX_CELLS
        assert set(found["pruning"]) == {None}


def test_the_page_carries_its_first_plan(server):
    for query in ({}, {"deadline_ms": "41.5", "scheme": "min-max", "moved": "0.1_50_60"}):
        text = server.client.get("/planner", params={**query, "token": "whatever"}).text
        embedded = json.loads(re.search(r'id="initial-data">(.*?)</script>', text, re.DOTALL)[1])
        assert embedded["answer"] == planned(server, **query) and embedded["error"] is None


# Tables


def send(server, content, **query):
    return server.client.post("/api/fleet", content=content, params=query)


def test_a_table_is_planned_to_the_byte_as_the_command_line_plans_it(server, tmp_path):
    key = send(server, FLEET).json()["fleet"]
    (tmp_path / "fleet.csv").write_text(FLEET)
    for number, options in enumerate(({}, {"scheme": "min-max", "deadline_ms": 17.3, "bandwidth_mhz": 12.5})):
        out = tmp_path / f"plan{number}.csv"
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        done = airprune("plan", tmp_path / "fleet.csv", "--max-pruning=0.95", *flags, "--out", out)
        assert done.returncode == 0, done.stderr
        assert planned(server, "/api/plan.csv", fleet=key, **options).encode() == out.read_bytes()
    answer = planned(server, fleet=key)
    assert answer["is_table"] and answer["devices"]["name"] == ["cam-1", "cam-2", "çam-3"]
    assert answer["edges"]["name"] == ["north", "south"]


def test_the_drawn_network_downloaded_as_a_table_gives_the_same_plan_on_the_command_line(server, tmp_path):
    query = {"cpu_spread": 0.3, "seed": 4, "moved": "2.1_90_10"}
    table = tmp_path / "fleet.csv"
    table.write_text(planned(server, "/api/fleet.csv", **query))
    done = airprune("plan", table, "--max-pruning=0.95", "--json")
    rows = json.loads(done.stdout)["devices"]
    answer = planned(server, **query)
    np.testing.assert_allclose([row["pruning_ratio"] for row in rows], answer["devices"]["ratio"], rtol=ROUNDING)
    assert set(rows[0]) <= set(planned(server, "/api/plan.csv", **query).splitlines()[0].split(","))


def test_a_device_of_a_table_stands_where_its_snr_puts_it_and_moves_with_it(server):
    key = send(server, FLEET).json()["fleet"]
    still = planned(server, fleet=key)
    east, north = (still["devices"][axis][0] - still["edges"][axis][0] for axis in ("x_m", "y_m"))
    snr_db = 28 + 110 - (128.1 + 37.6 * np.log10(np.hypot(east, north) / 1e3))
    assert snr_db == pytest.approx(43.0, abs=0.01)  # places come rounded to centimetres
    moved = planned(server, fleet=key, moved="0_300_400")
    assert moved["devices"]["snr_db"][0] == pytest.approx(28 + 110 - 128.1 - 37.6 * np.log10(0.5), abs=1e-3)
    assert moved["devices"]["snr_db"][1:] == still["devices"]["snr_db"][1:]


def test_a_table_is_read_as_json_and_with_notes_on_ignored_columns(server):
    rows = [{"device": "a", "edge": 1, "snr_db": 40, "cpu_ghz": 3}]
    answer = send(server, json.dumps(rows)).json()
    assert answer["num_devices"] == 1 and answer["ignored"] == ["cpu_ghz (did you mean cpu_hz?)"]


BAD_TABLES = {
    "empty": "",
    "no snr": "device,edge\n",
    "no rows": "device,edge,snr_db\n",
    "nan": "device,edge,snr_db\na,x,nan\n",
    "twice": "device,edge,snr_db\na,x,1\na,x,2\n",
    "short row": "device,edge,snr_db\na,x\n",
    "open quote": 'device,edge,snr_db\n"a,x,1\n',
    "bad json": "[{]",
    "deep json": "[" * 100_000,
    "nul": "\0",
    "not utf-8": b"\xff\xfe",
    "endless line": "x" * 100_000,
    "zero hertz": "device,edge,snr_db,cpu_hz\na,x,40,0\n",
}


@pytest.mark.parametrize("content", BAD_TABLES.values(), ids=list(BAD_TABLES))
def test_a_bad_table_is_refused_with_the_command_lines_sentence(server, content, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["plan", "fleet.csv"]) == 2
    answer = send(server, content, name="fleet.csv")
    assert answer.status_code == 422
    assert f"error: {answer.json()['error']}\n" == capsys.readouterr().err


def test_a_table_that_the_server_does_not_hold_is_asked_for_again(server):
    answer = server.client.get("/api/plan", params={"fleet": "0" * 64})
    assert answer.status_code == 422 and "Load the file again" in answer.json()["error"]


def test_the_server_forgets_the_tables_used_longest_ago():
    memory = FleetMemory(max_rows=5)
    tables = [f"device,edge,snr_db\na{n},x,40\nb,x,40\n".encode() for n in range(3)]
    first, _ = memory.add(tables[0], "t")
    second, _ = memory.add(tables[1], "t")
    memory.get(first)
    memory.add(tables[2], "t")
    assert len(memory.get(first).device) == 2
    with pytest.raises(UsageError):
        memory.get(second)


# Refusals


@each(
    ("query", "sentence"),
    [
        ({"deadline_ms": "0"}, "planner.deadline_ms must be in [0.001, 1e+06], got 0.0. Example: deadline_ms = 30.0"),
        ({"deadline_ms": "nan"}, "planner.deadline_ms must be a number in [0.001, 1e+06], got 'nan'"),
        ({"deadline_ms": "1e999"}, "planner.deadline_ms must be finite and in [0.001, 1e+06], got inf"),
        ({"bandwidth_mhz": "١٢"}, "planner.bandwidth_mhz must be a number in"),
        ({"num_edges": "0"}, "planner.num_edges must be a whole number ≥ 1, got 0"),
        ({"num_edges": "2.0"}, "planner.num_edges must be a whole number ≥ 1, got '2.0'"),
        ({"num_edges": "9" * 5000}, "planner.num_edges must be a whole number ≥ 1, got '999"),
        ({"devices_per_edge": "2000000"}, "must make at most 1,000,000 devices in all, got 10,000,000. For more, use"),
        ({"devices_per_edge": "10000000"}, "must make at most 1,000,000 devices in all"),
        ({"devices_per_edge": "10000001"}, "planner.devices_per_edge must be a whole number in [1, 10000000]"),
        ({"outer_m": "100"}, "planner.outer_m must be ≥ inner_m = 118, got 100."),
        ({"max_pruning": "1.1"}, "planner.max_pruning must be in [0, 1], got 1.1"),
        ({"scheme": "optimum"}, "planner.scheme 'optimum' is unknown; did you mean 'optimal'?"),
        ({"deadline": "3"}, "planner.deadline is unknown; did you mean 'deadline_ms'?"),
        ({"fleet": "../../etc/passwd"}, "planner.fleet must be the 64 hexadecimal digits"),
        ({"moved": "0.1_5"}, "planner.moved must be EDGE.DEVICE_EAST_NORTH"),
        ({"moved": "0.1_5_1e6"}, "planner.moved must be EDGE.DEVICE_EAST_NORTH"),
        ({"moved": "*".join(["0.1_1_1"] * 2001)}, "planner.moved must move at most 2,000 devices, got 2,001"),
        ({"seed": "-1"}, "planner.seed must be a whole number ≥ 0, got -1"),
        ({"seed": "\ud800".encode("utf-8", "surrogatepass")}, "planner.seed must be a whole number ≥ 0"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named_with_its_way_out(server, query, sentence):
    for path in ("/api/plan", "/api/plan.csv", "/api/fleet.csv"):
        answer = server.client.get(path, params=query)
        assert answer.status_code == 422
        assert sentence in answer.json()["error"], answer.json()["error"]
    assert server.client.get("/planner", params=query).status_code == 200  # the page opens, and says it


def test_extreme_settings_are_planned_or_refused_but_never_break(server):
    for query in (
        {"deadline_ms": 0.001}, {"deadline_ms": 1e6}, {"bandwidth_mhz": 0.001}, {"bandwidth_mhz": 1e5},
        {"inner_m": 1e5, "outer_m": 1e5}, {"inner_m": 0, "outer_m": 1}, {"max_pruning": 0}, {"max_pruning": 1},
        {"transmit_power_dbm": -50, "outer_m": 1e5}, {"cpu_ghz": 0.001, "cpu_spread": 0.95}, {"num_edges": 10000},
        {"num_edges": 1, "devices_per_edge": 100000, "deadline_ms": 1}, {"moved": "0.0_0_0"}, {"seed": 2**53},
        {"num_edges": 10000, "devices_per_edge": 10, "deadline_ms": 1},
    ):  # fmt: skip
        for scheme in ("optimal", "closed-form", "no-pruning") if query.get("num_edges", 1) < 10000 else ("optimal",):
            answer = planned(server, scheme=scheme, **query)
            assert answer["words"]["verdict"]
    for snr_db in (-300, 300):
        key = send(server, f"device,edge,snr_db\na,x,{snr_db}\nb,x,40\n").json()["fleet"]
        assert planned(server, fleet=key)["words"]["verdict"]


# Fuzzing


def check_sane(answer):
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["error"]


@pytest.mark.parametrize("path", ["/api/plan", "/api/plan.csv", "/api/fleet.csv", "/api/fleet"])
def test_no_request_of_the_schema_breaks_the_server(server, path):
    schema = schemathesis.openapi.from_dict(server.client.get("/openapi.json").json())
    operation = next(op.ok() for op in schema.get_all_operations() if op.ok().path == path)

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def attempt(case):
        query = {name: str(value) for name, value in (case.query or {}).items()}
        content = case.body.encode("utf-8", "surrogatepass") if isinstance(case.body, str) else None
        check_sane(server.client.request(case.method, path, params=query, content=content))

    attempt()


WORDS = st.one_of(
    st.text(max_size=30),
    st.floats().map(str),
    st.integers().map(str),
    st.text(string.digits + "._-*eE+", max_size=40),
    st.sampled_from(["", "null", "[]", "{}", "0x10", "1_000", " 5 ", "1e400", "-0", "٣", "9" * 400]),
)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    query=st.dictionaries(
        st.one_of(st.sampled_from(list(PlannerSettings.model_fields)), st.text(max_size=8)), WORDS, max_size=4
    )
)
def test_no_query_breaks_the_planner(server, query):
    encoded = {name.encode("utf-8", "replace"): text.encode("utf-8", "replace") for name, text in query.items()}
    check_sane(server.client.get("/api/plan", params=encoded))


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.text(max_size=200).map(lambda text: ("device,edge,snr_db\n" + text).encode("utf-8", "replace")),
    )
)
def test_no_table_breaks_the_reader(server, content):
    answer = send(server, content)
    check_sane(answer)
    if answer.status_code == 200:
        check_sane(server.client.get("/api/plan", params={"fleet": answer.json()["fleet"]}))


def test_broken_requests_get_an_answer_and_the_server_stays(server):
    for body in (b"[" * 100_000, b"\xff\xfe", b'{"a":' * 10_000, b"NaN", b"9" * 10_000):
        check_sane(server.client.post("/api/fleet", content=body, headers={"Content-Type": "application/json"}))
        check_sane(server.client.post("/", content=body, headers=server.with_token))
    assert httpx.get(server.url).status_code == 200
