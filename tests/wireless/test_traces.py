"""Links over time from a file: read strictly, interpolated as promised, used by plans and runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.cli import main
from airprune.errors import InvalidValue
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario
from airprune.studies.conformance import points
from airprune.wireless.channel import Radio
from airprune.wireless.fcd import read_fcd, traces_of_positions
from airprune.wireless.network import place_hierarchical
from airprune.wireless.traces import read_traces, traces_of
from support.docs_blocks import blocks
from support.own_environment import ROOT, own_environment
from support.tiny import blobs, timed_rounds, tiny_scenario

RADIO = Radio()
NETWORK = place_hierarchical(num_edges=2, devices_per_edge=1, seed=0)


def rows(**changes):
    """Device 0 at station 0 rises from −110 to −90 dB in ten seconds, device 1 stays at −100 dB at station 1."""
    values = {
        "time": [0.0, 10.0, 0.0],
        "device": [0, 0, 1],
        "station": [0, 0, 1],
        "gain_db": [-110.0, -90.0, -100.0],
    }
    return {key: np.array(value) for key, value in (values | changes).items() if value is not None}


def saved(tmp_path, columns, name="traces.npz"):
    np.savez(tmp_path / name, **columns)
    return str(tmp_path / name)


@pytest.mark.parametrize(("time_s", "db"), [(-1, -110), (0, -110), (2.5, -105), (10, -90), (99, -90)])
def test_gains_are_linear_in_db_between_rows_and_stay_outside(time_s, db):
    gains = traces_of(rows(), NETWORK, RADIO).gains(time_s, RADIO)
    assert gains[0, 0] == pytest.approx(10.0 ** (db / 10), rel=1e-12)
    assert gains[1].tolist() == pytest.approx([0.0, 1e-10])  # a link without rows is out of reach


def test_rates_give_themselves_back_through_eq_10():
    columns = rows(gain_db=None, rate_bps=[20e6, 60e6, 40e6])
    gains = traces_of(columns, NETWORK, RADIO).gains(5.0, RADIO)
    snr = gains[[0, 1], [0, 1]] * RADIO.transmit_power_w / RADIO.band_noise_w
    np.testing.assert_allclose(20e6 * np.log2(1 + snr), [40e6, 40e6], rtol=1e-12)


def test_rows_may_come_in_any_order_and_links_have_times_of_their_own():
    rng = np.random.default_rng(1)
    device, station = (axis.ravel() for axis in np.indices((2, 2)))
    parts = []
    for n, k in zip(device, station, strict=True):
        time = np.sort(rng.uniform(0, 100, rng.integers(1, 20)))
        parts.append((time, np.full(len(time), n), np.full(len(time), k), rng.uniform(-120, -60, len(time))))
    columns = dict(
        zip(("time", "device", "station", "gain_db"), map(np.concatenate, zip(*parts, strict=True)), strict=True)
    )
    order = rng.permutation(len(columns["time"]))
    traces = traces_of({key: array[order] for key, array in columns.items()}, NETWORK, RADIO)
    for at in (0.0, 17.3, 50.0, 99.9):
        expected = [10.0 ** (np.interp(at, time, db) / 10) for time, _, _, db in parts]
        np.testing.assert_allclose(traces.gains(at, RADIO).ravel(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"time": None}, "must have time, device, station and one of gain_db, rate_bps in traces, got no time"),
        ({"gain_db": None}, "got neither gain_db nor rate_bps"),
        ({"rate_bps": [1.0, 2.0, 3.0]}, "got gain_db and rate_bps"),
        ({"time": [0.0, 1.0]}, "must have columns of one length"),
        ({"gain_db": [-110.0, np.nan, -100.0]}, "gain_db of traces, must"),
        ({"gain_db": [-110.0, 400.0, -100.0]}, "gain_db of traces, must be <= 100|≤ 100"),
        ({"gain_db": ["a", "b", "c"]}, "column gain_db must hold numbers"),
        ({"device": [0, 0, 7]}, "column device must name the devices of the network in traces: 0, 1, got '7'"),
        ({"station": ["0", "0", "x"]}, "column station must name the stations"),
        ({"device": [0.0, 0.0, 1.0]}, "column device must hold names or whole numbers"),
        ({"time": [0.0, 0.0, 0.0]}, "must have one row for each link and time in traces, got two of device 0"),
        ({"device": [0, 0, 0], "station": [0, 1, 1]}, "must have rows of every device in traces, got none of device 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(changes, sentence):
    with pytest.raises(InvalidValue, match=rf"network\.traces.*({sentence})"):
        traces_of(rows(**changes), NETWORK, RADIO)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"time,device\n"])
def test_a_file_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(InvalidValue, match=r"network\.traces must be a readable \.npz or \.parquet file"):
        read_traces(tmp_path / "bad.npz", NETWORK, RADIO)


def test_a_missing_file_another_kind_and_pickles_are_refused(tmp_path):
    with pytest.raises(InvalidValue, match="No such file"):
        read_traces(tmp_path / "none.npz", NETWORK, RADIO)
    with pytest.raises(InvalidValue, match=r"must be an \.npz or \.parquet file"):
        read_traces(tmp_path / "traces.csv", NETWORK, RADIO)
    np.savez(tmp_path / "objects.npz", **(rows() | {"device": np.array([0, "a", None], dtype=object)}))
    with pytest.raises(InvalidValue, match="must be a readable"):
        read_traces(tmp_path / "objects.npz", NETWORK, RADIO)


def test_parquet_without_pyarrow_is_one_sentence_and_with_it_the_same_traces(tmp_path):
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        (tmp_path / "t.parquet").write_bytes(b"PAR1")
        with pytest.raises(InvalidValue, match=r"must be an \.npz file where pyarrow is not installed"):
            read_traces(tmp_path / "t.parquet", NETWORK, RADIO)
        return
    parquet.write_table(pyarrow.table(rows()), tmp_path / "t.parquet")
    np.testing.assert_array_equal(
        read_traces(tmp_path / "t.parquet", NETWORK, RADIO).gains(5.0, RADIO),
        traces_of(rows(), NETWORK, RADIO).gains(5.0, RADIO),
    )


@pytest.mark.slow
def test_parquet_is_read_where_pyarrow_is_installed():
    """The test above, where it finds pyarrow of an environment of its own."""
    python = own_environment("pyarrow", ["pyarrow"])
    where = subprocess.run([python, "-c", "import pyarrow; print(pyarrow.__file__)"], capture_output=True, text=True)
    assert where.returncode == 0, where.stderr
    paths = [str(Path(where.stdout.strip()).parents[1]), str(ROOT / "src"), str(ROOT / "tests")]
    name = f"{__file__}::test_parquet_without_pyarrow_is_one_sentence_and_with_it_the_same_traces"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--durations=0", name]
    with_it = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=ROOT, env=with_it, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = subprocess.run([sys.executable, "-c", "import pyarrow"], env=with_it, capture_output=True, text=True)
    assert seen.returncode == 0, seen.stderr


def small(path, **changes):
    values = {"model.name": "mlp", "network.num_edges": 2, "network.devices_per_edge": 1, "network.traces": path}
    return Scenario().with_values(values | {key.replace("__", "."): value for key, value in changes.items()})


def test_a_plan_at_a_time_has_the_rates_of_that_time(tmp_path):
    path = saved(tmp_path, rows())
    for at, db in ((0.0, -110.0), (5.0, -100.0)):
        plan = first_round(Experiment.of(small(path, network__start_s=at), dataset=points())).plan
        snr = 10.0 ** (db / 10) * RADIO.transmit_power_w / RADIO.band_noise_w
        assert plan.problem.full_band_rate_bps[0] == pytest.approx(20e6 * np.log2(1 + snr), rel=1e-12)


def test_the_command_line_plans_at_a_time(tmp_path, capsys):
    words = ["network.num_edges=2", "network.devices_per_edge=1", f"network.traces={saved(tmp_path, rows())}", "--json"]

    def printed(at):
        main(["plan", "smoke", *words, "--at", at])
        return capsys.readouterr().out

    early, late = printed("0"), printed("10")
    assert early != late and '"devices"' in early and printed("0") == early
    (tmp_path / "fleet.csv").write_text("device,edge,snr_db\na,0,30\n")
    assert main(["plan", str(tmp_path / "fleet.csv"), "--at", "3"]) == 2
    assert "--at is for scenarios" in capsys.readouterr().err


def test_a_run_follows_its_traces_by_its_own_clock(tmp_path):
    # From far to near within a second: rates rise from round to round.
    time = np.array([0.0, 1.0] * 6)
    device = np.repeat(np.arange(6), 2)
    columns = {"time": time, "device": device, "station": device // 3, "gain_db": np.tile([-110.0, -80.0], 6)}
    scenario = tiny_scenario(network__traces=saved(tmp_path, columns), plan__deadline_s=0.2, plan__scheme="no-pruning")
    rounds, _ = timed_rounds(scenario)
    rates = [timed.planned.full_band_rate_bps.mean() for timed in rounds]
    assert rates == sorted(rates) and rates[-1] > rates[0]


def test_best_rate_follows_traces_and_the_content_of_the_file_is_part_of_the_hash(tmp_path):
    swapped = {
        "time": [0.0] * 4,
        "device": [0, 0, 1, 1],
        "station": [0, 1, 0, 1],
        "gain_db": [-120.0, -90.0, -90.0, -120.0],
    }
    path = saved(tmp_path, {key: np.array(value) for key, value in swapped.items()})
    experiment = Experiment.of(small(path, association__name="best-rate"), dataset=points())
    assert first_round(experiment).plan.problem.edge.tolist() == [1, 0]
    before = small(path).hash
    saved(tmp_path, rows())
    assert small(path).hash != before
    copied = saved(tmp_path, rows(), "copy.npz")
    assert small(copied).hash == small(path).hash


def test_traces_and_mobility_exclude_each_other(tmp_path):
    with pytest.raises(InvalidValue, match=r"network\.mobility must be none with traces"):
        small(saved(tmp_path, rows()), network__mobility="waypoint", network__speed_m_per_s=1.0)
    with pytest.raises(InvalidValue, match=r"network\.speed_m_per_s must be > 0 with a mobility"):
        Scenario().with_("network.mobility", "waypoint")


FCD = """<?xml version="1.0" encoding="UTF-8"?>
<fcd-export xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
    <timestep time="0.00">
        <vehicle id="veh0" x="100.00" y="0.00" angle="90.00" type="car" speed="10.00" pos="5.10" lane="e_0"/>
        <person id="walker" x="300.00" y="0.00" angle="0.00" speed="1.00" pos="1.0" edge="e" slope="0.00"/>
    </timestep>
    <timestep time="1.00">
        <vehicle id="veh0" x="110.00" y="0.00" angle="90.00" type="car" speed="10.00" pos="15.10" lane="e_0"/>
        <person id="walker" x="300.00" y="1.00" angle="0.00" speed="1.00" pos="2.0" edge="e" slope="0.00"/>
    </timestep>
