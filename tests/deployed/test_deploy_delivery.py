"""Trained models that come home: signed, verified, swapped in one step, and used for predictions without torch."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import airprune as ap
from airprune.deployment.delivery.offers import Manifest, signed_offer, verified
from airprune.deployment.delivery.prediction import predict
from airprune.deployment.delivery.shelf import Shelf
from airprune.deployment.identity import load_node, make_federation
from airprune.errors import UsageError, WorkFailed
from airprune.models.kernels import native
from airprune.scenario.data import dataset_of

FILES = {1: b"first", 2: b"second", 3: b"third"}


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kits") / "lab"
    make_federation(folder, federation="lab", num_edges=1, devices_per_edge=1)
    return folder


def manifest_of(version: int, data: bytes, **changes) -> Manifest:
    found = Manifest(
        federation="lab",
        version=version,
        job=1,
        which="final",
        run="abc",
        scenario="",
        input_shape=(1, 28, 28),
        num_classes=10,
        num_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    return replace(found, **changes)


def put(shelf: Shelf, kits, version: int) -> None:
    shelf.put(signed_offer(manifest_of(version, FILES[version]), load_node(kits / "cloud")), FILES[version])


def test_a_device_holds_the_newest_model_and_goes_back_to_the_one_before(kits, tmp_path):
    shelf = Shelf(load_node(kits / "d0"), tmp_path)
    for version in FILES:
        put(shelf, kits, version)
    assert shelf.content(shelf.held.current) == b"third"
    assert sorted(path.name for path in shelf.folder.glob("*.safetensors")) == ["2.safetensors", "3.safetensors"]
    assert shelf.roll_back() == 2 and shelf.content(2) == b"second"
    with pytest.raises(WorkFailed, match="Model 3 is older than 3"):  # no manifest is taken twice
        put(shelf, kits, 3)
    assert shelf.roll_back() == 3


def test_only_the_cloud_of_the_federation_signs_and_only_its_bytes_are_taken(kits, tmp_path):
    device, cloud = load_node(kits / "d0"), load_node(kits / "cloud")
    shelf, good = Shelf(device, tmp_path), manifest_of(1, b"first")
    offer = signed_offer(good, cloud)
    assert verified(offer, device) == good
    make_federation(tmp_path / "other", federation="lab", num_edges=1, devices_per_edge=1)
    wrong = [signed_offer(good, load_node(kits / "e0")), signed_offer(good, load_node(tmp_path / "other/cloud"))]
    changed = signed_offer(good, cloud)
    changed.manifest = changed.manifest.replace(b'"version": 1', b'"version": 2')
    for bad in (*wrong, changed):
        with pytest.raises(WorkFailed, match="must be signed by the cloud"):
            shelf.put(bad, b"first")
    with pytest.raises(WorkFailed, match="is not the one that was signed"):
        shelf.put(offer, b"fIrst")
    assert shelf.held.current == 0
    shelf.put(offer, b"first")
    shelf.path(1).write_bytes(b"fIrst")
    with pytest.raises(WorkFailed, match="is not what was delivered"):
        shelf.content(1)


def test_a_device_that_is_killed_while_it_takes_a_model_has_the_old_one_or_the_new_one(kits, tmp_path, monkeypatch):
    from airprune.deployment.delivery import shelf as module

    shelf = Shelf(load_node(kits / "d0"), tmp_path)
    put(shelf, kits, 1)
    original = module.replacing
    for allowed in range(3):
        left = iter(range(allowed))

        def killed(path, *, _left=left):
            if next(_left, None) is None:
                raise KeyboardInterrupt
            return original(path)

        monkeypatch.setattr(module, "replacing", killed)
        with pytest.raises(KeyboardInterrupt):
            put(shelf, kits, 2)
        monkeypatch.undo()
        assert shelf.held.current == 1 and shelf.content(1) == b"first"
    put(shelf, kits, 2)
    assert shelf.content(shelf.held.current) == b"second"


@pytest.fixture(scope="module")
def trained(kits, tmp_path_factory):
    """A shelf with the paper's CNN, trained for a round; and its run."""
    state = tmp_path_factory.mktemp("state")
    changes = ["data.train_samples=60", "data.test_samples=20", "rounds.global_rounds=1", "engine.name=serial"]
    scenario = ap.Scenario.preset("smoke").with_overrides(changes)
    for _ in ap.run(scenario, out=state / "run"):
        pass
    content = (state / "run/final.safetensors").read_bytes()
    manifest = manifest_of(1, content, scenario=scenario.to_toml())
    Shelf(load_node(kits / "d0"), state).put(signed_offer(manifest, load_node(kits / "cloud")), content)
    return scenario, state


@pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}")
def test_scores_are_those_of_the_torch_module_and_need_no_torch(kits, trained):
    scenario, state = trained
    x = dataset_of(scenario).test_x[:20]
    np.savez(state / "x.npz", x=x)
    code = "import sys; sys.modules['torch'] = None; from airprune.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["deploy", "predict", kits / "d0", "--state-dir", state, "--data", state / "x.npz", "--json"]
    words += ["--out", state / "scores.npy"]
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    with torch.inference_mode():
        expected = ap.load_model(state / "run")(torch.tensor(x)).numpy()
    assert np.allclose(np.load(state / "scores.npy"), expected, rtol=1e-4, atol=1e-5)  # float32, other order of sums
    assert said["kernel"] == "native" and said["version"] == 1 and said["labels"] == expected.argmax(axis=1).tolist()
    assert 0 < said["latency_s"] <= said["latency_p95_s"] and said["peak_bytes"] > 2**20


def test_what_cannot_be_predicted_is_refused_in_one_sentence(kits, trained, tmp_path):
    _, state = trained
    shelf = Shelf(load_node(kits / "d0"), state)
    with pytest.raises(UsageError, match=r"x must have samples of shape \(1, 28, 28\), got an array of shape \(3, 7\)"):
        predict(shelf, np.zeros((3, 7)), state=state)
    with pytest.raises(UsageError, match="holds no model yet"):
        predict(Shelf(load_node(kits / "d0"), tmp_path), np.zeros((1, 1, 28, 28)), state=tmp_path)
