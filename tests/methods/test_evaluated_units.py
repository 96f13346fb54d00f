"""Evaluation of sub-model methods: only weights that some device has trained, with the factors of their training."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.methods.masking import MASKINGS
from airprune.models.catalogue import MLP, FlatModel
from support.played import round_view
from support.tiny import blobs, last_state, tiny_scenario

pytestmark = pytest.mark.usefixtures("one_thread")
# Time for half of the hidden units, not for all.
HALF = {"plan.scheme": "equal-resolved", "plan.deadline_s": 3.6e-4}


@pytest.mark.parametrize(
    ("name", "options", "units", "expected"),
    [
        ("heterofl", {}, [0, 1], -1.0),
        ("heterofl", {}, [0], 1.0),
        ("fjord", {"widths": [0.25, 0.5, 1.0]}, [0, 1], -1.0),
        ("fjord-kd", {"widths": [0.25, 0.5, 1.0]}, [0, 1], -1.0),
        ("feddrop", {}, [0, 1], -2.0),  # (1 − 2) · 4/2
        ("feddrop", {"scale": False}, [0, 1], -1.0),
        ("afd", {}, [0, 1], -1.0),
    ],
)
@pytest.mark.parametrize("poison", [1e6, np.nan])
def test_a_unit_that_no_device_has_trained_is_no_part_of_the_evaluated_model(name, options, units, expected, poison):
    model = FlatModel(nn.Sequential(nn.Linear(1, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False)))
    weights = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 5.0, 6.0]], dtype=np.float32)
    weights[:, [n for n in range(4) if n not in units]] = poison
    masking, shape, state = MASKINGS[name](**options), model.shape, weights.ravel()
    values = {slot.name: slot.row(shape) for slot in masking.slots(shape)}
    assert masking.evaluated(shape, state, values) is state  # the initial model
    values[f"{name}.trained"] = shape.units.mask([np.isin(np.arange(4), units)])
    if name == "heterofl":
        values["heterofl.widest"] = np.array([len(units) / 4])
    model.load(masking.evaluated(shape, state, values))
    assert model.module(torch.ones(1, 1)).item() == expected
    assert np.array_equal(state, weights.ravel(), equal_nan=True)  # the cloud keeps what it has
    values[f"{name}.trained"][:] = True
    assert masking.evaluated(shape, state, values) is state


def test_heterofl_scales_a_width_by_that_of_the_widest_device_and_evaluates_the_widest_without_a_factor():
    """The authors' Scaler: activations over (p / P), P the rate of the server's model; off when the model is tested."""
    shape = FlatModel(nn.Sequential(nn.Linear(1, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False))).shape
    masking, model = MASKINGS["heterofl"](), np.arange(1.0, 9.0)
    values = {slot.name: slot.row(shape) for slot in masking.slots(shape)}
    shared, values = masking.prepare(round_view(shape, [2, 4], model), values)  # one unit and two of four
    assert shared.tolist() == [0.5]
    narrow, widest = (masking.choose(SimpleNamespace(shape=shape, keep=keep, shared=shared)) for keep in (2, 4))
    assert narrow.scale[4:].tolist() == [2.0] * 4 and widest.scale is None  # weights that read the units
    values["heterofl.trained"] = widest.sent
    assert masking.evaluated(shape, model, values).tolist() == [1, 2, 0, 0, 5, 6, 0, 0]
    values["heterofl.trained"] = narrow.sent  # the wide device's uploads are lost: the narrow model, as it trains
    assert masking.evaluated(shape, model, values).tolist() == [1, 0, 0, 0, 10, 0, 0, 0]
    shared, values = masking.prepare(round_view(shape, [2, 2], model), values)
    assert shared.tolist() == [0.5]  # the widest of the run
    assert masking.prepare(round_view(shape, [2, 8], model), values)[0].tolist() == [1.0]


@pytest.mark.parametrize("method", ["heterofl", "fjord", "fjord-kd"])
def test_initial_values_of_untrained_units_change_no_evaluation(method):
    ends = []
    for poison in (0.0, 1e6):
        torch.manual_seed(0)
        module = MLP((12,), 4)
        with torch.no_grad():
            module.fc1.weight[32:], module.fc2.weight[:, 32:] = poison, poison
        widths = {f"masking.{method}.widths": [0.25, 0.5, 1.0]}
        records = list(ap.run(tiny_scenario(method=method, **HALF, **widths), dataset=blobs(), model=module))
        assert {kept for record in records for kept in record.get("kept_weights", ())} == {256, 512}
        ends.append([record for record in records if "test_loss" in record])
    assert len(ends[0]) == 2 and ends[0] == ends[1]


@pytest.mark.parametrize("method", ["heterofl", "fjord", "afd", "feddrop-uniform"])
def test_where_all_devices_hold_one_sub_model_it_is_the_one_that_is_evaluated(method):
    one = {"rounds.global_rounds": 1, "rounds.edge_rounds": 1, "diagnostics.sub_models": True}
    widths = {f"masking.{method}.widths": [0.5, 1.0]} if method in ("heterofl", "fjord") else {}
    scenario = tiny_scenario(**{"method": method, **HALF, **one, **widths})
    first, last = ap.run(scenario, dataset=blobs())
    assert len({kept for kept in first["kept_weights"] if kept}) == 1 and max(first["kept_weights"]) < 1_024
    assert last["test_accuracy"] == last["device_accuracy"]


@pytest.mark.parametrize("method", ["heterofl", "fjord", "fjord-kd", "afd", "afd-multi", "feddrop", "feddrop-uniform"])
def test_a_weight_that_has_moved_is_marked_as_trained(method):
    values = {"method": method, "network.devices_per_edge": 1, "rounds.edge_rounds": 1, **HALF, "plan.deadline_s": 1e-4}
    state, _, experiment = last_state(tiny_scenario(**values))
    shape, start = experiment.shape, experiment.initial_state().global_state
    trained = state.values[f"{experiment.method.masking.name}.trained"]
    moved = ~np.isclose(state.global_state, start, rtol=1e-6, atol=0.0)[shape.prunable]
    assert moved.any() and not np.any(moved & ~trained) and not trained.all()


@pytest.mark.parametrize("masking", ["heterofl", "fjord", "fjord-kd", "feddrop", "afd"])
def test_with_time_for_whole_models_records_are_those_of_whole_models(masking):
    options = {f"masking.{masking}.widths": [1.0]} if masking in ("heterofl", "fjord", "fjord-kd") else {}
    sub_models = list(ap.run(tiny_scenario(**{"masking.name": masking, **options}), dataset=blobs()))
    whole = list(ap.run(tiny_scenario(**{"plan.scheme": "no-pruning"}), dataset=blobs()))
    keys = ("test_accuracy", "test_loss", "train_loss")
    assert [[record.get(key) for key in keys] for record in sub_models] == [
        [record.get(key) for key in keys] for record in whole
    ]
