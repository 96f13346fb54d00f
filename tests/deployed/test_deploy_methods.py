"""Every method, deployed: the records and the model of its simulation, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file

import airprune as ap
from airprune.deployment.remote import CloudSettings
from airprune.deployment.run_definition import check_deployable
from airprune.errors import UsageError
from airprune.methods.selection import Selection
from airprune.methods.topology import Topology
from airprune.rounds.method import Method
from airprune.scenario import Scenario
from support.federation import Tasks
from support.tiny import final_bytes

SETTINGS = CloudSettings(measures=False, grace_s=60.0, wait_s=60.0)
# One of each kind: values told to all, slots of edges, cloud and devices, codes, associations that move devices, a mean
# by local steps, planned work, steps that decay.
QUICK = ("adaptive-pruning", "adaptive-bits", "prunefl", "scaffold", "fedavgm", "hfel", "fednova", "adaptive-work")
QUICK += ("hier-qsgd-decay",)
# Unequal numbers of samples make unequal numbers of steps; words of secure sums have the bits of the model's numbers.
OWN = {
    "fednova": {"data.size_spread": 1.0, "train.batch_size": 4, "train.momentum": 0.5},
    "secure-sums": {"plan.bits_per_weight": 32.0},
}


def scenario_of(method: str) -> Scenario:
    return Scenario.preset("deployed").with_values(
        {
            "method": method,
            "data.train_samples": 120,
            "data.test_samples": 50,
            "plan.deadline_s": 0.5,
            "radio.bandwidth_hz": 2.0e7,
            "plan.framing": False,
            "engine.name": "serial",
            **OWN.get(method, {}),
        }
    )


def is_deployable(method: str) -> bool:
    method = Method.of(scenario_of(method))
    alone = not (method.topology.overrides(Topology.relay) or method.topology.overrides(Topology.due))
    return alone and not method.selection.overrides(Selection.barrier)


DEPLOYABLE = [name for name in ap.METHODS if is_deployable(name)]


@pytest.mark.parametrize("method", sorted(set(ap.METHODS) - set(DEPLOYABLE)))
def test_what_has_no_real_counterpart_is_refused_in_a_sentence(method):
    with pytest.raises(UsageError, match="cannot be deployed"):
        check_deployable(Method.of(scenario_of(method)))


@pytest.mark.parametrize(
    "method", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DEPLOYABLE]
)
def test_a_deployed_method_ends_in_its_simulations_records_and_model(method, tmp_path: Path):
    scenario = scenario_of(method)
    simulated = tmp_path / "simulated"
    list(ap.run(scenario, out=simulated))
    network = scenario.build_network()
    per_edge = [int((network.edge == edge).sum()) for edge in range(network.num_edges)]
    with Tasks(tmp_path / "federation", num_edges=network.num_edges, devices_per_edge=per_edge) as federation:
        federation.start_all()
        list(federation.run_cloud(scenario, tmp_path / "run", SETTINGS))
    if scenario.model.personal:  # the cloud has none of the devices' own layers, so it records other test measures
        ends = [load_file(folder / "final.safetensors") for folder in (tmp_path / "run", simulated)]
        assert {key: value.tobytes() for key, value in ends[0].items()} == {
            key: value.tobytes() for key, value in ends[1].items()
        }
    else:
        assert final_bytes(tmp_path / "run") == final_bytes(simulated)


def test_a_deployment_with_a_charged_downlink_predicts_it_as_its_simulation_does(tmp_path: Path):
    scenario = scenario_of("adaptive-pruning").with_values(
        {"radio.downlink": "unicast", "clock.idle_power_w": 2.0, "topology.hierarchical.backhaul_bps": 1e8}
    )
    simulated = tmp_path / "simulated"
    last = list(ap.run(scenario, out=simulated))[-1]
    assert last["downlink_s"] > 0.0
    network = scenario.build_network()
    per_edge = [int((network.edge == edge).sum()) for edge in range(network.num_edges)]
    with Tasks(tmp_path / "federation", num_edges=network.num_edges, devices_per_edge=per_edge) as federation:
        federation.start_all()
        list(federation.run_cloud(scenario, tmp_path / "run", SETTINGS))
    assert final_bytes(tmp_path / "run") == final_bytes(simulated)
