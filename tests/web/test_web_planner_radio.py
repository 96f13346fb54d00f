"""The radio on the planner page: the numbers of `airprune plan`, interference on the map, bad combinations refused."""

import json
import re

import numpy as np
import pytest

import airprune as ap
from airprune.cli import main
from airprune.errors import UsageError
from airprune.web.planner.settings import PRESETS, PlannerSettings

pytest_plugins = ["support.browser"]

# Plans do not depend on samples on the paper's clock, and these need no file.
NO_FILES = ("data.name=glyphs", "data.train_samples=1600", "data.test_samples=200")
RAYLEIGH = {"fading": "rayleigh", "num_antennas": 4}
SWITCHES = {
    "thermal noise": {"noise": "thermal", "deadline_ms": 50},
    "slice noise": {"noise": "thermal", "slice_noise": "true", "deadline_ms": 50},
    "MCS": {"rate": "nr-mcs", "deadline_ms": 60},
    "UMi": {"path_loss": "umi", "carrier_ghz": 2.6, "deadline_ms": 60},
    "fading": {**RAYLEIGH, "deadline_ms": 40},
    "MU-MIMO": {"fading": "rayleigh", "num_antennas": 8, "num_streams": 4, "deadline_ms": 12},
    "power control": {"power_p0_dbm": -72, "power_alpha": 0.9, "deadline_ms": 40},
    "reuse 1": {"reuse": 1, "deadline_ms": 80},
    "reuse 2 with MCS": {"reuse": 2, "rate": "nr-mcs", "deadline_ms": 80},
    "downlink": {"downlink": "unicast", "station_power_dbm": 46},
    "inexact CSI": {**RAYLEIGH, "csi_correlation": 0.9, "pilots": 16, "report_bits": 2000, "deadline_ms": 40},
    "old CSI": {**RAYLEIGH, "csi_delay_ms": 2, "speed_m_per_s": 3, "deadline_ms": 40},
    "a promise": {**RAYLEIGH, "csi_correlation": 0.9, "on_time": 0.95, "deadline_ms": 40},
    "movement": {
        "mobility": "waypoint",
        "speed_m_per_s": 10,
        "start_s": 60,
        "association": "best-rate",
        "deadline_ms": 90,
    },
    "other edges": {"edge_distance_m": 250, "placement": "disc", "association": "nearest", "deadline_ms": 60},
    "devices and CPUs": {"cpu_ghz": 0.5, "cpu_spread": 0.4, "seed": 3, "rate": "nr-mcs", "deadline_ms": 90},
    **{name: {"preset": name} for name in PRESETS},
    "a preset changed": {"preset": "urban-5g", "reuse": "none", "noise": "paper", "deadline_ms": 90},
}


