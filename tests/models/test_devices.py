"""`train.device`: behind the kernel, missing ones refused, and with a stand-in the CPU's bits."""

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.models.catalogue import FlatModel, build_model
from airprune.models.kernels import KERNELS, devices, kernel_for
from airprune.models.kernels.devices import Twin, device_named
from airprune.runs.layout import RunFolder
from support.tiny import blobs, final_bytes, tiny_scenario


@pytest.fixture
def stand_in(monkeypatch):
    """A machine whose CUDA device is another set of CPU tensors; lists the devices that twins are made for."""
    made = []

    def torch_device(name: str) -> torch.device:
        made.append(name)
        return torch.device("cpu")

    monkeypatch.setattr(devices, "is_there", lambda name: name in ("cpu", "cuda"))
    monkeypatch.setattr(devices, "torch_device", torch_device)
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: None)
    return made


def model() -> nn.Module:
    """Everything that must be carried over: masks, running variances, a count of batches that matters, tied weights."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8, momentum=None)  # a cumulative mean: depends on `num_batches_tracked`
    return nn.Sequential(nn.Linear(12, 8), norm, nn.ReLU(), nn.Linear(8, 4))


def test_without_an_accelerator_auto_is_the_cpu(monkeypatch):
    monkeypatch.setattr(devices, "is_there", lambda name: name == "cpu")
    assert device_named("auto") == device_named("cpu") == "cpu"


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_missing_device_is_one_sentence(name, monkeypatch):
    monkeypatch.setattr(devices, "is_there", lambda name: name == "cpu")
    with pytest.raises(ap.InvalidValue, match=rf"train\.device must be a device that torch finds.*'{name}'\. Use auto"):
        ap.run(tiny_scenario(train__device=name), dataset=blobs())


def test_auto_takes_what_there_is_but_no_mps_for_double_precision(monkeypatch):
    monkeypatch.setattr(devices, "is_there", lambda name: name in ("cpu", "mps"))
    assert device_named("auto") == "mps" and device_named("auto", float64=True) == "cpu"
    with pytest.raises(ap.InvalidValue, match="must have double precision"):
        device_named("mps", float64=True)


def test_only_the_torch_kernel_computes_on_accelerators():
    flat = FlatModel(build_model("paper-cnn", input_shape=(1, 28, 28), num_classes=10, seed=0))
    x, y = np.zeros((4, 1, 28, 28), np.float32), np.zeros(4, np.int64)
    assert kernel_for("auto", flat, x, y, device="cuda") == "torch"
    with pytest.raises(ap.InvalidValue, match="cannot be native: it does not compute on 'cuda'"):
        kernel_for("native", flat, x, y, device="cuda")
    with pytest.raises(ap.InvalidValue, match="cannot be native: it does not know the loss 'mse'"):
        kernel_for("native", flat, x, y, loss="mse")


@pytest.mark.parametrize("float64", [False, True])
def test_a_twin_gives_the_models_own_gradient_and_buffers(stand_in, float64):
    (x, y), _ = blobs()
    ours, theirs = (FlatModel(model(), float64=float64) for _ in range(2))
    on_cpu = KERNELS["torch"].build(ours, x, y)
    on_twin = KERNELS["torch"].build(theirs, x, y, device="cuda")
    for start in (0, 16, 32):
        batch = np.arange(start, start + 16)
        assert on_cpu(batch) == on_twin(batch)
        np.testing.assert_array_equal(ours.gradient_array, theirs.gradient_array)
        for flat in (ours, theirs):
            flat.state_array[: flat.num_parameters] -= 0.1 * flat.gradient_array
        np.testing.assert_array_equal(ours.state_array, theirs.state_array)
    assert ours.module[1].num_batches_tracked == theirs.module[1].num_batches_tracked == 3


def test_a_twin_is_no_view_of_the_model(stand_in):
    flat = FlatModel(model())
    twin = Twin(flat, "cuda")
    twin.state.fill_(7.0)
    assert not (flat.state == 7.0).any() and (twin.module[0].weight == 7.0).all()
    twin.take()
    assert torch.equal(twin.module[0].weight, flat.module[0].weight)


@pytest.mark.parametrize("changes", [{}, {"plan__deadline_s": 0.0002, "masking__probe__importance": "exact"}])
def test_a_run_on_a_stand_in_ends_in_the_cpus_weights_and_records(stand_in, tmp_path, changes):
    for name in ("cpu", "cuda"):
        scenario = tiny_scenario(train__device=name, **changes)
        list(ap.run(scenario, model=model(), dataset=blobs(), out=tmp_path / name))
    assert set(stand_in) == {"cuda"}
    assert final_bytes(tmp_path / "cpu")[1] == final_bytes(tmp_path / "cuda")[1]
    weights = [ap.load_model(tmp_path / name, model=model()).state_dict() for name in ("cpu", "cuda")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert RunFolder(tmp_path / "cuda").kernel_used == "torch:cuda"


def test_a_run_of_auto_goes_on_where_it_was(stand_in, tmp_path, monkeypatch):
    scenario = tiny_scenario(train__device="auto")
    records = ap.run(scenario, dataset=blobs(), out=tmp_path)
    next(records)
    records.close()
    monkeypatch.setattr(devices, "is_there", lambda name: name == "cpu")
    with pytest.raises(ap.InvalidValue, match=r"train\.device must be a device that torch finds"):
        ap.run(scenario, dataset=blobs(), out=tmp_path, resume=True)
