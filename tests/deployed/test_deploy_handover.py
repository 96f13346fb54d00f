"""Devices that move between edges in a deployment connect to their new edge, and end in the simulation's bits."""

import pytest

import airprune as ap
from airprune.deployment.remote import CloudSettings
from support.federation import Tasks, rows_of
from support.tiny import final_bytes

CHANGES = (
    "model.name=mlp",
    "data.train_samples=120",
    "data.test_samples=40",
    "radio.bandwidth_hz=2e6",
    "rounds.global_rounds=2",
    "engine.name=serial",
    "association.name=handover",
    "association.handover.probability=0.4",
)
SETTINGS = CloudSettings(measures=False, grace_s=60.0)


@pytest.mark.parametrize("update", ["carried", "lost"])
def test_devices_that_hand_over_are_served_by_their_new_edge_to_the_simulations_bits(tmp_path, update):
    scenario = ap.Scenario.preset("deployed").with_overrides([*CHANGES, f"association.handover.update={update}"])
    with Tasks(tmp_path / "federation", num_edges=2, devices_per_edge=2) as federation:
        scenario = scenario.with_values({"network.devices_per_edge": 2})
        federation.start_all()
        for _ in federation.run_cloud(scenario, tmp_path / "run", SETTINGS):
            pass
    for _ in ap.run(scenario, out=tmp_path / "simulated"):
        pass
    rows = rows_of(tmp_path / "run/measured.jsonl")
    assert {row["fate"] for row in rows} == {"ok"}
    homes = {"d0": "e0", "d1": "e0", "d2": "e1", "d3": "e1"}
    assert any(row["served_by"] != homes[row["name"]] for row in rows)
    assert final_bytes(tmp_path / "run") == final_bytes(tmp_path / "simulated")