def planned(server, **query):
    answer = server.client.get("/api/plan", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def as_command(capsys, answer):
    """The same plan by the command that the page shows."""
    *command, name = answer["command"].split(" ", 3)[:3]
    words = answer["command"].split()[3:]
    assert command == ["airprune", "plan"]
    assert main(["plan", name, *words, *NO_FILES, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("query", SWITCHES.values(), ids=SWITCHES)
def test_the_page_and_airprune_plan_give_the_same_numbers(server, capsys, query):
    page = planned(server, **query)
    command = as_command(capsys, page)
    devices, edges = command["devices"], {row["edge"]: row for row in command["edges"]}
    for name, column in (("ratio", "pruning_ratio"), ("share", "bandwidth_share"), ("latency_ms", "latency_ms")):
        np.testing.assert_allclose(page["devices"][name], [row[column] for row in devices], rtol=1e-12, atol=1e-15)
    for k, least_ms in enumerate(page["edges"]["min_deadline_ms"]):
        assert least_ms == (edges[str(k)]["min_deadline_ms"] if str(k) in edges else None)
    assert (page["devices"]["on_time"] is None) == ("promises" not in command)
    if "promises" in command:
        assert page["devices"]["on_time"] == [row["on_time"] for row in devices]
        assert server.client.get("/api/promises", params=query).json() == command["promises"]
    else:
        assert server.client.get("/api/promises", params=query).json() is None
    assert bool(page["words"]["overhead"]) == ("overhead" in command)


def test_presets_are_the_scenarios_of_their_names():
    for name in PRESETS:
        settings = PlannerSettings.from_query({"preset": name})
        assert settings.scenario() == ap.Scenario.preset(name)
        assert settings.command_words() == [name]
    assert PlannerSettings.from_query({}) == PlannerSettings()


def test_a_setting_of_a_preset_can_be_unset(server):
    alone = planned(server, preset="urban-5g", reuse="none")
    assert alone["settings"]["reuse"] == "none" and "radio.reuse=none" in alone["command"]
    assert alone["devices"]["sinr_db"] is None and planned(server, preset="urban-5g")["devices"]["sinr_db"] is not None


BAD = {
    "slices of MCS": ({"rate": "nr-mcs", "slice_noise": "true"}, "Scenario.radio.slice_noise must be false"),
    "too few antennas": ({"num_streams": 2}, "Scenario.radio.num_streams must be at most"),
    "streams without fading": ({"num_streams": 2, "num_antennas": 2}, "Scenario.radio.num_streams must be 1 without"),
    "interference with inexact CSI": ({**RAYLEIGH, "reuse": 1, "csi_correlation": 0.5}, "Scenario.radio.csi_"),
    "interference with old CSI": ({**RAYLEIGH, "reuse": 1, "csi_delay_ms": 5, "speed_m_per_s": 9}, "Radio.csi_correl"),
    "a scheme of linear rates": ({"scheme": "variance", "slice_noise": "true"}, "radio.slice_noise must be false"),
    "powers under power control": ({"preset": "iot", "power_p0_dbm": -80}, "Scenario.radio.power_p0_dbm must be none"),
    "movement at no speed": ({"mobility": "waypoint"}, "Scenario.network.speed_m_per_s must be > 0"),
    "an unknown preset": ({"preset": "rural"}, "planner.preset 'rural' is unknown"),
    "a preset with samples": ({"preset": "boards"}, "planner.preset 'boards' is unknown"),
    "an unknown path loss": ({"path_loss": "umj"}, "Scenario.radio.path_loss 'umj' is unknown"),
    "reuse of nothing": ({"reuse": 0}, "planner.reuse must be a whole number"),
    "half a switch": ({"slice_noise": "maybe"}, "planner.slice_noise must be true or false"),
    "certainty": ({"on_time": 1}, "planner.on_time must be"),
    "a long way": ({"mobility": "waypoint", "speed_m_per_s": 1, "start_s": 1e6}, "planner.start_s must be in"),
    "too many links": ({"reuse": 1, "num_edges": 10_000, "devices_per_edge": 100}, "planner.num_edges must be smaller"),
    "too many antennas": (
        {"fading": "rayleigh", "num_antennas": 200, "num_edges": 1000, "devices_per_edge": 1000},
        "planner.num_antennas must be smaller",
    ),
    "too many legs": (
        {"mobility": "waypoint", "speed_m_per_s": 300, "start_s": 80_000, "devices_per_edge": 4000, "num_edges": 5,
         "edge_distance_m": 1, "outer_m": 9, "inner_m": 1},
        "planner.start_s must be smaller",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("query", "sentence"), BAD.values(), ids=BAD)
def test_what_does_not_go_together_is_one_sentence(server, query, sentence):
    for path in ("/api/plan", "/api/promises", "/api/compared", "/api/plan.csv"):
        answer = server.client.get(path, params=query)
        assert answer.status_code == 422, path
        assert answer.json()["error"].startswith(sentence) and "\n" not in answer.json()["error"]
    page = server.client.get("/planner", params=query)
    embedded = json.loads(re.search(r'id="initial-data">(.*?)</script>', page.text, re.DOTALL)[1])
    assert page.status_code == 200 and embedded["error"].startswith(sentence)  # with the paper's plan
    assert embedded["answer"]["summary"]["num_planned"] == 25


def test_interference_raises_the_noise_of_the_ground_and_of_devices_alike(server):
    """SINR = SNR / (1 + L_k): what separates the two maps is the rise that each edge reports."""
    shared = planned(server, reuse=1, ground="sinr", deadline_ms=80)
    rise_db = np.array(shared["edges"]["rise_db"])
    assert (rise_db > 0).all()
    alone = planned(server, ground="sinr", deadline_ms=80, edge_distance_m=685.0, association="best-rate")
    assert alone["edges"]["rise_db"] == [None] * 5
    assert shared["ground"]["edge"] == alone["ground"]["edge"]
    difference = np.subtract(alone["ground"]["value"], shared["ground"]["value"])
    np.testing.assert_allclose(
        difference, rise_db[shared["ground"]["edge"]], atol=0.011
    )  # values come with two decimals
    devices = shared["devices"]
    np.testing.assert_allclose(
        np.subtract(devices["snr_db"], devices["sinr_db"]), rise_db[devices["edge"]], atol=0.002
    )  # three decimals


def test_fewer_edges_on_a_bandwidth_interfere_less(server):
    rises = [max(planned(server, reuse=n, deadline_ms=80)["edges"]["rise_db"]) for n in (1, 2, 5)]
    assert rises[0] > rises[1] > rises[2] == 0.0


def test_the_ground_is_snr_at_a_distance(server):
    """128.1 + 37.6 log10(d/km) dB at 28 dBm and −110 dBm: 10 dB are added up by ten antennas."""
    for antennas in (1, 10):
        ground = planned(server, ground="sinr", num_edges=1, fading="rayleigh", num_antennas=antennas, deadline_ms=90)
        edges, ground = ground["edges"], ground["ground"]
        cell, columns = ground["cell_m"], ground["columns"]
        for at in (0, len(ground["value"]) // 3, len(ground["value"]) - 1):
            east = ground["west_m"] + cell * (at % columns + 0.5) - edges["x_m"][0]
            north = ground["south_m"] + cell * (at // columns + 0.5) - edges["y_m"][0]
            loss_db = 128.1 + 37.6 * np.log10(np.hypot(east, north) / 1e3)
            expected = 28 + 110 - loss_db + 10 * np.log10(antennas)
            assert ground["value"][at] == pytest.approx(expected, abs=0.006)  # two decimals, and of places two


def test_the_rate_of_the_ground_never_exceeds_the_best_mcs(server):
    ground = planned(server, ground="rate", rate="nr-mcs", deadline_ms=90)["ground"]
    assert max(ground["value"]) == pytest.approx(20 * 7.4063 / 1.1, abs=0.006) and min(ground["value"]) >= 0


def test_devices_move_with_time_and_hand_over(server):
    query = {"mobility": "waypoint", "speed_m_per_s": 20, "association": "best-rate", "deadline_ms": 200}
    begin, later = planned(server, **query), planned(server, **query, start_s=40)
    moved_m = np.hypot(*(np.subtract(begin["devices"][axis], later["devices"][axis]) for axis in ("x_m", "y_m")))
    assert (moved_m > 1).all() and (moved_m <= 20 * 40 + 0.02).all()  # centimetres
    assert begin["devices"]["edge"] != later["devices"]["edge"]
    assert begin["edges"]["x_m"] == later["edges"]["x_m"]
    by_hand = planned(server, **query, moved="0.0_1_1")
    assert by_hand["moved"] == [] and by_hand["devices"] == begin["devices"]  # they move by themselves


def test_edges_without_devices_are_shown_without_a_plan(server):
    query = {"mobility": "waypoint", "speed_m_per_s": 20, "start_s": 40, "association": "best-rate", "deadline_ms": 400}
    answer = planned(server, **query, num_edges=8, devices_per_edge=1)
    counts = answer["edges"]["num_devices"]
    assert 0 in counts and sum(counts) == 8 and len(counts) == answer["num_edges"] == 8
    idle = counts.index(0)
    assert answer["edges"]["status"][idle] == "no devices" and answer["edges"]["min_deadline_ms"][idle] is None


def test_an_edge_without_a_plan_is_shown_beside_what_pilots_take_of_the_others(server):
    query = {"outer_m": 400, "fading": "rayleigh", "pilots": 16, "downlink": "broadcast", "deadline_ms": 100}
    least_ms = planned(server, **query)["edges"]["min_deadline_ms"]
    answer = planned(server, **query | {"deadline_ms": np.median(least_ms)})
    assert answer["words"]["kind"] == "bad" and 0 < answer["summary"]["num_planned"] < 25
    assert answer["words"]["overhead"][0].startswith("Pilots take")
    assert planned(server, **query | {"deadline_ms": 1})["words"]["overhead"] == []


def test_the_words_tell_a_chance_from_a_promise(server):
    inexact = {**RAYLEIGH, "csi_correlation": 0.9, "deadline_ms": 40}
    words = planned(server, **inexact)["words"]
    assert words["kind"] == "chance" and re.search(r"probability of only 4\d to 4\d %", words["verdict"])
    kept = planned(server, **inexact, on_time=0.99)
    assert kept["words"]["kind"] == "good" and "99 % or more" in kept["words"]["verdict"]
    assert min(kept["devices"]["on_time"]) == pytest.approx(0.99, abs=1e-6)  # an interpolated quantile
    assert planned(server, **RAYLEIGH, deadline_ms=40)["words"]["kind"] == "good"


def test_a_nearly_exact_estimate_is_planned_without_probabilities(server):
    """Their series would have millions of terms for each device."""
    answer = planned(server, **RAYLEIGH, csi_correlation=0.99999999, deadline_ms=40)
    assert answer["devices"]["on_time"] is None and "if its channel is as estimated" in answer["words"]["verdict"]


def test_every_scheme_that_refuses_the_radio_says_why(server):
    rows = server.client.get("/api/compared", params={"slice_noise": "true", "deadline_ms": 40}).json()
    refused = {row["scheme"]: row["refused"] for row in rows if "refused" in row}
    assert {"variance", "closed-form"} <= refused.keys() and "optimal" not in refused
    assert all("radio.slice_noise must be false" in sentence for sentence in refused.values())


def test_devices_with_interference_are_downloaded_with_their_rates(server, tmp_path, capsys):
    query = {"reuse": 1, "deadline_ms": 80, "noise": "thermal"}
    table = tmp_path / "fleet.csv"
    table.write_text(server.client.get("/api/fleet.csv", params=query).text)
    assert main(["plan", str(table), "--max-pruning=0.95", "--deadline-ms=80", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["devices"]
    ratios = planned(server, **query)["devices"]["ratio"]
    np.testing.assert_allclose([row["pruning_ratio"] for row in rows], ratios, rtol=1e-6, atol=1e-9)


def test_a_radio_trains_as_a_scenario_and_snrs_as_a_table(server):
    assert planned(server, deadline_ms=40)["training"]["has_table"]
    offer = planned(server, noise="thermal", deadline_ms=60)["training"]
    assert offer["preset"] == "paper" and not offer["has_table"]
    trained = ap.Scenario.preset("paper").with_overrides(f"{key}={value}" for key, value in offer["overrides"].items())
    assert trained.radio == ap.Scenario.preset("paper").with_("radio.noise", "thermal").radio
    assert trained.plan.deadline_s == 0.06


def test_settings_say_what_they_are_as_typed():
    settings = PlannerSettings.from_query({"preset": "iot", "cpu_spread": "0.5", "slice_noise": "false", "reuse": "3"})
    assert settings.command_words() == [
        "iot",
        "radio.reuse=3",
        "network.cpu_hz=240000000",
        "network.cpu_hz_max=720000000",
    ]
    with pytest.raises(UsageError, match=r"planner\.rate"):
        PlannerSettings.from_query({"rate": "turbo"})
