"""Which kernel a run takes, and that nothing else about the run depends on it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import airprune as ap
from airprune.cli import main
from airprune.errors import InvalidValue, UsageError
from airprune.methods.compression.base import Wire
from airprune.models.catalogue import MLP, FlatModel, PaperCNN
from airprune.models.kernels import kernel_for, native
from airprune.rounds.device import device_round
from airprune.rounds.local import Device, LocalSettings, Streams
from airprune.rounds.messages import Broadcast, Orders, Upload
from airprune.rounds.method import Method
from support.processes import this_process_workers
from support.tiny import final_bytes

pytestmark = pytest.mark.usefixtures("one_thread")
needs_kernel = pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}")
SHAPE = (1, 12, 12)
SERIAL = {"engine.name": "serial"}
TWO_WORKERS = {"engine.name": "processes", "engine.workers": 2}


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr(native, "trouble", "it was not built (no compiler)")


def images(count: int = 96, shape=SHAPE) -> tuple[np.ndarray, np.ndarray]:
    """Noise around one picture per class."""
    rng = np.random.default_rng(0)
    y = np.arange(count) % 4
    return (rng.normal(size=(4, *shape))[y] + rng.normal(size=(count, *shape))).astype(np.float32), y


def paper_cnn() -> PaperCNN:
    torch.manual_seed(0)
    return PaperCNN(SHAPE, 4)


# Which kernel.


class Subclass(PaperCNN):
    """Might compute anything."""


def frozen() -> FlatModel:
    module = paper_cnn()
    module.conv1.weight.requires_grad_(False)
    return FlatModel(module)


def replaced_layer() -> FlatModel:
    module = paper_cnn()
    module.conv1 = torch.nn.Conv2d(SHAPE[0], 32, 3, padding=1, padding_mode="circular")
    return FlatModel(module)


def hooked() -> FlatModel:
    module = paper_cnn()
    module.conv2.register_forward_hook(lambda layer, given, result: 2 * result)
    return FlatModel(module)


def patched() -> FlatModel:
    module = paper_cnn()
    module.forward = lambda x: PaperCNN.forward(module, x) * 2
    return FlatModel(module)


X, Y = images()
OTHERS = {
    "an MLP": (lambda: FlatModel(MLP(SHAPE, 4)), X, Y, "the model is not the paper's CNN"),
    "a subclass": (lambda: FlatModel(Subclass(SHAPE, 4)), X, Y, "the model is not the paper's CNN"),
    "a frozen parameter": (frozen, X, Y, "some of the model's parameters are frozen"),
    "a model in double": (lambda: FlatModel(paper_cnn(), float64=True), X, Y, "not in float32"),
    "samples in double": (lambda: FlatModel(paper_cnn()), X.astype(np.float64), Y, "not in float32"),
    "labels of 32 bits": (lambda: FlatModel(paper_cnn()), X, Y.astype(np.int32), "not in float32"),
    "another convolution": (replaced_layer, X, Y, "with changes"),
    "a hook": (hooked, X, Y, "with changes"),
    "a forward pass of its own": (patched, X, Y, "with changes"),
    "larger images": (lambda: FlatModel(paper_cnn()), *images(shape=(1, 16, 12)), "the samples do not fit"),
    "colour images": (lambda: FlatModel(paper_cnn()), *images(shape=(3, 12, 12)), "the samples do not fit"),
    "flat images": (lambda: FlatModel(paper_cnn()), X.reshape(len(X), -1), Y, "the samples do not fit"),
    "too many hidden units": (lambda: FlatModel(PaperCNN((1, 4, 4), 4, 4097)), *images(4, (1, 4, 4)), "too large"),
}


@needs_kernel
@pytest.mark.parametrize("prunable", [(), ("conv2", "fc1")], ids=str)
def test_the_papers_cnn_is_trained_natively_unless_torch_is_asked_for(prunable):
    model = FlatModel(paper_cnn(), prunable=prunable)
    assert [kernel_for(wanted, model, X, Y) for wanted in ("auto", "native", "torch")] == ["native", "native", "torch"]


@needs_kernel
@pytest.mark.parametrize("other", OTHERS)
def test_anything_else_is_trained_by_torch_and_asking_for_native_says_why_not(other):
    build, x, y, reason = OTHERS[other]
    model = build()
    assert kernel_for("auto", model, x, y) == kernel_for("torch", model, x, y) == "torch"
    with pytest.raises(InvalidValue, match=rf"^Scenario\.train\.kernel cannot be native: .*{reason}.*, got 'native'\."):
        kernel_for("native", model, x, y)


def test_without_the_kernel_everything_is_trained_by_torch(no_kernel):
    model = FlatModel(paper_cnn())
    assert kernel_for("auto", model, X, Y) == kernel_for("torch", model, X, Y) == "torch"
    with pytest.raises(InvalidValue, match=r"^Scenario\.train\.kernel cannot be native: it was not built \(no comp"):
        kernel_for("native", model, X, Y)


# One device.


KEEP = FlatModel(paper_cnn()).prunable_weights // 2


def trained(kernel: str, importance: str = "magnitude", **changes) -> tuple[FlatModel, Upload]:
    """One edge round of 12 steps that keeps half of the weights."""
    settings = LocalSettings(batch_size=16, local_epochs=2, momentum=0.9, kernel=kernel, **changes)
    model = FlatModel(paper_cnn())
    method = Method.of(ap.Scenario().with_("masking.probe.importance", importance)).local
    wire = Wire(value_bits=64.0, num_weights=model.shape.num_weights, num_tensors=4)
    device = Device(model, X, Y, settings, method, wire)
    orders = Orders(device=3, keep=KEEP, learning_rate=0.02, round_index=0)
    received = Broadcast(model=model.state_array.copy())
    return model, device_round(device, received, orders, samples=np.arange(90), streams=Streams(0, 0, 0))


@needs_kernel
def test_a_device_trains_alike_with_either_kernel():
    (model, ours), (_, theirs) = trained("native"), trained("torch")
    moved = np.abs(ours.state - FlatModel(paper_cnn()).state_array)[: model.prunable.start].max()
    assert moved > 0.01 and ours.loss != theirs.loss  # both have trained, and not by the same kernel
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)  # float32
    np.testing.assert_array_equal(ours.mask, theirs.mask)
    # Rounding alone is a thousandth of this; in twelve steps a near tie of the pooling may fall the other way, which
    # moved weights by 1.8e-4 of the largest move where torch computes with AVX-512.
    np.testing.assert_allclose(ours.state, theirs.state, rtol=0, atol=1e-3 * moved)


@needs_kernel
@pytest.mark.parametrize("importance", ["magnitude", "update", "taylor"])
def test_a_natively_trained_device_keeps_as_many_weights_as_it_was_told(importance):
    model, result = trained("native", importance)
    weights = result.state[model.prunable]
    assert np.count_nonzero(result.mask) == KEEP
    assert np.all(weights[~result.mask] == 0.0) and np.all(weights[result.mask] != 0.0)


@needs_kernel
def test_the_native_probe_ranks_weights_as_torchs_does():
    ours, theirs = (trained(kernel, "update")[1].mask for kernel in ("native", "torch"))
    assert np.count_nonzero(ours != theirs) <= KEEP // 200  # rounding may swap a few at the threshold


@needs_kernel
def test_either_kernel_measures_the_same_gradient_statistics():
    ours, theirs = (trained(kernel, diagnostics=True)[1] for kernel in ("native", "torch"))
    for name in ("gradient_sq_max", "gradient_noise_sq", "smoothness", "pruning_error_sq"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-4)  # float32, and a near tie


# Whole runs.


def scenario(**changes) -> ap.Scenario:
    """The paper's CNN on glyphs: four devices of 20 samples, more than half of the weights pruned."""
    values = {
        "data.train_samples": 80,
        "data.test_samples": 40,
        "plan.deadline_s": 0.012,
        "rounds.global_rounds": 2,
        **SERIAL,
    }
    return ap.Scenario.preset("smoke").with_values({**values, **changes})


