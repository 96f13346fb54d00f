"""Models and test sets of one's own in a deployment: installed on every node, compared, never sent."""

import sys

import numpy as np
import pytest

import airprune as ap
from airprune.deployment.edge_devices import Devices
from airprune.deployment.identity import load_node, make_federation
from airprune.deployment.own_data import test_set_of as read_test_set
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.remote import CloudSettings
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.run_signature import check_run, sign_run
from airprune.errors import UsageError, WorkFailed
from airprune.methods.registration import code_used_by
from airprune.models.names import MODELS
from airprune.runs.layout import RunFolder
from support.federation import Tasks

MODEL = """
from torch import nn
from airprune.models.base import Model

def build(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 6), nn.ReLU(), nn.Linear(6, classes))

LINEAR = Model(name="yards-own", summary="a small one", source="the yard", build=build)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a model, as an installer leaves it."""
    site = tmp_path / "site"
    (site / "yard_models").mkdir(parents=True)
    (site / "yard_models/__init__.py").write_text(MODEL)
    (site / "yard_models-1.0.dist-info").mkdir()
    (site / "yard_models-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: yard-models\n")
    points = "[airprune.models]\nyards-own = yard_models:LINEAR\n"
    (site / "yard_models-1.0.dist-info/entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(site)
    MODELS.__dict__.pop("_entry_points", None)
    yield site / "yard_models"
    monkeypatch.undo()
    MODELS.__dict__.pop("_entry_points", None)
    MODELS._loaded.pop("yards-own", None)
    sys.modules.pop("yard_models", None)


def own_scenario() -> ap.Scenario:
    changes = ["model.name=yards-own", "rounds.global_rounds=1", "rounds.edge_rounds=1", "engine.name=serial"]
    return ap.Scenario.preset("deployed").with_overrides(
        [*changes, "network.num_edges=1", "network.devices_per_edge=1"]
    )


def test_a_node_with_other_code_is_refused_and_the_package_named(package):
    scenario = own_scenario()
    welcome = pb.Welcome(scenario=scenario.to_toml(), input_shape=[12], num_classes=3, num_devices=1, num_edges=1)
    welcome.packages.update(code_used_by(scenario))
    assert list(welcome.packages) == ["yard_models"]
    assert RunDefinition.from_welcome(welcome).shape.num_layers == 2
    (package / "__init__.py").write_text(MODEL.replace("6", "7"))
    with pytest.raises(UsageError, match=r"yard_models must be the same code on all nodes, got .* here, "):
        RunDefinition.from_welcome(welcome)
    assert code_used_by(ap.Scenario.preset("smoke")) == {}


def test_scenario_shapes_and_digests_are_the_ones_that_the_cloud_has_signed(tmp_path):
    for name in ("lab", "other"):
        make_federation(tmp_path / name, federation="lab", num_edges=1, devices_per_edge=1)
    device, welcome = load_node(tmp_path / "lab/d0"), pb.Welcome(run="r", scenario="seed = 1", input_shape=[12])
    welcome.packages["yard_models"] = "0f" * 32
    sign_run(welcome, load_node(tmp_path / "lab/cloud"))
    welcome.index, welcome.stays = 3, True  # an edge says which device of the run this one is
    check_run(welcome, device)
    for change in (
        {"run": "s"}, {"scenario": "seed = 2"}, {"input_shape": [2]}, {"num_classes": 9}, {"num_devices": 9},
        {"num_edges": 9}, {"packages": {"yard_models": "0e" * 32}}, {"packages": {"more": ""}},
        {"signature": b"x"}, {"certificate": b"x"},
    ):  # fmt: skip
        other = pb.Welcome.FromString(welcome.SerializeToString())
        other.MergeFrom(pb.Welcome(**change))
        with pytest.raises(WorkFailed, match="must be signed by the cloud of the federation; it was refused"):
            check_run(other, device)
    for signer in ("lab/e0", "lab/d0", "other/cloud"):
        sign_run(welcome, load_node(tmp_path / signer))
        with pytest.raises(WorkFailed, match="must be signed by the cloud"):
            check_run(welcome, device)


def test_a_device_whose_edge_passes_on_another_scenario_trains_nothing(tmp_path, monkeypatch):
    original = Devices._welcome_of

    def changed(devices, child):
        own = original(devices, child)
        own.scenario = own.scenario.replace("noise_multiplier = 1.0", "noise_multiplier = 0.0")
        return own

    monkeypatch.setattr(Devices, "_welcome_of", changed)
    changes = ["rounds.global_rounds=1", "privacy.clip_norm=1.0", "privacy.noise_multiplier=1.0"]
    scenario = ap.Scenario.preset("deployed").with_overrides(
        [*changes, "network.num_edges=1", "network.devices_per_edge=1", "data.train_samples=40", "engine.name=serial"]
    )
    assert "noise_multiplier = 1.0" in scenario.to_toml()
    with Tasks(tmp_path, num_edges=1, devices_per_edge=1) as federation:
        federation.start_all()
        with pytest.raises(WorkFailed, match="No device"):
            list(federation.run_cloud(scenario, tmp_path / "run", CloudSettings(measures=False, wait_s=8.0)))
        assert "must be signed by the cloud of the federation" in str(federation.tasks["d0"].exception())
        assert not federation.has_trained("d0")


def test_an_own_model_trains_on_own_samples_and_is_tested_on_the_clouds_own(package, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 12)).astype(np.float32), np.arange(40) % 3
    np.savez(tmp_path / "test.npz", x=x[:20], y=y[:20])
    np.savez(tmp_path / "own.npz", x=x[20:], y=y[20:])
    with Tasks(tmp_path, num_edges=1, devices_per_edge=1) as federation:
        federation.start("e0")
        federation.start("d0", data=str(tmp_path / "own.npz"))
        settings, dataset = CloudSettings(measures=False, grace_s=60.0), read_test_set(str(tmp_path / "test.npz"))
        records = list(federation.run_cloud(own_scenario(), tmp_path / "run", settings, dataset=dataset))
    assert records[-1]["test_accuracy"] in np.arange(21) / 20
    assert records[0]["num_samples"] > 0 and RunFolder(tmp_path / "run").is_finished
    with pytest.raises(UsageError, match="y must have one whole number for each of 20 samples, got none"):
        np.savez(tmp_path / "bad.npz", x=x[:20])
        read_test_set(str(tmp_path / "bad.npz"))
