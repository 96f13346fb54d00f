import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from airprune.errors import InvalidValue, UnknownName
from airprune.randomness import rng_for
from airprune.wireless.network import (
    PAPER_CPU_HZ,
    PAPER_FLAT_RING,
    PAPER_HFL_RING,
    Disc,
    LogUniform,
    Network,
    Ring,
    network_from_columns,
    place_flat,
    place_hierarchical,
)
from support.each import each

ROUNDING_M = 1e-9  # adding an edge's position to an offset rounds at 1e-13 m; 1e-9 m is far below any radio effect


def distances(placement, count=4000):
    return np.hypot(*placement.offsets_m(rng_for(0, "test"), count).T)


def test_the_paper_network_is_five_edges_with_five_devices_at_3_ghz():
    network = place_hierarchical(seed=0)
    assert (network.num_edges, network.num_devices) == (5, 25)
    assert np.bincount(network.edge).tolist() == [5] * 5
    assert (network.cpu_hz == 3_000_000_000).all()


def test_ring_devices_stay_inside_the_ring():
    network = place_hierarchical(devices_per_edge=200, seed=1)
    assert network.link_distance_m.min() >= PAPER_HFL_RING.inner_m - ROUNDING_M
    assert network.link_distance_m.max() <= PAPER_HFL_RING.outer_m + ROUNDING_M


def test_flat_devices_stay_inside_the_clouds_ring():
    network = place_flat(num_devices=500, seed=1)
    assert network.num_edges == 1
    assert network.link_distance_m.min() >= PAPER_FLAT_RING.inner_m - ROUNDING_M
    assert network.link_distance_m.max() <= PAPER_FLAT_RING.outer_m + ROUNDING_M


# p > 0.01: with a fixed seed these either always pass or point at a wrong distribution.
def test_a_distance_uniform_ring_has_uniform_distances():
    assert stats.kstest(distances(Ring(100, 300)), stats.uniform(100, 200).cdf).pvalue > 0.01


def test_an_area_uniform_ring_has_uniform_squared_distances():
    squared = distances(Ring(100, 300, uniform_in="area")) ** 2
    assert stats.kstest(squared, stats.uniform(100**2, 300**2 - 100**2).cdf).pvalue > 0.01


def test_a_disc_is_area_uniform_outside_its_minimum_distance():
    found = distances(Disc(50))
    assert found.min() >= 1.0 - ROUNDING_M
    assert stats.kstest(found**2, stats.uniform(1, 50**2 - 1).cdf).pvalue > 0.01


def test_angles_are_uniform_and_unrelated_to_distance():
    x, y = Ring(1, 2).offsets_m(rng_for(0, "test"), 4000).T
    angle = np.arctan2(y, x)
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 0.01
    assert stats.spearmanr(angle, np.hypot(x, y)).pvalue > 0.01


def test_a_ring_of_no_width_puts_every_device_at_its_radius():
    assert distances(Ring(130, 130), 10) == pytest.approx(130.0, rel=1e-15, abs=0)  # cos^2 + sin^2


@given(st.integers(1, 20), st.integers(0, 20))
def test_adding_later_devices_moves_nobody(count, more):
    few, many = (place_flat(num_devices=n, cpu_hz=(1e9, 3e9), seed=3) for n in (count, count + more))
    assert np.array_equal(few.device_position_m, many.device_position_m[:count])
    assert np.array_equal(few.cpu_hz, many.cpu_hz[:count])


def test_growing_one_edge_leaves_the_other_edges_as_they_were():
    small = place_hierarchical(num_edges=3, devices_per_edge=[2, 3, 4], cpu_hz=(1e9, 3e9), seed=3)
    grown = place_hierarchical(num_edges=3, devices_per_edge=[7, 3, 4], cpu_hz=(1e9, 3e9), seed=3)
    assert np.array_equal(small.device_position_m[:2], grown.device_position_m[:2])
    assert np.array_equal(small.device_position_m[2:], grown.device_position_m[7:])
    assert np.array_equal(small.cpu_hz[2:], grown.cpu_hz[7:])