def run_to(folder: Path, **changes) -> tuple[bytes, bytes]:
    list(ap.run(scenario(**changes), out=folder, resume=True))
    return final_bytes(folder)


def stop(folder: Path, records: int, **changes) -> None:
    run = ap.run(scenario(**changes), out=folder)
    for _ in range(records):
        next(run)
    run.close()


def last_record(result: tuple[bytes, bytes]) -> dict:
    return json.loads(result[1].splitlines()[-1])


def kernel_told(folder: Path) -> str:
    return json.loads((folder / "environment.json").read_text())["kernel"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[bytes, bytes]:
    """What a run ends in that nobody stops."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    result = run_to(folder)
    assert kernel_told(folder) == "native" and len(result[1].splitlines()) == 6
    assert last_record(result)["mean_pruning_ratio"] > 0.5
    return result


@needs_kernel
def test_worker_processes_end_in_the_bytes_of_one_process(tmp_path, undisturbed):
    assert run_to(tmp_path / "run", **TWO_WORKERS) == undisturbed
    assert kernel_told(tmp_path / "run") == "native" and this_process_workers() == []


@needs_kernel
def test_a_run_can_be_asked_to_use_torch_and_ends_close(tmp_path, undisturbed):
    result = run_to(tmp_path / "run", **{"train.kernel": "torch"})
    assert kernel_told(tmp_path / "run") == "torch" and result[0] != undisturbed[0]
    assert last_record(result)["test_loss"] == pytest.approx(last_record(undisturbed)["test_loss"], rel=1e-3)


@needs_kernel
@pytest.mark.parametrize(("records", "engine"), [(1, SERIAL), (4, SERIAL), (3, TWO_WORKERS)], ids=["1", "4", "workers"])
def test_a_stopped_run_ends_in_the_same_bytes(tmp_path, undisturbed, records, engine):
    stop(tmp_path / "run", records, **engine)
    assert run_to(tmp_path / "run") == undisturbed


def there_is(kernel: str, monkeypatch) -> None:
    monkeypatch.setattr(native, "trouble", "" if kernel == "native" else "it was not built")


@needs_kernel
def test_a_native_run_does_not_go_on_where_there_is_no_kernel(tmp_path, monkeypatch, undisturbed):
    folder = tmp_path / "run"
    stop(folder, 3)
    files = [folder / "records.jsonl", folder / "checkpoint" / "state.safetensors", folder / "environment.json"]
    before = [file.read_bytes() for file in files]
    there_is("torch", monkeypatch)
    with pytest.raises(UsageError) as refusal:
        run_to(folder)
    assert str(refusal.value).startswith(f"{folder} was trained with the native kernel, which cannot be used here: it")
    assert str(refusal.value).endswith(".") and "\n" not in str(refusal.value)
    assert [file.read_bytes() for file in files] == before
    there_is("native", monkeypatch)
    assert run_to(folder) == undisturbed
    there_is("torch", monkeypatch)
    assert list(ap.run(scenario(), out=folder, resume=True)) == []  # nothing is left to train


@needs_kernel
def test_a_run_begun_with_torch_goes_on_with_torch_where_there_is_a_kernel(tmp_path, monkeypatch):
    there_is("torch", monkeypatch)
    whole = run_to(tmp_path / "whole")
    stop(tmp_path / "run", 3)
    there_is("native", monkeypatch)
    assert run_to(tmp_path / "run") == whole
    assert kernel_told(tmp_path / "run") == "torch"


@needs_kernel
def test_a_run_without_a_checkpoint_starts_over_with_the_kernel_there_is(tmp_path, monkeypatch, undisturbed):
    there_is("torch", monkeypatch)
    stop(tmp_path / "run", 1)
    (tmp_path / "run" / "checkpoint" / "state.safetensors").unlink()
    there_is("native", monkeypatch)
    assert run_to(tmp_path / "run") == undisturbed
    assert kernel_told(tmp_path / "run") == "native"


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """What `airprune run` says to a request that must be wrong."""

    def call(*overrides: str) -> str:
        monkeypatch.chdir(tmp_path)
        status = main(["run", "smoke", "data.train_samples=80", "train.kernel=native", *overrides])
        out, err = capsys.readouterr()
        assert status == 2 and out == "" and list(tmp_path.iterdir()) == []
        assert err.startswith("error: Scenario.train.kernel cannot be native: ") and err.count("\n") == 1
        return err

    return call


@needs_kernel
def test_run_refuses_the_native_kernel_for_what_it_cannot_train(refused):
    assert "the model is not the paper's CNN" in refused("model.name=mlp")
    assert "not in float32" in refused("model.float64=true")


def test_run_refuses_the_native_kernel_where_there_is_none(refused, no_kernel):
    assert "it was not built (no compiler), got 'native'. Use auto or torch." in refused()
