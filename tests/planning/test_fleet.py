"""Tables become fleets and networks."""

import io

import numpy as np
import pytest

import airprune as ap
from airprune.cli.scenario_argument import scenario_from
from airprune.errors import BadTable
from airprune.planning.fleet import read_fleet, read_network, write_fleet
from support.tiny import blobs, tiny_scenario


def stream(text: str) -> io.BytesIO:
    return io.BytesIO(text.encode())


def test_missing_columns_take_the_papers_values():
    problem = read_fleet(stream("device,edge,snr_db\n1,0,0\n")).problem(bandwidth_hz=20e6)
    assert problem.full_band_rate_bps[0] == pytest.approx(20e6, rel=1e-12)  # 0 dB: one bit per hertz
    assert problem.seconds_per_weight[0] == pytest.approx(40 / 3e9, rel=1e-15)
    assert problem.conv_weights[0] + problem.fc_weights[0] == 43_888


def test_columns_reach_the_problem():
    header = "device,edge,snr_db,cpu_hz,cycles_per_weight,local_iterations,conv_weights,fc_weights,objective_weight"
    rows = ",fixed_bits,extra_seconds\nx,e,10,1e9,5,4,100,200,7,96,0.125\n"
    problem = read_fleet(stream(header + rows)).problem(bandwidth_hz=1e6, deadline_s=1.0)
    assert problem.full_band_rate_bps[0] == pytest.approx(1e6 * np.log2(11), rel=1e-14)
    assert problem.seconds_per_weight[0] == 20 / 1e9
    assert (problem.conv_weights[0], problem.fc_weights[0], problem.objective_weight[0]) == (100, 200, 7)
    assert (problem.fixed_bits[0], problem.extra_seconds[0]) == (96, 0.125)


def test_numbered_edges_are_listed_in_order_and_named_ones_as_they_appear():
    numbered = read_fleet(stream("device,edge,snr_db\na,10,1\nb,9,1\nc,10,1\n"))
    assert list(numbered.edge_names) == [9, 10] and list(numbered.edge) == [1, 0, 1]
    named = read_fleet(stream("device,edge,snr_db\na,south,1\nb,north,1\nc,south,1\n"))
    assert list(named.edge_names) == ["south", "north"] and list(named.edge) == [0, 1, 0]


def test_plan_columns_are_in_the_users_order():
    fleet = read_fleet(stream("device,edge,snr_db\na,2,40\nb,1,50\nc,2,60\n"))
    plan = ap.plan(fleet.problem(bandwidth_hz=20e6))
    columns = fleet.device_columns(plan)
    assert list(columns["device"]) == ["a", "b", "c"] and list(columns["edge"]) == [2, 1, 2]
    assert columns["bandwidth_share"][0] > columns["bandwidth_share"][2]  # the worse channel of edge 2 needs more


def test_a_network_is_read_from_distances():
    network = read_network(stream("device,edge,distance_m,cpu_hz\na,0,120,1e9\nb,1,150,2e9\n"))
    assert list(network.link_distance_m) == [120, 150] and list(network.cpu_hz) == [1e9, 2e9]


def test_a_network_is_read_from_places():
    rows = "a,n,103,4,100,0\nb,s,-100,-5,-100,0\n"
    network = read_network(stream("device,edge,x_m,y_m,edge_x_m,edge_y_m\n" + rows))
    assert list(network.link_distance_m) == [5, 5]
    assert network.flat().link_distance_m[0] == pytest.approx(np.hypot(103, 4), rel=1e-15)


def test_an_edge_with_two_places_is_refused_with_its_line():
    rows = "a,n,103,4,100,0\nb,n,3,4,0,0\n"
    with pytest.raises(BadTable, match="line 3: its edge has another position"):
        read_network(stream("device,edge,x_m,y_m,edge_x_m,edge_y_m\n" + rows))


MEASURED = (
    "device,edge,rate_mbps,seconds_per_step,fc_weights\na,n,250,0.001,10000\nb,n,200,,10000\nc,s,180,0.002,10000\n"
)


