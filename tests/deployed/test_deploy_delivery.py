"""Trained models that come home: signed, verified, swapped in one step, and used for predictions without torch."""

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import airprune as ap
from airprune.deployment.delivery import graphs, prediction
from airprune.deployment.delivery.offers import Manifest, signed_offer, verified
from airprune.deployment.delivery.prediction import predict
from airprune.deployment.delivery.shelf import Shelf
from airprune.deployment.fleet.registry import Delivery
from airprune.deployment.fleet.releases import release
from airprune.deployment.identity import load_node, make_federation
from airprune.errors import UsageError, WorkFailed
from airprune.models.kernels import native
from airprune.runs.layout import RunFolder
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
    large = np.ones(2**25)  # 256 MiB of the process that calls it, which are not its own
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    with torch.inference_mode():
        expected = ap.load_model(state / "run")(torch.tensor(x)).numpy()
    assert np.allclose(np.load(state / "scores.npy"), expected, rtol=1e-4, atol=1e-5)  # float32, other order of sums
    assert said["kernel"] == "native" and said["version"] == 1 and said["labels"] == expected.argmax(axis=1).tolist()
    assert 0 < said["latency_s"] <= said["latency_p95_s"] and 2**20 < said["peak_bytes"] < large.nbytes


def shelf_of(kits, state, model: str):
    """A device's state with a model that the native kernel does not compute, as the cloud releases it; and its run."""
    changes = [
        f"model.name={model}",
        "train.kernel=torch",
        "rounds.edge_rounds=1",
        "network.devices_per_edge=1",
        "plan.deadline_s=9",
    ]
    changes += ["data.train_samples=60", "data.test_samples=20", "rounds.global_rounds=1", "engine.name=serial"]
    scenario, folder = ap.Scenario.preset("smoke").with_overrides(changes), RunFolder(state / "run")
    for _ in ap.run(scenario, out=folder.path):
        pass
    about = {"run": "abc", "num_samples": [60], "model": {"input_shape": [1, 28, 28], "num_classes": 10}}
    (folder.path / "deployment.json").write_text(json.dumps(about))
    delivery = Delivery(version=1, job=1, which="final", devices=(), created_s=0.0)
    offer, content = release(load_node(kits / "cloud"), delivery, SimpleNamespace(number=1), folder)
    shelf = Shelf(load_node(kits / "d0"), state)
    shelf.put(offer, content)
    return shelf, scenario


@pytest.mark.parametrize("model", ["mlp", "resnet-8"])
def test_the_onnx_runtime_gives_the_scores_of_torch_without_torch(kits, tmp_path, model):
    pytest.importorskip("onnxruntime")
    shelf, scenario = shelf_of(kits, tmp_path, model)
    graph = base64.b64decode(shelf.manifest(1).graph)
    assert 0 < len(graph) < 20_000 < len(shelf.content(1))  # operations; the weights are in the file
    assert b"airprune" not in graph and b".py" not in graph  # and no places in the cloud's source files
    x = dataset_of(scenario).test_x[:20]
    np.savez(tmp_path / "x.npz", x=x)
    code = "import sys; sys.modules['torch'] = None; from airprune.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["deploy", "predict", kits / "d0", "--state-dir", tmp_path, "--data", tmp_path / "x.npz", "--json"]
    words += ["--out", tmp_path / "scores.npy"]
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    with torch.inference_mode():
        expected = ap.load_model(tmp_path / "run")(torch.tensor(x)).numpy()
    assert np.allclose(np.load(tmp_path / "scores.npy"), expected, rtol=1e-4, atol=1e-5)  # float32, other order of sums
    assert said["kernel"] == "onnx" and said["labels"] == expected.argmax(axis=1).tolist()
    assert 0 < said["latency_s"] <= said["latency_p95_s"] and 2**20 < said["peak_bytes"] < 2**28


def test_without_onnx_packages_at_the_cloud_torch_predicts_and_the_device_is_named_both_ways_out(
    kits, tmp_path, monkeypatch, caplog, one_thread
):
    torch.set_num_threads(2)
    shelf, _ = shelf_of(kits, tmp_path / "with", "mlp")
    monkeypatch.setattr(graphs, "missing", lambda packages: ["onnx"])
    bare, scenario = shelf_of(kits, tmp_path / "without", "mlp")
    assert "has no ONNX graph, so devices need torch to predict. It needs onnx: " in caplog.text
    x, state = dataset_of(scenario).test_x[:20], tmp_path / "without"
    by_torch = predict(bare, x, state=state)
    assert by_torch.kernel == "torch" and torch.get_num_threads() == 1
    assert np.allclose(predict(shelf, x, state=state).scores, by_torch.scores, rtol=1e-4, atol=1e-5)  # as above
    monkeypatch.setattr(prediction.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"need onnxruntime or torch here, since .* model 'mlp': .*\[predict\]"):
        predict(shelf, x, state=state)
    with pytest.raises(UsageError, match=r"need torch here, since .*\[train\]"):
        predict(bare, x, state=state)


def test_weights_that_do_not_fit_the_graph_are_refused_in_one_sentence(kits, tmp_path):
    pytest.importorskip("onnxruntime")
    shelf, _ = shelf_of(kits, tmp_path, "mlp")
    graph = base64.b64decode(shelf.manifest(1).graph)
    for arrays in ({}, {"fc1.weight": np.zeros((3, 3), np.float32)}):
        with pytest.raises(WorkFailed, match="The ONNX runtime cannot take the model: "):
            graphs.onnx_scores(graph, arrays)
    with pytest.raises(WorkFailed, match="The ONNX runtime cannot take the model: "):
        graphs.onnx_scores(b"no graph", {})


def test_what_cannot_be_predicted_is_refused_in_one_sentence(kits, trained, tmp_path):
    _, state = trained
    shelf = Shelf(load_node(kits / "d0"), state)
    with pytest.raises(UsageError, match=r"x must have samples of shape \(1, 28, 28\), got an array of shape \(3, 7\)"):
        predict(shelf, np.zeros((3, 7)), state=state)
    with pytest.raises(UsageError, match="holds no model yet"):
        predict(Shelf(load_node(kits / "d0"), tmp_path), np.zeros((1, 1, 28, 28)), state=tmp_path)
