"""Tables become fleets and networks."""

import io

import numpy as np
import pytest

import airprune as ap
from airprune.errors import BadTable
from airprune.fleet import read_fleet, read_network


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
    with pytest.raises(BadTable, match="line 3: edge n stands at"):
        read_network(stream("device,edge,x_m,y_m,edge_x_m,edge_y_m\n" + rows))