def test_measured_rates_and_steps_stand_for_snr_and_clock():
    problem = read_fleet(stream(MEASURED)).problem(bandwidth_hz=5e6)
    assert problem.full_band_rate_bps.tolist() == [250e6, 200e6, 180e6]
    whole_model_s = problem.seconds_per_weight * (18_720 + 10_000)
    assert whole_model_s[[0, 2]] == pytest.approx([0.002, 0.004], rel=1e-12)  # two iterations of one step each
    assert problem.seconds_per_weight[1] == pytest.approx(40 / 3e9, rel=1e-15)  # not measured: the clock's


def test_a_distance_gives_the_snr_of_the_papers_radio():
    problem = read_fleet(stream("device,edge,distance_m\na,0,130\n")).problem(bandwidth_hz=20e6)
    snr_db = 28.0 - (128.1 + 37.6 * np.log10(0.130)) + 110.0
    assert problem.full_band_rate_bps[0] == pytest.approx(20e6 * np.log2(1 + 10 ** (snr_db / 10)), rel=1e-9)


@pytest.mark.parametrize(
    "table", ["device,edge,snr_db\na,n,43\nb,s,41\n", MEASURED, "device,edge,distance_m\n1,1,130\n"]
)
def test_a_plan_that_was_written_is_the_same_fleet_again(tmp_path, table):
    fleet = read_fleet(stream(table))
    plan = ap.plan(fleet.problem(bandwidth_hz=20e6))
    write_fleet(fleet, tmp_path / "plan.csv", plan)
    again = read_fleet(tmp_path / "plan.csv")
    assert again.ignored == () and again.given == fleet.given
    np.testing.assert_array_equal(ap.plan(again.problem(bandwidth_hz=20e6)).pruning_ratio, plan.pruning_ratio)
    network, before = read_network(tmp_path / "plan.csv"), read_network(stream(table))
    assert network.device_names == before.device_names == tuple(map(str, fleet.device))
    np.testing.assert_array_equal(network.edge, before.edge)
    np.testing.assert_array_equal(network.link_distance_m, before.link_distance_m)


def test_a_run_has_the_names_edges_rates_and_steps_of_the_fleet():
    network = read_network(stream(MEASURED), batch_samples=16)
    assert (network.device_names, network.edge_names) == (("a", "b", "c"), ("n", "s"))
    assert network.full_band_rate_bps.tolist() == [250e6, 200e6, 180e6]
    np.testing.assert_array_equal(network.seconds_per_sample, [0.001 / 16, np.nan, 0.002 / 16])


def test_a_planned_fleet_trains(tmp_path):
    fleet = read_fleet(stream("device,edge,snr_db\na,north,43\nb,north,42\nc,south,41\n"))
    write_fleet(fleet, tmp_path / "plan.csv", ap.plan(fleet.problem(bandwidth_hz=20e6)))
    scenario = tiny_scenario(network__table=str(tmp_path / "plan.csv"))
    edge_round = next(ap.run(scenario, dataset=blobs()))
    assert edge_round["device"] == [0, 1, 2] and edge_round["edge"] == [0, 0, 1]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("device,edge,snr\na,0,1\n", r"line 1: missing snr_db .* snr \(did you mean snr_db\?\)"),
        ("device,edge,rate_mbps,full_band_rate_bps\na,0,1,1\n", "are the same quantity; give one"),
        ("device,edge,rate_mbps\na,0,1\nb,0,\n", "line 3: rate_mbps is empty"),
    ],
)
def test_a_fleet_without_links_says_where(table, words):
    with pytest.raises(BadTable, match=words):
        read_fleet(stream(table))


def test_a_run_says_which_columns_of_a_fleet_it_leaves_alone(tmp_path, capsys):
    (tmp_path / "fleet.csv").write_text(MEASURED)
    scenario_from("smoke", [], fleet=tmp_path / "fleet.csv")
    assert "fc_weights of" in capsys.readouterr().err
