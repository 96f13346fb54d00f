"""Rivals that plan work, on devices: blocks of layers, frozen layers at 8 bits, averages, limits and clocks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import airprune as ap
from airprune.components.component import Tensor
from airprune.errors import InvalidValue
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.methods.masking.base import SubModel
from airprune.methods.masking.whole import Whole
from airprune.models.catalogue import FlatModel, PaperCNN, ResNet8
from airprune.models.kernels import native
from airprune.models.kernels.autograd import MinibatchLoss, TorchGradient
from airprune.models.kernels.native import NativeGradient
from airprune.rounds.device import device_round
from airprune.rounds.local import Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.sums import add_child
from airprune.rounds.trained_part import round_frozen, trained_part
from support.one_device import device
from support.tiny import last_state, tiny_scenario

UNEQUAL = {
    "network__cpu_hz": 2e8,
    "network__cpu_hz_max": 3e9,
    "clock__compute": "flops",
    "clock__flops_per_cycle": 1e-2,
}
RIVALS = ("steps-that-fit", "fedprox-steps", "timelyfl", "cocofl")


def rival(method: str, **changes) -> ap.Scenario:
    return tiny_scenario(**{"method": method, "plan__deadline_s": "auto", **changes})


def images(shape=(1, 12, 12), count=20):
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, *shape)).astype(np.float32), rng.integers(10, size=count)


def cnn() -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(PaperCNN((1, 12, 12), 10, 8))


# Blocks.


@pytest.mark.parametrize("block", [(0, 0), (1, 1), (0, 1), (1, 2), (2, 2)], ids=str)
@pytest.mark.parametrize("kernel", ["native", "torch"])
def test_gradients_of_a_block_are_those_of_the_whole_model_to_the_bit_and_zero_outside(kernel, block):
    if kernel == "native" and native.trouble:
        pytest.skip(f"no native kernel: {native.trouble}")
    model, batch = cnn(), np.arange(12)
    built = NativeGradient(model, *images()) if kernel == "native" else TorchGradient(MinibatchLoss(model, *images()))
    loss = built(batch)
    whole = model.gradient_array.copy()
    part = trained_part(model, SubModel(first_trained=block[0], last_trained=block[1]))
    assert built.of_part(batch, part) == loss
    inside = np.zeros(model.num_parameters, dtype=bool)
    for tensor in model.shape.tensors:
        inside[tensor.start : tensor.stop] = block[0] <= tensor.layer <= block[1]
    np.testing.assert_array_equal(model.gradient_array[inside], whole[inside])
    assert not model.gradient_array[~inside].any() and np.abs(whole[inside]).max() > 1e-4


def test_normalisation_outside_a_block_takes_its_running_means_and_leaves_them():
    """Of a residual network the block in the middle is trained; running means move in it alone."""
    torch.manual_seed(0)
    model = FlatModel(ResNet8((3, 16, 16), 10))
    before = model.state_array.copy()
    part = trained_part(model, SubModel(first_trained=4, last_trained=9))
    TorchGradient(MinibatchLoss(model, *images((3, 16, 16)))).of_part(np.arange(8), part)
    buffers = [tensor for tensor in model.shape.tensors if tensor.start >= model.num_parameters]
    moved = {t.layer for t in buffers if np.any(model.state_array[t.start : t.stop] != before[t.start : t.stop])}
    assert moved == {t.layer for t in buffers if 4 <= t.layer <= 9} and moved


@pytest.mark.parametrize(("first", "last"), [(0, 4), (2, 1)])
def test_a_block_that_does_not_exist_is_refused(first, last):
    with pytest.raises(InvalidValue, match=r"^SubModel.last_trained must be"):
        trained_part(cnn(), SubModel(first_trained=first, last_trained=last))


@pytest.mark.parametrize("bits", [None, 8])
def test_a_device_that_trains_a_block_sends_it_alone_and_leaves_the_rest_as_received(bits):
    one = device(masking=Whole(frozen_bits=bits), momentum=0.9, weight_decay=0.1)
    start = one.model.state_array.copy()
    orders = Orders(device=3, keep=one.shape.prunable_weights, learning_rate=0.05, round_index=0, last_trained=0)
    upload = device_round(one, Broadcast(model=start), orders, samples=np.arange(60), streams=Streams(0, 0, 0))
    above = np.zeros(len(start), dtype=bool)
    for tensor in one.shape.tensors:
        above[tensor.start : tensor.stop] = tensor.layer == 1
    np.testing.assert_array_equal(upload.state[above], start[above])
    assert np.all(upload.state[~above] != start[~above])
    assert (upload.first_trained, upload.last_trained) == (0, 0)
    assert upload.sent_bits == 64.0 * 12 * 64  # of 12-64-4


def test_the_highest_layer_as_last_is_the_whole_model():
    ends = []
    for last in (None, 1):
        one = device(masking=Whole(frozen_bits=8))
        orders = Orders(device=3, keep=one.shape.prunable_weights, learning_rate=0.05, round_index=0, last_trained=last)
        start = one.model.state_array.copy()
        upload = device_round(one, Broadcast(model=start), orders, samples=np.arange(60), streams=Streams(0, 0, 0))
        ends.append((upload.state.tobytes(), upload.sent_bits, upload.last_trained))
    assert ends[0] == ends[1] and ends[1][2] is None


# Frozen layers at 8 bits.


def test_frozen_weights_are_rounded_like_torch_quantises_them():
    """By the authors' scale, 2 max|w| / 127; biases and the trained layer stay."""
    model = cnn()
    before = model.state_array.copy()
    round_frozen(model, model.shape, SubModel(first_trained=1, last_trained=1, frozen_bits=8))
    for tensor in model.shape.tensors:
        own = slice(tensor.start, tensor.stop)
        if not tensor.counted or tensor.layer == 1:
            np.testing.assert_array_equal(model.state_array[own], before[own])
            continue
        scale = 2.0 * float(np.abs(before[own]).max()) / 127.0
        quantised = torch.fake_quantize_per_tensor_affine(torch.from_numpy(before[own]), scale, 0, -128, 127)
        off = np.abs(model.state_array[own] - quantised.numpy())
        assert np.mean(off > 1e-6) < 1e-3  # torch divides in float32, so a tie may fall to the other side
        assert off.max() <= scale * (1 + 1e-5) and np.any(model.state_array[own] != before[own])