def test_cpu_draws_do_not_depend_on_the_placement():
    near = place_hierarchical(placement=Disc(30), cpu_hz=(1e9, 3e9), seed=5)
    far = place_hierarchical(placement=Ring(118, 152), cpu_hz=(1e9, 3e9), seed=5)
    assert np.array_equal(near.cpu_hz, far.cpu_hz)
    assert near.cpu_hz.min() >= 1e9
    assert near.cpu_hz.max() <= 3e9
    assert len(set(near.cpu_hz)) == 25


def test_log_uniform_cpus_have_uniform_logarithms():
    network = place_hierarchical(num_edges=400, devices_per_edge=5, cpu_hz=LogUniform(1e9, 4e9), seed=0)
    assert stats.kstest(np.log2(network.cpu_hz / 1e9), stats.uniform(0, 2).cdf).pvalue > 0.01


def test_cpu_speed_is_unrelated_to_distance():
    network = place_hierarchical(num_edges=1000, devices_per_edge=1, cpu_hz=(1e9, 3e9), seed=0)
    assert stats.spearmanr(network.cpu_hz, network.link_distance_m).pvalue > 0.01  # one stream for both: 0


def test_a_list_of_two_cpus_is_two_devices_and_a_tuple_is_a_range():
    assert place_flat(num_devices=2, cpu_hz=[1e9, 3e9], seed=0).cpu_hz.tolist() == [1e9, 3e9]
    drawn = place_flat(num_devices=2, cpu_hz=(1e9, 3e9), seed=0).cpu_hz
    assert ((drawn > 1e9) & (drawn < 3e9)).all()


def test_seeds_give_different_places():
    assert not np.array_equal(place_flat(seed=0).device_position_m, place_flat(seed=1).device_position_m)


def test_edges_may_serve_different_numbers_of_devices_or_none():
    network = place_hierarchical(num_edges=3, devices_per_edge=[1, 0, 4], seed=0)
    assert network.edge.tolist() == [0, 2, 2, 2, 2]
    assert network.num_edges == 3


def test_edges_stand_on_a_circle_around_the_cloud():
    network = place_hierarchical(num_edges=4, edge_distance_m=500, seed=0)
    assert np.hypot(*network.edge_position_m.T) == pytest.approx(500, rel=1e-15, abs=0)  # cos^2 + sin^2
    assert network.edge_position_m[1] == pytest.approx([0, 500], abs=ROUNDING_M)


def test_flattening_keeps_devices_and_measures_to_the_cloud():
    network = Network(
        cloud_position_m=[0, 0],
        edge_position_m=[[30, 40], [0, -100]],
        device_position_m=[[30, 0], [0, -5]],
        edge=[0, 1],
        cpu_hz=2e9,
    )
    flat = network.flat()
    assert network.link_distance_m.tolist() == [40, 95]
    assert flat.link_distance_m.tolist() == [30, 5]
    assert flat.num_edges == 1
    assert flat.edge.tolist() == [0, 0]
    assert flat.device_names == network.device_names == ("0", "1")
    assert np.array_equal(flat.cpu_hz, network.cpu_hz)


def test_a_network_cannot_be_changed_by_accident():
    network = place_flat(num_devices=2, seed=0)
    with pytest.raises(ValueError, match="read-only"):
        network.cpu_hz[0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        network.topology = "hierarchical"


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=10))
def test_a_distance_column_becomes_the_link_distance_to_the_last_bit(distance_m):
    count = len(distance_m)
    columns = {"device": range(count), "edge": [i % 3 for i in range(count)], "distance_m": distance_m}
    assert network_from_columns(columns).link_distance_m.tolist() == distance_m
    assert network_from_columns(columns, topology="flat").link_distance_m.tolist() == distance_m


def test_a_distance_table_flattens_to_the_long_link():
    columns = {"device": ["a"], "edge": ["east"], "distance_m": [300.0]}
    assert network_from_columns(columns, edge_distance_m=400.0).flat().link_distance_m.tolist() == [500.0]


