"""The accuracy of what the median device holds of the cloud's model."""

import numpy as np
import pytest
import torch

import airprune as ap
from airprune.methods.masking.core.masks import choose_mask
from support.tiny import blobs, final_bytes, last_state, tiny_scenario

TIGHT = {"diagnostics__sub_models": True, "rounds__global_rounds": 1, "rounds__edge_rounds": 1}


def accuracies(**changes):
    *_, last = ap.run(tiny_scenario(**TIGHT, **changes), dataset=blobs())
    return last["device_accuracy"], last["test_accuracy"]


def test_it_is_that_of_the_model_with_the_masks_zeros():
    scenario = tiny_scenario(**TIGHT, masking__probe__importance="magnitude")
    state, records, experiment = last_state(scenario)
    keep = sorted(zip(records[0]["kept_weights"], records[0]["device"], strict=True))[2][0]
    weights = state.global_state[experiment.shape.prunable]
    mask = choose_mask(
        np.abs(weights), keep=keep, layers=experiment.shape.layers, scope="global", tie_break=np.abs(weights)
    )
    held = state.global_state.copy()
    held[experiment.shape.prunable] *= mask
    model = experiment.model
    model.load(held)
    with torch.no_grad():
        outputs = model.module.eval()(torch.from_numpy(experiment.dataset.test_x))
    expected = float((outputs.argmax(1).numpy() == experiment.dataset.test_y).mean())
    assert records[-1]["device_accuracy"] == pytest.approx(expected, abs=1e-12)


def test_devices_that_hold_whole_models_have_the_clouds_accuracy():
    of_device, of_cloud = accuracies(method="frozen-pruning")
    assert of_device == of_cloud


def test_nothing_is_recorded_unless_asked_for():
    *_, last = ap.run(tiny_scenario(rounds__global_rounds=1), dataset=blobs())
    assert "device_accuracy" not in last


@pytest.mark.parametrize("method", ["adaptive-pruning", "shared-pruning", "dpf"])
def test_a_run_stopped_after_every_record_ends_in_the_same_bytes(method, tmp_path):
    scenario = tiny_scenario(method=method, diagnostics__sub_models=True)
    for _ in ap.run(scenario, out=tmp_path / "whole", dataset=blobs()):
        pass
    stops = 0
    while True:
        records = ap.run(scenario, out=tmp_path / "parts", resume=stops > 0, dataset=blobs())
        found = next(records, None)
        records.close()
        if found is None:
            break
        stops += 1
    assert stops > 2 and final_bytes(tmp_path / "parts") == final_bytes(tmp_path / "whole")
