"""Charged downlinks: hand values, free ones as before, sums, every topology, and what is late."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import airprune as ap
from airprune.engines.serial import SerialEngine
from airprune.errors import InvalidValue, UnknownName
from airprune.methods.selection.base import Candidates, known_rates
from airprune.methods.topology import TOPOLOGIES
from airprune.planning.deadline import auto_deadline_s
from airprune.randomness import rng_for
from airprune.results.findings import Arm, findings
from airprune.results.traffic import link_bits
from airprune.rounds.downlink import downlink_of
from airprune.rounds.edge import select_and_plan
from airprune.rounds.experiment import Experiment
from airprune.rounds.planning_context import time_beside_s
from airprune.rounds.records import EdgeRecord, record_from
from airprune.runs.driver import InProcess
from airprune.simulation import run_rounds
from airprune.studies.league.finished import statistics_of
from airprune.studies.write_report import write_report
from airprune.wireless.channel import Radio, downlink_rate_bps, full_band_rates
from airprune.wireless.latency import broadcast_time_s, receive_energy_j, unicast_time_s
from support.tiny import blobs, tiny_scenario

CLOSED = 1e-12  # closed forms in float64
TINY_BITS = 64 * (12 * 64 + 64 * 4)
CHARGED = ("broadcast", "unicast")
each = pytest.mark.parametrize


def ran(**changes):
    return list(ap.run(tiny_scenario(**changes), dataset=blobs()))


def edges_of(records):
    return [record for record in records if record["kind"] == "edge"]


# The formulas


def test_a_broadcast_goes_at_the_rate_of_each_edges_slowest_device():
    time_s = broadcast_time_s(6e6, [3e6, 2e6, 12e6], [0, 0, 1], num_edges=3)
    assert time_s.tolist() == [3.0, 0.5, 0.0]  # 6 Mbit at 2 and at 12 Mbit/s; no devices


def test_unicast_takes_the_sum_of_all_messages_over_the_whole_bandwidth():
    time_s = unicast_time_s([6e6, 2e6, 12e6], [3e6, 2e6, 12e6], [0, 0, 1], num_edges=3)
    assert time_s.tolist() == [3.0, 1.0, 0.0]  # 2 + 1 s; 1 s


def test_unicast_takes_as_long_as_bandwidth_shares_that_let_all_devices_finish_together():
    bits, rate_bps = np.array([6e6, 2e6, 5e6]), np.array([3e6, 2e6, 1e6])
    together_s = unicast_time_s(bits, rate_bps, [0, 0, 0], num_edges=1)[0]
    shares = bits / rate_bps / together_s
    assert shares.sum() == pytest.approx(1.0, rel=CLOSED)
    np.testing.assert_allclose(bits / (shares * rate_bps), together_s, rtol=CLOSED)


def test_a_stations_power_scales_the_snr_of_the_reciprocal_channel():
    radio = Radio(bandwidth_hz=1e6, transmit_power_w=0.5, station_power_w=2.5)
    assert downlink_rate_bps([2e6], radio)[0] == pytest.approx(4e6, rel=CLOSED)  # SNR 3 → 15
    assert downlink_rate_bps([2e6], replace(radio, station_power_w=None))[0] == 2e6


def test_receiving_for_two_seconds_at_a_third_of_a_watt_takes_two_thirds_of_a_joule():
    assert receive_energy_j([2.0, 0.0], receive_power_w=1 / 3).tolist() == pytest.approx([2 / 3, 0.0])


@each("wrong", [{"downlink": "multicast"}, {"station_power_w": 0.0}, {"receive_power_w": -1.0}])
def test_a_radio_refuses_a_downlink_that_makes_no_sense(wrong):
    with pytest.raises((InvalidValue, UnknownName), match=next(iter(wrong))):
        Radio(**wrong)


# One edge, two devices, known rates


def round_of_two(rates=(3e6, 2e6), **changes):
    """(context, planned round, candidates) of one edge with two devices of these rates."""
    scenario = tiny_scenario(network__num_edges=1, network__devices_per_edge=2, **changes)
    experiment = Experiment.of(scenario, dataset=blobs())
    device = np.arange(2)
    candidates = Candidates(
        device=device,
        edge=np.zeros(2, dtype=np.int64),
        rates_bps=known_rates(device, np.array(rates)),
        num_samples=np.full(2, 120),
        round_index=0,
        rng=rng_for(0, "selection", 0),
    )
    planned = select_and_plan(experiment.context, candidates, np.full(2, 3e9), 0)
    return experiment.context, planned, candidates


def test_two_devices_get_one_broadcast_and_listen_to_all_of_it():
    down = downlink_of(*round_of_two(radio__downlink="broadcast"))
    assert down.bits.tolist() == [TINY_BITS]
    assert down.time_s.tolist() == [TINY_BITS / 2e6]
    assert down.receive_s.tolist() == [TINY_BITS / 2e6] * 2


def test_two_devices_get_their_own_models_in_turn():
    down = downlink_of(*round_of_two(radio__downlink="unicast", plan__scheme="no-pruning"))
    assert down.bits.tolist() == [2 * TINY_BITS]
    assert down.time_s.tolist() == pytest.approx([TINY_BITS / 3e6 + TINY_BITS / 2e6], rel=CLOSED)
    assert down.receive_s.tolist() == pytest.approx([TINY_BITS / 3e6, TINY_BITS / 2e6], rel=CLOSED)


def test_a_pruned_device_gets_its_sub_model_if_the_station_knows_it():
    pruned = {"radio__downlink": "unicast", "plan__deadline_s": 0.035, "masking__name": "probe"}
    context, planned, candidates = round_of_two(**pruned, masking__probe__importance="magnitude")
    assert (planned.keep < context.shape.prunable_weights).any()
    kept_bits = 64.0 * (context.shape.fixed_weights + planned.keep)
    down = downlink_of(context, planned, candidates)
    assert down.bits.tolist() == [kept_bits.sum()] and kept_bits.sum() < 2 * TINY_BITS
    assert down.receive_s.tolist() == pytest.approx((kept_bits / [3e6, 2e6]).tolist(), rel=CLOSED)


@each(
    "masking",
    [{"masking__probe__importance": "taylor"}, {"masking__probe__count_probe": True}, {"masking__name": "frozen"}],
)
def test_a_device_that_needs_all_weights_gets_the_whole_model(masking):
    context, planned, candidates = round_of_two(radio__downlink="unicast", plan__deadline_s=0.035, **masking)
    assert (planned.keep < context.shape.prunable_weights).any()
    assert downlink_of(context, planned, candidates).bits.tolist() == [2 * TINY_BITS]


@each("downlink", CHARGED)
def test_control_variates_go_down_beside_the_model(downlink):
    options = {"radio__downlink": downlink, "plan__scheme": "no-pruning"}
    plain = downlink_of(*round_of_two(**options))
    scaffold = downlink_of(*round_of_two(objective__name="scaffold", **options))
    assert scaffold.bits.tolist() == (2 * plain.bits).tolist()


def test_only_devices_that_fetch_a_model_count():
    context, planned, candidates = round_of_two(radio__downlink="broadcast")
    down = downlink_of(context, planned, candidates, fetches=np.array([True, False]))
    assert down.time_s.tolist() == [TINY_BITS / 3e6] and down.receive_s.tolist() == [TINY_BITS / 3e6, 0.0]
    none = downlink_of(context, planned, candidates, fetches=np.zeros(2, dtype=bool))
    assert (none.time_s.tolist(), none.bits.tolist()) == ([0.0], [0.0])


# Whole runs


def test_a_free_downlink_leaves_hash_records_and_no_trace():
    plain = tiny_scenario()
    assert tiny_scenario(radio__downlink="none").hash == plain.hash
    assert tiny_scenario(radio__downlink="broadcast").hash != plain.hash
    records = ran(radio__station_power_dbm=40.0, radio__receive_power_w=9.0)  # of no effect where nothing is charged
    assert records == ran()
    assert not any("downlink_s" in record or "downlink_bits" in record for record in records)


@each("downlink", CHARGED)
def test_a_charged_downlink_changes_times_and_energies_alone(downlink):
    free, charged = ran(), ran(radio__downlink=downlink)
    costs = {"edge_latency_s", "energy_j", "device_energy_j", "latency_s", "time_s"}
    new = {"downlink_s", "downlink_bits", "station_energy_j", "backhaul_bits"}
    for before, after in zip(free, charged, strict=True):
        assert {key for key in before if before[key] != after[key]} <= costs
        assert set(after) - set(before) == new & set(after)


@each("downlink", CHARGED)
@each("topology", list(TOPOLOGIES))
def test_totals_are_the_sums_of_the_rounds(topology, downlink):
    records = ran(topology__name=topology, radio__downlink=downlink, radio__station_power_dbm=30.0)
    rounds, last = edges_of(records), records[-1]
    if topology == "lan":  # devices have the average themselves; the cloud's model comes back at the end
        assert all(record["downlink_s"] == [0.0, 0.0] for record in rounds) and last["downlink_bits"] > 0.0
        return
    assert last["downlink_bits"] == pytest.approx(sum(record["downlink_bits"] for record in rounds), rel=CLOSED)
    assert last["downlink_s"] == pytest.approx(sum(max(record["downlink_s"]) for record in rounds), rel=CLOSED)
    sending_s = sum(sum(record["downlink_s"]) for record in rounds)
    assert last["station_energy_j"] == pytest.approx(1.0 * sending_s, rel=CLOSED)  # 30 dBm are 1 W
    assert last["station_energy_j"] == pytest.approx(sum(record["station_energy_j"] for record in rounds), rel=CLOSED)
    assert last["energy_j"] == pytest.approx(sum(record["energy_j"] for record in rounds), rel=CLOSED)


@each("downlink", CHARGED)
@each("topology", [name for name in TOPOLOGIES if name not in ("fog", "lan", "ensemble", "tree")])
def test_a_global_round_lasts_as_long_as_the_slowest_edges_downlinks_waits_and_links(topology, downlink):
    rate = {} if topology == "flat" else {f"topology__{topology}__backhaul_bps": 1e6}
    records = ran(topology__name=topology, radio__downlink=downlink, rounds__global_rounds=1, **rate)
    waits_s = np.sum([record["edge_latency_s"] for record in edges_of(records)], axis=0)
    link_s = 2 * TINY_BITS / 1e6 if rate else 0.0
    assert records[-1]["time_s"] == pytest.approx(waits_s.max() + link_s, rel=CLOSED)
    if rate:
        assert records[-1]["backhaul_bits"] == 2 * 2 * TINY_BITS  # two edges, up and down


def test_a_run_broadcasts_the_whole_model_at_the_slowest_rate_and_devices_pay_for_listening():
    scenario = tiny_scenario(radio__downlink="broadcast", radio__fading="rayleigh", radio__receive_power_w=2.0)
    free = edges_of(ran(radio__fading="rayleigh"))
    network, radio = scenario.build_network(), scenario.build_radio()
    for index, (before, record) in enumerate(zip(free, edges_of(ap.run(scenario, dataset=blobs())), strict=True)):
        rate_bps = full_band_rates(network, radio, seed=5, round_index=index)
        slowest_s = [TINY_BITS / rate_bps[network.edge == k].min() for k in (0, 1)]
        assert record["downlink_s"] == pytest.approx(slowest_s, rel=CLOSED)
        assert record["downlink_bits"] == 2 * TINY_BITS
        more_j = np.array(record["device_energy_j"]) - np.array(before["device_energy_j"])
        np.testing.assert_allclose(more_j, 2.0 * np.array(slowest_s)[record["edge"]], rtol=1e-9)  # of a difference
        waits_s = np.array(record["edge_latency_s"]) - np.array(record["downlink_s"])
        np.testing.assert_allclose(waits_s, before["edge_latency_s"], rtol=1e-9)


def test_blocked_devices_get_no_model():
    slow = {"network__cpu_hz": 1e6, "network__cpu_hz_max": 1e7, "plan__cycles_per_weight": 80.0}
    records = edges_of(ran(radio__downlink="unicast", plan__deadline_s=0.003, **slow))
    blocked = sum(record["fate"].count("blocked") for record in records)
    assert blocked > 0
    for record in records:
        gets = [fate != "blocked" for fate in record["fate"]]
        assert record["downlink_bits"] <= sum(gets) * TINY_BITS
        assert all(joules == 0.0 for joules, on in zip(record["device_energy_j"], gets, strict=True) if not on)


def test_a_downlink_longer_than_the_deadline_makes_no_edge_late():
    records = ran(radio__downlink="broadcast", radio__station_power_dbm=-80.0, plan__deadline_s=1.0)
    rounds = edges_of(records)
    assert min(rounds[0]["downlink_s"]) > 1.0  # else the claim is empty
    assert {status for record in rounds for status in record["edge_status"]} == {"ok"}
    found = statistics_of([record_from(record) for record in records], deadline_s=1.0)
    assert found.late_share == 0.0


def test_an_edge_that_waits_too_long_is_late_with_a_charged_downlink_too():
    free = ran(plan__scheme="no-pruning", plan__deadline_s=0.0005)
    charged = ran(plan__scheme="no-pruning", plan__deadline_s=0.0005, radio__downlink="broadcast")
    shares = [
        statistics_of([record_from(r) for r in records], deadline_s=0.0005).late_share for records in (free, charged)
    ]
    assert shares[0] == shares[1] > 0.0


# Topologies


def test_tiers_send_to_the_devices_that_begin_a_round():
    tiers = {"topology__name": "tiers", "topology__tiers__tiers": 2, "plan__scheme": "no-pruning"}
    # With the deadline of the slowest device, all take more than half of it: they begin in every second round.
    records = edges_of(ran(**tiers, radio__downlink="unicast", plan__deadline_s=1e-4, rounds__edge_rounds=4))
    assert {lag for record in records for lag in record["lag"]} == {1}
    sent = [record["downlink_bits"] for record in records]
    assert sent == [6 * TINY_BITS, 0.0] * 4


def test_a_tree_charges_every_link_both_ways_once_per_round_of_its_upper_end():
    options = {"topology__name": "tree", "topology__tree__rounds": (3,), "rounds__global_rounds": 1}
    rates = {"topology__tree__backhaul_bps": 1e6, "network__num_edges": 4}
    free = ran(**options, **rates)[-1]
    records = ran(**options, **rates, radio__downlink="broadcast")
    down_s = sum(max(record["downlink_s"]) for record in edges_of(records))
    links_s = (3 + 1) * TINY_BITS / 1e6  # three times below the regions, once below the cloud
    assert records[-1]["time_s"] <= free["time_s"] + down_s + links_s + 1e-12
    assert records[-1]["time_s"] >= free["time_s"] + links_s
    assert records[-1]["backhaul_bits"] == 2 * (3 * 4 + 2) * TINY_BITS
    nodes = [record for record in records if record["kind"] == "node"]
    assert [(record["uploaded_bits"], record["downlink_bits"]) for record in nodes] == [(4 * TINY_BITS,) * 2] * 3


def test_nothing_travels_above_the_members_of_an_ensemble():
    options = {"topology__name": "ensemble", "network__num_edges": 4, "topology__ensemble__backhaul_bps": 1e6}
    alone = ran(**options, radio__downlink="broadcast", rounds__global_rounds=1)[-1]
    assert alone["backhaul_bits"] == 0.0
    pairs = ran(**options, topology__ensemble__members=2, radio__downlink="broadcast", rounds__global_rounds=1)[-1]
    assert pairs["backhaul_bits"] == 2 * 4 * TINY_BITS
    assert pairs["time_s"] == pytest.approx(alone["time_s"] + 2 * TINY_BITS / 1e6, rel=CLOSED)


def test_the_averaging_edge_sends_the_model_back_to_the_others():
    options = {"topology__name": "fog", "rounds__global_rounds": 1, "topology__fog__backhaul_bps": 1e6}
    free, charged = (ran(**options, radio__downlink=downlink)[-1] for downlink in ("none", "broadcast"))
    edge_down_s = charged["downlink_s"]
    back_s = TINY_BITS / 1e6 + 2 * 685.0 / 299_792_458
    assert charged["latency_s"] == pytest.approx(
        free["latency_s"] + edge_down_s + back_s, rel=1e-3
    )  # ends of two edges
    assert charged["backhaul_bits"] == 2 * free["backhaul_bits"] == 2 * TINY_BITS


@each(("downlink", "messages"), [("broadcast", 1), ("unicast", 2)])
def test_the_cloud_sends_to_one_device_of_each_lan_which_passes_the_model_on(downlink, messages):
    options = {"topology__name": "lan", "rounds__global_rounds": 1, "rounds__edge_rounds": 1}
    free, charged = (ran(**options, radio__downlink=way)[-1] for way in ("none", downlink))
    scenario = tiny_scenario(**options)
    rate_bps = full_band_rates(scenario.build_network().flat(), scenario.build_radio(), seed=5)
    each_s = TINY_BITS / np.array([rate_bps[:3].max(), rate_bps[3:].max()])
    down_s = each_s.max() if downlink == "broadcast" else each_s.sum()
    assert charged["downlink_s"] == pytest.approx(down_s, rel=CLOSED)
    assert charged["downlink_bits"] == messages * TINY_BITS
    assert charged["latency_s"] == pytest.approx(free["latency_s"] + down_s + TINY_BITS / 100e6, rel=1e-9)
    assert charged["d2d_bits"] == pytest.approx(free["d2d_bits"] + 4 * TINY_BITS, rel=CLOSED)


@each("topology", [name for name in TOPOLOGIES if name not in ("flat", "lan")])
def test_every_topology_with_a_backhaul_has_a_rate_for_it(topology):
    changes = {"topology__name": topology, "network__num_edges": 4}
    if topology == "ensemble":
        changes["topology__ensemble__members"] = 2
    free, slow = (ran(**changes, **{f"topology__{topology}__backhaul_bps": rate})[-1] for rate in (1e12, 1e5))
    assert slow["time_s"] > free["time_s"] + TINY_BITS / 1e5


# Links, deadlines that tune themselves, and what a comparison says


def test_recorded_bits_take_precedence_over_derived_ones():
    records = [record_from(record) for record in ran(radio__downlink="broadcast")]
    links = link_bits(records, model_bits=TINY_BITS)
    assert links.downlink == 2 * 4 * TINY_BITS  # two edges, four edge rounds, where six devices would get 24 models
    assert links.backhaul == 2 * 2 * 2 * TINY_BITS  # two edges, two global rounds, both ways


TUNED = {
    "plan__scheme": "air-budget",
    "compression__name": "ladder",
    "plan__deadline_s": "auto",
    "network__num_edges": 1,
    "network__devices_per_edge": 2,
}


def test_a_round_that_takes_longer_anyway_affords_more_bits():
    from airprune.rounds.planning_context import plan_problem

    context, _, candidates = round_of_two(**{key: value for key, value in TUNED.items() if "network" not in key})
    problem = plan_problem(context, candidates, np.full(2, 3e9), context.charges(0))
    plan = context.method.scheme.plan
    deadlines_s = [auto_deadline_s(problem, plan, 2.0, beside_s=beside_s) for beside_s in (0.0, 0.05, 0.5)]
    assert deadlines_s == sorted(deadlines_s) and deadlines_s[0] < deadlines_s[-1]


def test_a_deadline_that_tunes_itself_sees_the_downlink_and_its_share_of_the_backhaul():
    options = {key: value for key, value in TUNED.items() if "network" not in key}
    context, _, candidates = round_of_two(**options)
    assert time_beside_s(context, candidates) == 0.0
    wired = {"topology__hierarchical__backhaul_bps": 1e6, "rounds__edge_rounds": 4}
    context, _, candidates = round_of_two(**options, **wired, radio__downlink="broadcast")
    down_s, link_s = TINY_BITS / 2e6, 2 * TINY_BITS / 1e6 / 4
    np.testing.assert_allclose(time_beside_s(context, candidates), down_s + link_s, rtol=CLOSED)
    context, _, candidates = round_of_two(**options, **wired, radio__downlink="unicast")
    down_s = TINY_BITS / 2e6 + TINY_BITS / 3e6
    np.testing.assert_allclose(time_beside_s(context, candidates), down_s + link_s, rtol=CLOSED)


def test_the_share_of_a_deep_trees_links_counts_every_level():
    tree = TOPOLOGIES["tree"](nodes=(2,), rounds=(3,), rate_bps=(1e6, 2e6)).build(np.array([5, 5, 5, 5]))
    np.testing.assert_allclose(tree.link_share_s(6e6), 3.0 / 5 + 6.0 / 15, rtol=CLOSED)


@each(
    ("downlinks", "words"),
    [
        (("none", "none"), "with the downlink free, and the backhaul too unless its rate is set"),
        (("unicast", "unicast"), "with the downlink charged (unicast), and the backhaul both ways"),
        (("none", "broadcast"), "with the downlink free in some variants and charged in others"),
    ],
)
def test_a_comparison_says_which_links_are_charged(downlinks, words):
    arms = [
        Arm(name=f"arm {n}", scenario=tiny_scenario(radio__downlink=way), accuracy={0: 0.5}, time_s=1.0 + n)
        for n, way in enumerate(downlinks)
    ]
    assert words in findings(arms)[-1]


# Resuming and engines


@each("downlink", CHARGED)
def test_a_resumed_run_with_a_charged_downlink_repeats_every_byte(tmp_path, downlink):
    scenario = tiny_scenario(radio__downlink=downlink, topology__name="tiers", rounds__global_rounds=3)
    for _ in ap.run(scenario, out=tmp_path / "whole", dataset=blobs()):
        pass
    for number, _ in enumerate(ap.run(scenario, out=tmp_path / "cut", dataset=blobs())):
        if number == 4:
            break
    for _ in ap.run(scenario, out=tmp_path / "cut", resume=True, dataset=blobs()):
        pass
    whole, cut = ((tmp_path / name / "records.jsonl").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_records_are_the_same_on_processes():
    changes = {"radio__downlink": "unicast", "rounds__global_rounds": 1}
    assert ran(**changes) == ran(**changes, engine__name="processes", engine__workers=2)


def test_records_with_downlinks_are_plain_json():
    for record in ran(radio__downlink="broadcast", rounds__global_rounds=1):
        again = json.loads(json.dumps(record))
        assert again == record and isinstance(record_from(again), EdgeRecord) == (record["kind"] == "edge")


def test_a_run_in_memory_keeps_totals_through_its_state():
    experiment = Experiment.of(tiny_scenario(radio__downlink="broadcast"), dataset=blobs())
    state = experiment.initial_state()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        records = list(run_rounds(experiment, engine, state))
    again = state.restored(state.arrays(), json.loads(json.dumps(state.facts())))
    assert again.totals == state.totals and again.totals.downlink_bits == records[-1]["downlink_bits"] > 0.0


@pytest.mark.usefixtures("blank_pictures")
def test_the_report_of_a_run_shows_downlinks_where_they_are_charged(tmp_path):
    for downlink in ("none", "broadcast"):
        folder = tmp_path / downlink
        for _ in ap.run(tiny_scenario(radio__downlink=downlink), out=folder, dataset=blobs()):
            pass
        page = write_report(folder).read_text()
        assert ("downlink (ms)" in page) == (downlink == "broadcast")