def test_a_position_table_with_named_edges():
    network = network_from_columns(
        {"device": ["a", "b", "c"], "edge": ["west", "east", "west"], "x_m": [3, 0, 0], "y_m": [4, 1, 0]},
        edge_position_m={"west": (0, 0), "east": (0, 11)},
    )
    assert network.edge_names == ("east", "west")
    assert network.edge.tolist() == [1, 0, 1]
    assert network.link_distance_m.tolist() == [5, 10, 0]
    assert network.cpu_hz.tolist() == [PAPER_CPU_HZ] * 3
    assert network.device_names == ("a", "b", "c")


def test_edge_numbers_keep_their_numeric_order():
    columns = {"device": [1, 2, 3], "edge": [10, 2, 2], "distance_m": [1, 2, 3], "cpu_hz": [1e9, 2e9, 3e9]}
    network = network_from_columns(columns)
    assert network.edge_names == ("2", "10")
    assert network.edge.tolist() == [1, 0, 0]
    assert network.cpu_hz.tolist() == [1e9, 2e9, 3e9]


TABLE = {"device": ["a", "b"], "edge": [0, 1], "distance_m": [10.0, 20.0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge": None}, "must have device, edge, distance_m, got no edge"),
        ({"distance_m": None}, "must have device, edge, x_m, y_m, got no x_m, y_m"),
        ({"edge": [0]}, "equally long"),
        ({"edge": [0.0, math.nan]}, "names or whole numbers"),
        ({"device": ["a", "a"]}, "different names"),
        ({"distance_m": [1.0, -1.0]}, "columns.distance_m must be ≥ 0, got -1 at entry 1"),
        ({"distance_m": [1.0, math.nan]}, "got nan at entry 1"),
        ({"cpu_hz": [1e9, 0]}, "columns.cpu_hz"),
        ({"distance_m": None, "x_m": [0, 0], "y_m": [0, 0]}, "must be given with x_m, y_m"),
    ],
)
def test_a_bad_table_says_which_column_and_why(change, message):
    columns = {name: values for name, values in {**TABLE, **change}.items() if values is not None}
    with pytest.raises(InvalidValue, match=message):
        network_from_columns(columns)


def test_every_edge_of_the_table_needs_its_position():
    with pytest.raises(InvalidValue, match=r"edge_position_m must have every edge of the table, got none for \[1\]"):
        network_from_columns(TABLE, edge_position_m={0: (0, 0)})


@each(
    "make",
    [
        lambda: Ring(10, 5),
        lambda: Ring(-1, 5),
        lambda: Ring(1, math.inf),
        lambda: Disc(0.5),
        lambda: Disc(math.nan),
        lambda: place_flat(num_devices=0, seed=0),
        lambda: place_flat(num_devices=2, cpu_hz=0.0, seed=0),
        lambda: place_flat(num_devices=2, cpu_hz=(3e9, 1e9), seed=0),
        lambda: place_flat(num_devices=3, cpu_hz=(1e9, 2e9, 3e9), seed=0),
        lambda: place_flat(num_devices=2, cpu_hz=[1e9, 2e9, 3e9], seed=0),
        lambda: place_flat(seed=-1),
        lambda: place_hierarchical(num_edges=0, seed=0),
        lambda: place_hierarchical(num_edges=2, devices_per_edge=[1, 2, 3], seed=0),
        lambda: place_hierarchical(num_edges=2, devices_per_edge=[0, 0], seed=0),
        lambda: place_hierarchical(edge_distance_m=math.nan, seed=0),
        lambda: dataclasses.replace(place_flat(seed=0), edge=np.ones(25, dtype=int)),
        lambda: dataclasses.replace(place_hierarchical(seed=0), edge=np.full(25, 5)),
        lambda: dataclasses.replace(place_hierarchical(seed=0), edge=np.zeros(24, dtype=int)),
        lambda: dataclasses.replace(place_hierarchical(seed=0), device_position_m=np.full((25, 2), np.nan)),
        lambda: dataclasses.replace(place_hierarchical(seed=0), edge_position_m=np.zeros(10)),
    ],
)
def test_misuse_raises(make):
    with pytest.raises(InvalidValue):
        make()


def test_unknown_choices_list_the_known_ones():
    with pytest.raises(UnknownName, match="did you mean 'area'"):
        Ring(1, 2, uniform_in="areas")
    with pytest.raises(UnknownName, match="hierarchical, flat"):
        dataclasses.replace(place_flat(seed=0), topology="star")
