"""Any torch module trains, by any loss; what does not fit is refused in one sentence before the first round."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import airprune as ap
from airprune.components.component import paper_shape
from airprune.engines.serial import SerialEngine
from airprune.methods.aggregation.steps import STEPS
from airprune.models.catalogue import FlatModel, ResNet8, build_model
from airprune.models.losses import LOSSES
from airprune.models.losses.base import Loss, Metric
from airprune.rounds.edge import close_round
from airprune.rounds.experiment import Experiment
from airprune.runs.checkpoint import read
from airprune.runs.driver import InProcess
from airprune.simulation import run_rounds
from support.tiny import blobs, tiny_scenario

RNG = np.random.default_rng(0)
X, NUMBERS = RNG.normal(size=(120, 12)), RNG.normal(size=120)


def line(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, outputs))


def last_of(scenario=None, **given):
    *_, last = ap.run(scenario or tiny_scenario(), **given)
    return last


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


# Losses


def test_cross_entropy_by_name_by_torchs_function_and_by_default_are_the_same():
    records = [list(ap.run(tiny_scenario(), dataset=blobs(), **given)) for given in ({}, {"loss": F.cross_entropy})]
    assert records[0] == records[1] and "test_accuracy" in records[0][-1]


def test_squared_errors_are_what_torch_computes_by_hand():
    outputs, targets = torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0])
    assert LOSSES["mse"].mean(outputs, targets) == pytest.approx((1 + 4) / 2)
    assert LOSSES["huber"].mean(outputs, targets) == pytest.approx((0.5 + 1.5) / 2)


def test_a_model_of_numbers_learns_them_and_is_judged_by_absolute_errors():
    targets = X @ np.arange(12) / 10
    scenario = tiny_scenario(rounds__global_rounds=4)
    first, *_, last = (r for r in ap.run(scenario, model=line(), dataset=(X, targets), loss="mse") if "test_mae" in r)
    assert "test_accuracy" not in last
    assert last["test_loss"] < 0.5 * first["test_loss"] and last["test_mae"] < first["test_mae"]


def test_the_catalogues_models_have_as_many_outputs_as_targets_have_numbers():
    last = last_of(dataset=(X, RNG.normal(size=(120, 3))), loss="mse")
    assert last["test_mae"] > 0


def test_functions_of_a_script_reach_worker_processes_and_are_recorded_by_name(tmp_path):
    scenario = tiny_scenario(engine__name="processes", engine__workers=1, rounds__global_rounds=1)
    given = {
        "model": line(),
        "dataset": (X, NUMBERS),
        "loss": lambda outputs, targets: (outputs[:, 0] - targets).abs().mean(),
        "metric": lambda outputs, targets: float(len(targets)),
    }
    given["metric"].__name__ = "batch-size"
    *_, last = ap.run(scenario, out=tmp_path, **given)
    assert last["test_batch_size"] == 24  # one minibatch of all test samples: its mean is its size
    text = (tmp_path / "scenario.toml").read_text()
    assert 'loss = "own:lambda"' in text and 'metric = "own:batch_size"' in text
    with pytest.raises(ap.InvalidValue, match=r"train\.loss names a function of the script.*Give it again"):
        ap.run(ap.Scenario.load(tmp_path / "scenario.toml"), out=tmp_path, resume=True)
    with pytest.raises(ap.UsageError, match=r"train\.loss is 'own:lambda' there, 'mse' here"):
        list(ap.run(scenario, out=tmp_path, resume=True, **given | {"loss": "mse"}))
    assert not list(ap.run(scenario, out=tmp_path, resume=True, **given))


def test_a_registered_loss_and_metric_are_choices_of_scenarios(unregistered):
    ap.register(Loss(name="cubed", summary="", mean=lambda o, y: (o[:, 0] - y).abs().pow(3).mean(), metric="worst"))
    ap.register(Metric(name="worst", summary="", mean=lambda o, y: (o[:, 0] - y).abs().max()))
    assert last_of(tiny_scenario(train__loss="cubed"), model=line(), dataset=(X, NUMBERS))["test_worst"] > 0
    with pytest.raises(ap.UsageError, match=r"Scenario\.train\.loss 'cubbed' is unknown; did you mean 'cubed'"):
        tiny_scenario(train__loss="cubbed")


def test_the_usual_loss_metric_and_device_leave_the_hash_of_a_scenario_alone():
    scenario = ap.Scenario()
    changed = {scenario.with_(f"train.{key}", value).hash for key, value in (("loss", "mse"), ("device", "auto"))}
    assert len(changed | {scenario.hash}) == 3
    assert scenario.hash == ap.Scenario.from_text("[train]\nloss = 'cross-entropy'").hash


# What does not fit


class Two(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


class Detached(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"model": nn.Linear(5, 4)},
            r"run\.model must take minibatches of shape \[4, 12\] and type float32, got Runtime",
        ),
        ({"model": nn.Linear(12, 3)}, r"run\.model must give scores of shape \[samples, 4\].*got \(4, 3\)"),
        ({"model": Two(12, 4)}, "must give one tensor, got tuple"),
        ({"model": Detached(12, 4)}, "must be a function of its parameters"),
        ({"dataset": (X.astype(int), np.arange(120) % 4)}, r'type int64.*give x.astype\("float32"\)'),
        ({"dataset": (X, NUMBERS)}, r'vector of whole numbers.*loss of numbers, e\.g\. loss="mse"'),
        (
            {"dataset": (X, NUMBERS), "loss": nn.L1Loss()},
            r"run\.loss \(l1loss\) must take outputs \[4, 1\] and targets",
        ),
        ({"dataset": (X, NUMBERS), "loss": lambda o, y: o}, r"run\.loss must give one number.*got shape \(4, 1\)"),
        ({"dataset": (X, NUMBERS), "loss": nn.L1Loss}, r"run\.loss must be a function.*got the class L1Loss"),
        ({"dataset": (X, NUMBERS), "loss": "mse", "metric": lambda o, y: o}, r"run\.metric must give one number"),
        (
            {"model": normed(), "scenario": {"train__batch_size": 13}},
            r"batch_size must leave no minibatch of one sample",
        ),
    ],
)
def test_a_misfit_is_one_sentence_before_the_first_round(given, sentence):
    scenario = tiny_scenario(**given.pop("scenario", {}))
    with pytest.raises(ap.InvalidValue, match=sentence) as caught:
        ap.run(scenario, **{"dataset": blobs(), "model": line(), **given})
    assert "\n" not in str(caught.value)


def test_the_batch_size_that_is_proposed_trains():
    with pytest.raises(ap.InvalidValue, match=r"train\.batch_size = 12"):
        ap.run(tiny_scenario(train__batch_size=13), model=normed(), dataset=blobs())
    assert last_of(tiny_scenario(train__batch_size=12), model=normed(), dataset=blobs())["test_accuracy"] > 0.25


def test_the_dry_pass_leaves_weights_buffers_and_random_numbers_alone():
    model = nn.Sequential(normed(), nn.Dropout(0.5))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    ap.run(tiny_scenario(), model=model, dataset=blobs())
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


# Batch normalisation and other buffers


def test_resnet_8_has_77_360_weights_and_buffers_behind_them():
    flat = FlatModel(build_model("resnet-8", input_shape=(3, 32, 32), num_classes=10, seed=0), prunable=["*"])
    assert (flat.prunable_weights, flat.fixed_weights) == (77_360, 0)
    channels = 16 + 2 * (16 + 32 + 64)  # of the batch norms
    assert flat.num_state - flat.num_parameters == 2 * channels


def test_resnet_8_with_batch_norm_trains_pruned_and_resumes_to_the_same_bytes(tmp_path):
    images = RNG.normal(size=(48, 3, 8, 8)).astype(np.float32)
    labels = (images[:, 0].mean(axis=(1, 2)) > 0).astype(int)
    changes = {"model__name": "resnet-8", "model__prunable": ["*"], "train__batch_size": 4, "plan__deadline_s": 0.04}
    scenario = tiny_scenario(**changes, rounds__edge_rounds=1)
    whole = list(ap.run(scenario, dataset=(images, labels), out=tmp_path / "whole"))
    assert 0.05 < whole[-1]["mean_pruning_ratio"] < 0.9
    part = ap.run(scenario, dataset=(images, labels), out=tmp_path / "part")
    next(part), next(part)
    part.close()
    list(ap.run(scenario, dataset=(images, labels), out=tmp_path / "part", resume=True))
    finals = [(tmp_path / name / "final.safetensors").read_bytes() for name in ("whole", "part")]
    assert finals[0] == finals[1]
    arrays, _ = read(tmp_path / "whole" / "final.safetensors")
    assert (arrays["norm.running_var"] > 0).all() and not np.allclose(arrays["norm.running_mean"], 0)


def test_running_means_are_averaged_over_devices():
    """With one device per edge and a momentum of 1 a device's running mean is its last minibatch's."""
    model = nn.Sequential(nn.BatchNorm1d(12, momentum=1.0, affine=False), nn.Linear(12, 4))
    scenario = tiny_scenario(
        network__num_edges=2, network__devices_per_edge=1, rounds__global_rounds=1, rounds__edge_rounds=1,
        train__batch_size=200, train__local_epochs=1,
    )  # fmt: skip
    experiment = Experiment.of(scenario, model=model, dataset=blobs())
    state = experiment.initial_state()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        list(run_rounds(experiment, engine, state))
    part = next(part for part in experiment.model.parts if part.name == "0.running_mean")
    means = [experiment.dataset.train_x[own].mean(axis=0) for own in experiment.samples]
    np.testing.assert_allclose(part.view(state.global_state), np.mean(means, axis=0), rtol=1e-4, atol=1e-5)  # float32


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_server_steps_move_weights_but_take_buffers_as_combined(name):
    step = STEPS[name]()
    previous, combined = np.array([1.0, 0.05], np.float32), np.array([0.5, 0.01], np.float32)
    values = {f"cloud_step/{slot.name}": np.zeros(2) for slot in step.slots(paper_shape())}
    for _ in range(3):
        model, values = close_round(step, "cloud_step", previous, combined, None, values, num_parameters=1)
    assert model[1] == combined[1] and model[0] != combined[0]


def test_fedadam_keeps_a_batch_normalised_model_finite():
    scenario = tiny_scenario(method="fedadam", aggregation__adam__rate=1.0)
    last = last_of(scenario, model=normed(), dataset=blobs())
    assert last["test_loss"] is not None


def test_an_own_residual_network_on_images_trains(one_thread):
    images = RNG.normal(size=(60, 3, 8, 8))
    last = last_of(model=ResNet8((3, 8, 8), 2), dataset=(images, np.arange(60) % 2))
    assert 0.0 <= last["test_accuracy"] <= 1.0