def test_hand_value_of_rounding():
    """Of max 1.27 at 8 bits the step is 0.02: 0.011 → 0.02, −0.009 → 0, 0.5 stays, 1.27 = 63.5 steps → 1.28."""
    one = device()
    shape = replace(one.shape, tensors=(Tensor(name="w", start=0, stop=4, counted=True, layer=0),))
    model = one.model
    model.state_array[:4] = [0.011, -0.009, 0.5, 1.27]
    round_frozen(model, shape, SubModel(first_trained=1, frozen_bits=8))
    np.testing.assert_allclose(model.state_array[:4], [0.02, 0.0, 0.5, 1.28], atol=1e-6)


def test_a_device_trains_its_block_against_the_rounded_layers():
    """The same as training without rounding from a model that was rounded before."""
    orders = Orders(device=3, keep=1024, learning_rate=0.05, round_index=0, last_trained=0)
    one = device(masking=Whole(frozen_bits=4))
    start = one.model.state_array.copy()
    upload = device_round(one, Broadcast(model=start), orders, samples=np.arange(60), streams=Streams(0, 0, 0))
    trained = upload.state.copy()
    other = device(masking=Whole())
    round_frozen(other.model, other.shape, SubModel(last_trained=0, frozen_bits=4))
    rounded = other.model.state_array.copy()
    assert np.any(rounded != start)
    again = device_round(other, Broadcast(model=rounded), orders, samples=np.arange(60), streams=Streams(0, 0, 0))
    below = ~other.shape.frozen_outside(0, 0)
    np.testing.assert_array_equal(trained[below], again.state[below])
    np.testing.assert_array_equal(trained[~below], start[~below])


def test_edges_of_cocofl_move_a_layer_by_the_share_of_devices_that_trained_it():
    """The authors' Algorithm 2: r · mean + (1 − r) · previous; one of two with 3 from 1 gives 2, none leaves 1."""
    fill, previous = AGGREGATIONS["fill"](), np.ones(3)
    total = MaskedSum.zeros(3, slice(0, 3))
    add_child(fill, total, np.array([3.0, 5.0, 1.0]), None, 1.0, previous, (0, 0), frozen=np.array([0, 0, 1], bool))
    add_child(fill, total, np.array([1.0, 7.0, 1.0]), None, 1.0, previous, (1, 1), frozen=np.array([1, 0, 1], bool))
    np.testing.assert_array_equal(fill.finish(total, previous), [2.0, 6.0, 1.0])