</fcd-export>
"""


def test_sumos_fcd_becomes_traces_by_positions_and_path_loss(tmp_path):
    (tmp_path / "fcd.xml").write_text(FCD)
    time, names, x, y = read_fcd(tmp_path / "fcd.xml")
    assert names.tolist() == ["veh0", "walker", "veh0", "walker"] and x[2] == 110.0 and time.tolist() == [0, 0, 1, 1]
    number = {"veh0": 0, "walker": 1}
    columns = traces_of_positions(
        time,
        [number[name] for name in names.tolist()],
        np.column_stack([x, y]),
        {0: (0.0, 0.0), 1: (400.0, 0.0)},
        RADIO,
    )
    traces = read_traces(saved(tmp_path, columns), NETWORK, RADIO)
    expected = -(128.1 + 37.6 * np.log10(0.1))  # log-distance at 100 m
    assert 10 * np.log10(traces.gains(0.0, RADIO)[0, 0]) == pytest.approx(expected)
    assert 10 * np.log10(traces.gains(1.0, RADIO)[1, 1]) == pytest.approx(
        -(128.1 + 37.6 * np.log10(np.hypot(100, 1) / 1e3))
    )


CITY = """<configuration><input><net-file value="city.net.xml"/><route-files value="city.rou.xml"/></input>
<time><begin value="0"/><end value="60"/></time></configuration>"""
ROUTES = """<routes><flow id="car" begin="0" end="20" number="5" from="A0B0" to="C3D3"/>
<person id="walker" depart="0"><walk from="A0A1" to="A1A2"/></person></routes>"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sumo") is None, reason="needs SUMO (Debian: apt-get install sumo)")
def test_the_recipe_for_sumo_makes_traces_of_sumo_itself(tmp_path, monkeypatch):
    (tmp_path / "city.sumocfg").write_text(CITY)
    (tmp_path / "city.rou.xml").write_text(ROUTES)
    grid = ["netgenerate", "--grid", "--grid.number", "4", "--grid.length", "150", "-o", "city.net.xml"]
    for command in (grid, ["sumo", "-c", "city.sumocfg", "--fcd-output", "fcd.xml"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/radio.md").read_text()
    exec(next(block.content for block in blocks(page) if "read_fcd" in block.content), {})
    with np.load("traces.npz") as file:
        assert len(np.unique(file["device"])) == 6 and np.unique(file["station"]).tolist() == [0, 1]
    plans = []
    for at in (5.0, 40.0):
        scenario = small("traces.npz", network__devices_per_edge=3, network__start_s=at)
        plans.append(first_round(Experiment.of(scenario, dataset=points())).plan)
    assert all((plan.problem.full_band_rate_bps > 0.0).all() for plan in plans)
    assert np.any(plans[0].problem.full_band_rate_bps != plans[1].problem.full_band_rate_bps)


def test_a_broken_fcd_is_one_sentence(tmp_path):
    (tmp_path / "fcd.xml").write_text(FCD.replace("</fcd-export>", ""))
    with pytest.raises(InvalidValue, match="must be SUMO's FCD output"):
        read_fcd(tmp_path / "fcd.xml")
    (tmp_path / "fcd.xml").write_text("<fcd-export></fcd-export>")
    with pytest.raises(InvalidValue, match="must have vehicles or persons"):
        read_fcd(tmp_path / "fcd.xml")


def test_a_killed_run_with_traces_resumes_to_the_same_records(tmp_path):
    columns = {"time": np.array([0.0, 1.0] * 6), "device": np.repeat(np.arange(6), 2)}
    columns |= {"station": columns["device"] // 3, "gain_db": np.tile([-110.0, -80.0], 6)}
    scenario = tiny_scenario(network__traces=saved(tmp_path, columns), plan__deadline_s=0.2)
    whole = list(ap.run(scenario, dataset=blobs(), out=tmp_path / "whole"))
    steps = ap.run(scenario, dataset=blobs(), out=tmp_path / "cut")
    for _ in range(3):
        next(steps)
    steps.close()
    list(ap.run(scenario, dataset=blobs(), out=tmp_path / "cut", resume=True))
    texts = [(tmp_path / name / "records.jsonl").read_text() for name in ("whole", "cut")]
    assert texts[0] == texts[1] and len(whole) > 3
