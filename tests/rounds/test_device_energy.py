"""Energy of devices in a run: cores, amplifier, idling and receiving, against hand values."""

from __future__ import annotations

import numpy as np
import pytest

import airprune as ap
from airprune.rounds.experiment import Experiment
from airprune.rounds.planning_context import device_limits
from support.tiny import blobs, tiny_scenario

CLOSED = 1e-12  # closed forms in float64
each = pytest.mark.parametrize


def edges_of(**changes):
    return [record for record in ap.run(tiny_scenario(**changes), dataset=blobs()) if record["kind"] == "edge"]


def by_hand_j(record, *, watts: float, power_w: float) -> np.ndarray:
    """Joules of devices that take so many watts while computing and sending."""
    return watts * np.array(record["compute_s"]) + power_w * np.array(record["uplink_s"])


def test_a_run_counts_cores_capacitance_and_the_amplifiers_loss():
    options = {"clock__energy_cores": 4, "clock__effective_capacitance": 2.7e-28, "radio__amplifier_efficiency": 0.35}
    radiated_w = tiny_scenario().build_radio().transmit_power_w
    for record in edges_of(**options):
        wanted = by_hand_j(record, watts=4 * 2.7e-28 * 3e9**3, power_w=radiated_w / 0.35)
        np.testing.assert_allclose(record["device_energy_j"], wanted, rtol=CLOSED)


def test_defaults_are_one_core_a_lossless_amplifier_and_nothing_for_waiting():
    radiated_w = tiny_scenario().build_radio().transmit_power_w
    for record in edges_of():
        wanted = by_hand_j(record, watts=1e-28 * 3e9**3, power_w=radiated_w)
        np.testing.assert_allclose(record["device_energy_j"], wanted, rtol=CLOSED)
    assert tiny_scenario(clock__energy_cores=1, clock__idle_power_w=0.0).hash == tiny_scenario().hash


@each("downlink", ["none", "broadcast", "unicast"])
def test_planned_devices_take_idle_power_for_their_edges_whole_round(downlink):
    options = {"radio__downlink": downlink, "plan__scheme": "no-pruning"}
    for before, record in zip(edges_of(**options), edges_of(**options, clock__idle_power_w=2.0), strict=True):
        lasts_s = np.array(record["edge_latency_s"])[record["edge"]]
        more_j = np.array(record["device_energy_j"]) - np.array(before["device_energy_j"])
        np.testing.assert_allclose(more_j, 2.0 * lasts_s, rtol=1e-9)  # of a difference
        assert {**record, "energy_j": 0, "device_energy_j": 0} == {**before, "energy_j": 0, "device_energy_j": 0}


def test_a_device_of_a_slow_tier_is_on_for_all_the_rounds_that_it_trains():
    # With the deadline of the slowest device, all deliver in every second round.
    options = {"topology__name": "tiers", "plan__scheme": "no-pruning", "plan__deadline_s": 1e-4}
    free, charged = edges_of(**options), edges_of(**options, clock__idle_power_w=2.0)
    lags = [lag for record in charged for lag in record["lag"]]
    assert set(lags) == {1}
    for before, record in zip(free, charged, strict=True):
        lasts_s = 2 * np.array(record["edge_latency_s"])[record["edge"]]
        more_j = np.array(record["device_energy_j"]) - np.array(before["device_energy_j"])
        np.testing.assert_allclose(more_j, 2.0 * lasts_s, rtol=1e-9)


def test_blocked_devices_take_nothing():
    slow = {"network__cpu_hz": 1e6, "network__cpu_hz_max": 1e7, "plan__cycles_per_weight": 80.0}
    records = edges_of(**slow, plan__deadline_s=0.003, clock__idle_power_w=2.0)
    blocked = [
        joules
        for record in records
        for joules, fate in zip(record["device_energy_j"], record["fate"], strict=True)
        if fate == "blocked"
    ]
    assert blocked and set(blocked) == {0.0}


def test_the_planner_sees_the_same_cores_and_amplifier_as_the_clock():
    scenario = tiny_scenario(
        clock__energy_cores=4, clock__effective_capacitance=2.5e-28, radio__amplifier_efficiency=0.5
    )
    experiment = Experiment.of(scenario, dataset=blobs())
    limits = device_limits(experiment.context, experiment.network.cpu_hz)
    assert float(limits.effective_capacitance) == pytest.approx(1e-27, rel=CLOSED)
    assert float(limits.amplifier_efficiency) == 0.5


def test_a_budget_is_kept_with_cores_and_amplifier_counted():
    options = {"plan__scheme": "energy", "clock__energy_cores": 4, "radio__amplifier_efficiency": 0.35}
    for record in edges_of(**options, plan__max_energy_j=2e-4, plan__deadline_s=0.01):
        assert max(record["device_energy_j"]) <= 2e-4 * (1 + 1e-9)


def test_devices_of_a_group_pay_for_their_amplifier_when_they_send_to_each_other():
    options = {"topology__name": "d2d", "topology__d2d__max_distance_m": 500.0}
    free, lossy = (edges_of(**options, radio__amplifier_efficiency=share) for share in (1.0, 0.5))
    assert free[0]["d2d_energy_j"] > 0.0
    assert [record["d2d_energy_j"] for record in lossy] == pytest.approx([2 * r["d2d_energy_j"] for r in free])


def test_the_device_that_uploads_for_a_lan_pays_for_its_amplifier():
    free, lossy = (
        list(ap.run(tiny_scenario(topology__name="lan", radio__amplifier_efficiency=share), dataset=blobs()))[-1]
        for share in (1.0, 0.5)
    )
    radio = tiny_scenario().build_radio()
    last = lossy["energy_j"] - free["energy_j"]
    assert last > 0.0
    edge_s = sum(record["edge_latency_s"][0] for record in edges_of(topology__name="lan"))
    wan_s = free["time_s"] - edge_s
    assert last == pytest.approx(2 * radio.transmit_power_w * wan_s, rel=1e-9)  # two LANs
