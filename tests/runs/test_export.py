"""The trained model of a run folder: as a torch module, as tensors, as ONNX."""

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.rounds.experiment import Experiment
from airprune.runs.exporting import export_onnx
from support.tiny import blobs, tiny_file, tiny_scenario


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of the catalogue's model on the catalogue's data: (folder, its last record, its scenario)."""
    folder = tmp_path_factory.mktemp("run")
    scenario = ap.Scenario.load(tiny_file(folder, global_rounds=1)).with_("engine.name", "serial")
    *_, last = ap.run(scenario, out=folder / "run")
    return folder / "run", last, scenario


def test_the_loaded_model_has_the_recorded_accuracy(trained):
    folder, last, scenario = trained
    model, data = ap.load_model(folder), Experiment.of(scenario).dataset
    found = model(torch.from_numpy(data.test_x.copy())).argmax(1).numpy()
    assert (found == data.test_y).mean() == pytest.approx(last["test_accuracy"], abs=1e-12) and not model.training


def test_the_command_writes_tensors_that_torch_loads_without_running_anything(trained, command):
    folder, _, _ = trained
    assert command("export", folder)[:2] == (0, f"{folder / 'final.pt'}\n")
    tensors = torch.load(folder / "final.pt", weights_only=True)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in ap.load_model(folder).state_dict().items())


def test_onnx_gives_the_outputs_of_torch_for_any_number_of_samples(trained, command, tmp_path):
    from onnx.reference import ReferenceEvaluator

    folder, _, _ = trained
    status, out, _ = command("export", folder, "--format", "onnx", "--out", tmp_path / "mlp.onnx")
    assert (status, out) == (0, f"{tmp_path / 'mlp.onnx'}\n")
    evaluator, model = ReferenceEvaluator(str(tmp_path / "mlp.onnx")), ap.load_model(folder)
    for count in (1, 5):
        x = torch.randn(count, 1, 28, 28)
        (outputs,) = evaluator.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(outputs, model(x).detach(), rtol=1e-4, atol=1e-5)  # float32


def test_models_of_ones_own_must_be_given_and_are_not_changed(tmp_path):
    model = nn.Sequential(nn.Linear(12, 4))
    before = model[0].weight.clone()
    list(ap.run(tiny_scenario(rounds__global_rounds=1), model=model, dataset=blobs(), out=tmp_path / "run"))
    with pytest.raises(ap.InvalidValue, match=r"must have the tensors.*Give the one that was trained"):
        ap.load_model(tmp_path / "run")
    with pytest.raises(ap.InvalidValue, match="size mismatch"):
        ap.load_model(tmp_path / "run", model=nn.Sequential(nn.Linear(11, 4)))
    loaded = ap.load_model(tmp_path / "run", model=model)
    assert torch.equal(model[0].weight, before) and not torch.equal(loaded[0].weight, before)


def test_models_that_stay_apart_are_a_list(tmp_path):
    scenario = tiny_scenario(topology__name="ensemble", rounds__global_rounds=1)
    list(ap.run(scenario, dataset=blobs(), out=tmp_path / "run"))
    model = Experiment.of(scenario, dataset=blobs()).model.module
    loaded = ap.load_model(tmp_path / "run", model=model)
    assert isinstance(loaded, nn.ModuleList) and len(loaded) == 2
    with pytest.raises(ap.UsageError, match="has trained 2 models"):
        export_onnx(tmp_path / "run", tmp_path / "x.onnx", model=model)


def test_what_is_no_finished_run_is_refused_in_a_sentence(tmp_path, command):
    assert command("export", tmp_path)[0] == 2
    records = ap.run(tiny_scenario(), dataset=blobs(), out=tmp_path / "run")
    next(records)
    records.close()
    status, _, error = command("export", tmp_path / "run")
    assert status == 2 and "has no final model yet; finish the run with --resume" in error
