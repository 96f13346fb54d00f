"""A member of a deployment that sends a poisoned update: contained, named, and as a simulation of it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.deployment import training
from airprune.deployment.remote import CloudSettings
from airprune.rounds.attacks import Attack, honest_update, with_update
from airprune.rounds.device import round_in_steps
from airprune.scenario import Scenario
from support.federation import Tasks

SETTINGS = CloudSettings(measures=False, grace_s=60.0, wait_s=60.0)
STRENGTH = 1e20


def scenario_of(**changes: object) -> Scenario:
    return Scenario.preset("deployed").with_values(
        {
            "model.name": "mlp",
            "data.train_samples": 120,
            "data.test_samples": 50,
            "plan.deadline_s": 0.5,
            "radio.bandwidth_hz": 2.0e7,
            "plan.framing": False,
            "engine.name": "serial",
            **changes,
        }
    )


@pytest.mark.parametrize(
    "contained", [{"aggregation.rollback": 10.0}, {"method": "trimmed-mean"}], ids=["rollback", "trimmed-mean"]
)
def test_a_poisoned_upload_is_contained_as_in_a_simulation(contained, tmp_path: Path, monkeypatch):
    scenario = scenario_of(**contained)
    attacked = scenario.with_values({"attack.kind": "scaled", "attack.share": 0.17, "attack.strength": STRENGTH})
    attack = Attack.of(attacked.attack, scenario.num_devices, scenario.seed)
    assert attack is not None
    (liar,) = attack.devices

    def lying(device, received, orders, **rest):
        upload = yield from round_in_steps(device, received, orders, **rest)
        if orders.device != liar:
            return upload
        prunable = device.shape.prunable
        honest = honest_update(upload, received.model, prunable)
        return with_update(upload, received.model, STRENGTH * honest, prunable)

    monkeypatch.setattr(training, "round_in_steps", lying)
    list(ap.run(attacked, out=tmp_path / "simulated"))
    with Tasks(tmp_path / "federation", num_edges=2, devices_per_edge=3) as federation:
        federation.start_all()
        list(federation.run_cloud(scenario, tmp_path / "run", SETTINGS))
    simulated, deployed = (records_of(tmp_path / name) for name in ("simulated", "run"))
    for record in simulated:
        assert record.pop("attackers", [liar]) == [liar]
    assert deployed == simulated
    edge_rounds = [record for record in deployed if record["kind"] == "edge"]
    assert all(record["fate"] == ["ok"] * 6 for record in edge_rounds), "no honest device is called failed"
    if "aggregation.rollback" in contained:
        home = [0, 0, 0, 1, 1, 1][liar]
        assert all((one["suspected"], one["rolled_back"]) == ([liar], [home]) for one in edge_rounds)
    else:
        assert np.isfinite(deployed[-1]["test_loss"]) and deployed[-1]["test_loss"] < 5.0


def records_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