# Runs.


@pytest.mark.parametrize("method", RIVALS)
@pytest.mark.parametrize("clock", [UNEQUAL, {"plan__cycles_per_weight": 1e4}], ids=["device clock", "paper's clock"])
def test_rivals_take_every_device_and_meet_the_deadline_that_they_find(method, clock):
    state, records, experiment = last_state(rival(method, **clock))
    edges = [record for record in records if record["kind"] == "edge"]
    for record in edges:
        assert set(record["fate"]) == {"ok"} and set(record["edge_status"]) == {"ok"}
        assert np.all(np.add(record["compute_s"], record["uplink_s"]) <= record["deadline_s"] * (1 + 1e-9))
        assert min(record["local_steps"]) >= 1
        last = record.get("last_trained", (experiment.shape.num_layers - 1,) * len(record["device"]))
        sent = []
        for a, b in zip(record["first_trained"], last, strict=True):
            inside = [t for t in experiment.shape.tensors if t.counted and a <= t.layer <= b]
            sent.append(sum(t.stop - t.start for t in inside))
        assert record["uploaded_weights"] == sum(sent) and record["uploaded_bits"] == 32.0 * sum(sent)
    assert records[-1]["test_accuracy"] > 0.5 and np.isfinite(state.global_state).all()


def test_without_proximal_term_fedprox_with_unequal_work_is_steps_that_fit():
    plain, prox = (
        last_state(rival(method, **UNEQUAL, **changes))[0].global_state
        for method, changes in (("steps-that-fit", {}), ("fedprox-steps", {"objective__prox.mu": 0.0}))
    )
    np.testing.assert_array_equal(plain, prox)


def test_steps_that_fit_are_unequal_and_of_whole_models():
    _, records, _ = last_state(rival("steps-that-fit", **UNEQUAL))
    assert len({*records[0]["local_steps"]}) > 1 and set(records[0]["first_trained"]) == {0}


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("cocofl", {"plan__cocofl.strong": 1.0}),
        ("timelyfl", {"plan__timelyfl.participation": 1.0, "plan__timelyfl.max_epochs": 1, "train__local_epochs": 1}),
    ],
)
def test_a_rival_with_time_for_all_is_hierarchical_averaging(method, changes):
    edge = "data-weighted" if method == "timelyfl" else "masked-mean"
    common = {key: value for key, value in changes.items() if key.startswith("train")} | UNEQUAL
    opened = last_state(rival(method, **(UNEQUAL | changes)))[0].global_state
    averages = {"aggregation__edge": edge, "aggregation__cloud": edge}
    plain = tiny_scenario(method="fp32", plan__deadline_s=1e6, masking__name="whole", **averages, **common)
    np.testing.assert_array_equal(opened, last_state(plain)[0].global_state)


def test_slow_devices_of_timelyfl_train_last_layers_and_fast_ones_more_epochs():
    _, records, experiment = last_state(rival("timelyfl", **UNEQUAL))
    record = records[0]
    speed = experiment.network.cpu_hz[record["device"]]
    assert record["first_trained"][int(np.argmin(speed))] == 1
    assert record["local_steps"][int(np.argmax(speed))] > min(record["local_steps"])
    assert record["first_trained"][int(np.argmax(speed))] == 0


def test_a_device_draws_its_block_by_a_number_of_its_own_in_every_round():
    """Whatever other devices take part; another round has another number."""
    _, _, experiment = last_state(rival("cocofl", rounds__global_rounds=1, **UNEQUAL))
    work = experiment.context.local_work
    sizes, seconds = experiment.data_sizes.astype(float), np.ones(6)
    every = work.model(sizes, seconds, 0.0, 7, np.arange(6)).draw
    some = work.model(sizes[[1, 4]], seconds[[1, 4]], 0.0, 7, np.array([1, 4])).draw
    np.testing.assert_array_equal(every[[1, 4]], some)
    later = work.model(sizes, seconds, 0.0, 8, np.arange(6)).draw
    assert len({*every.tolist(), *later.tolist()}) == 12 and np.all((every >= 0.0) & (every < 1.0))
