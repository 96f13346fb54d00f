"""Gradients of a trained part: the bits of the whole model's, zero below, and the same from kept features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from airprune.errors import InvalidValue
from airprune.methods.masking.base import SubModel
from airprune.models.catalogue import MLP, FlatModel, PaperCNN, ResNet8
from airprune.models.kernels import native
from airprune.models.kernels.autograd import MinibatchLoss, TorchGradient
from airprune.models.kernels.base import Features, TrainedPart, visited_again
from airprune.models.kernels.layers import Stretch
from airprune.models.kernels.native import NativeGradient
from airprune.models.kernels.partial import cut
from airprune.models.kernels.stacked import Stack
from airprune.rounds.trained_part import trained_part

pytestmark = pytest.mark.usefixtures("one_thread")
needs_native = pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}")

NUM_SAMPLES = 40
PLENTY = 10**9


def images(shape=(1, 12, 12), classes=10, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(NUM_SAMPLES, *shape)).astype(np.float32)
    x[:, :, :4] = 0.25  # an even background, which the native kernel computes once
    return x, rng.integers(classes, size=NUM_SAMPLES)


def model_of(module, seed=0, **options):
    torch.manual_seed(seed)
    return FlatModel(module(), **options)


def cnn(shape=(1, 12, 12), hidden=8):
    return model_of(lambda: PaperCNN(shape, 10, hidden))


def batch_of(seed, size=16):
    return np.random.default_rng(seed).integers(NUM_SAMPLES, size=size)


def part_of(model, first_trained, **roles):
    part = trained_part(model, SubModel(first_trained=first_trained, **roles))
    assert part is not None
    return part


def check_part(gradient, model, first, batch):
    """Loss and gradient of what is trained are those of the whole model to the bit; the rest is zero."""
    loss = gradient(batch)
    whole = model.gradient_array.copy()
    model.gradient_array[:] = np.nan  # nothing of an earlier gradient may be left
    assert gradient.of_part(batch, part_of(model, first)) == loss
    frozen = model.shape.frozen_below(first)[: model.num_parameters]
    assert frozen.any() and not frozen.all()
    assert not model.gradient_array[frozen].any()
    np.testing.assert_array_equal(model.gradient_array[~frozen], whole[~frozen])
    assert np.abs(whole[~frozen]).max() > 1e-4  # nothing agrees by being zero


# What is frozen is numbered by layer.


def test_layers_of_the_papers_cnn_are_numbered_from_the_input_to_the_output():
    model = cnn()
    expected = {
        f"{name}.{part}": n for n, name in enumerate(("conv1", "conv2", "fc1", "fc2")) for part in ("weight", "bias")
    }
    assert {tensor.name: tensor.layer for tensor in model.shape.tensors} == expected
    assert model.shape.num_layers == 4
    assert np.count_nonzero(model.shape.frozen_below(1)) == 32 * 9 + 32  # conv1 with its bias


def test_buffers_belong_to_their_layer_and_frozen_parameters_to_the_one_before():
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, affine=False), nn.Flatten(), nn.Linear(400, 3))
    layers = {tensor.name: tensor.layer for tensor in model_of(lambda: module).shape.tensors}
    assert layers == {
        "0.weight": 0, "0.bias": 0, "1.running_mean": 0, "1.running_var": 0, "3.weight": 1, "3.bias": 1,
    }  # fmt: skip


def test_the_whole_model_is_no_part():
    model = cnn()
    assert trained_part(model, SubModel()) is None
    every = np.ones(model.prunable_weights, dtype=bool)
    assert trained_part(model, SubModel(moves=every)) is None


@pytest.mark.parametrize("first", [4, -1])
def test_a_layer_that_does_not_exist_is_refused(first):
    with pytest.raises(InvalidValue, match=r"^SubModel.first_trained must be .* 4 layers, counted from 0, got"):
        trained_part(cnn(), SubModel(first_trained=first))


def test_tensors_of_which_no_weight_moves_are_left_out_and_their_biases_stay():
    model = cnn()
    moves = np.zeros(model.prunable_weights, dtype=bool)
    moves[model.layers.layers[1].span] = True  # fc2, as when it is its turn
    part = trained_part(model, SubModel(moves=moves, sent=moves))
    left_out = [own.name for own, is_trained in zip(model.parts, part.tensors, strict=True) if not is_trained]
    assert left_out == ["fc1.weight"] and part.first_trained == 0
    assert trained_part(model, SubModel(moves=moves, held=moves)) is None  # zeros keep their sign


# Native.


@needs_native
@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 8, 10)], ids=str)
@pytest.mark.parametrize("instruction_set", native.instruction_sets)
def test_native_gradients_of_a_part_are_those_of_the_whole_model_to_the_bit(first, shape, instruction_set):
    model = cnn(shape)
    gradient = NativeGradient(model, *images(shape), instruction_set=instruction_set)
    check_part(gradient, model, first, batch_of(first))


@needs_native
def test_native_gradients_of_any_set_of_tensors_are_those_of_the_whole_model_to_the_bit():
    """All 255 sets, of which maskings leave out some weights and keep biases."""
    model = cnn((1, 4, 4), hidden=3)
    gradient, batch = NativeGradient(model, *images((1, 4, 4))), batch_of(0, 5)
    loss = gradient(batch)
    whole = model.gradient_array.copy()
    for number in range(1, 256):
        tensors = tuple(bool(number >> place & 1) for place in range(8))
        assert gradient.of_part(batch, TrainedPart(tensors=tensors)) == loss
        for part, is_trained in zip(model.parts, tensors, strict=True):
            own = slice(part.start, part.stop)
            expected = whole[own] if is_trained else np.zeros(part.stop - part.start, np.float32)
            np.testing.assert_array_equal(model.gradient_array[own], expected, err_msg=f"{part.name} of {number}")


@needs_native
@pytest.mark.parametrize("first", [1, 2, 3])
def test_native_and_torch_agree_on_a_part(first):
    model, batch = cnn(), batch_of(7)
    part = part_of(model, first)
    losses, gradients = [], []
    for gradient in (NativeGradient(model, *images()), TorchGradient(MinibatchLoss(model, *images()))):
        losses.append(gradient.of_part(batch, part))
        gradients.append(model.gradient_array.copy())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # float32
    np.testing.assert_allclose(*gradients, rtol=0, atol=1e-5 * np.abs(gradients[1]).max())


@needs_native
@pytest.mark.parametrize("room", [PLENTY, 30_000], ids=["all", "some"])
@pytest.mark.parametrize("first", [1, 2, 3])
def test_native_steps_with_features_have_the_bits_of_steps_without(first, room):
    """Upper layers move between visits; with little room some samples have features and others do not."""
    ends, known = [], []
    for keeps in (False, True):
        model = cnn()
        gradient, part = NativeGradient(model, *images()), part_of(cnn(), first)
        if keeps:
            part = gradient.keep_features(part, np.arange(NUM_SAMPLES), room)
            known.append(len(part.features.samples))
        losses = []
        for step in range(8):
            losses.append(gradient.of_part(batch_of(step), part))
            model.state_array[: model.num_parameters] -= 0.1 * model.gradient_array
        ends.append((losses, model.state_array.tobytes()))
    assert ends[0] == ends[1]
    assert known[0] == NUM_SAMPLES or (room < PLENTY and known[0] > 0)


@needs_native
def test_features_of_one_round_are_forgotten_in_the_next():
    model = cnn()
    gradient, batch = NativeGradient(model, *images()), batch_of(1)
    part = part_of(model, 2)
    gradient.of_part(batch, gradient.keep_features(part, np.arange(NUM_SAMPLES), PLENTY))
    model.state_array *= 1.5  # another model is received
    expected = gradient.of_part(batch, part)
    assert gradient.of_part(batch, gradient.keep_features(part, np.arange(NUM_SAMPLES), PLENTY)) == expected


@needs_native
def test_features_never_take_more_memory_than_they_may():
    gradient = NativeGradient(cnn(), *images())
    for most in (0, 100, 4_000, 100_000):
        part = gradient.keep_features(part_of(cnn(), 2), np.arange(NUM_SAMPLES), most)
        assert gradient._features.size <= most + 64  # to begin at a cache line
        assert (part.features is None) == (most < 64 * 9 * 4)  # 3 × 3 cells of 64 channels


@needs_native
@pytest.mark.parametrize("wrong", ["places", "memory", "images"])
def test_wrong_features_are_refused(wrong):
    model, batch = cnn(), batch_of(1)
    gradient = NativeGradient(model, *images())
    part = gradient.keep_features(part_of(model, 2), np.arange(NUM_SAMPLES), PLENTY)
    call = [gradient._instruction_set, gradient._shape, gradient._offsets, *gradient._arrays, batch, gradient._scratch]
    places = part.features.places(batch)
    more = {
        "places": (gradient._features, places[1:], NUM_SAMPLES),
        "memory": (gradient._features[:100], places, NUM_SAMPLES),
        "images": (gradient._features, places, int(places.max())),
    }[wrong]
    with pytest.raises(ValueError, match="features"):
        native._paper_cnn.gradient(*call, gradient._kept, False, gradient._bits(part), *more)


# Torch.


class Own(nn.Module):
    """A forward pass of a user's own."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def flat_data(size=6, classes=3):
    rng = np.random.default_rng(1)
    return rng.normal(size=(NUM_SAMPLES, size)).astype(np.float32), rng.integers(classes, size=NUM_SAMPLES)


MODULES = {
    "paper-cnn": (lambda: PaperCNN((1, 12, 12)), images),
    "mlp": (lambda: MLP((6,), 3), flat_data),
    "own": (Own, flat_data),
    "norm": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)),
        flat_data,
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_torch_gradients_of_a_part_are_those_of_the_whole_model_to_the_bit(name):
    module, data = MODULES[name]
    model = model_of(module)
    gradient = TorchGradient(MinibatchLoss(model, *data()))
    for first in range(1, model.shape.num_layers):
        check_part(gradient, model, first, batch_of(first))
    assert all(parameter.requires_grad for parameter in model.module.parameters())


@pytest.mark.parametrize("name", [name for name in MODULES if name != "own"])
def test_torch_steps_from_features_are_those_without(name):
    """Within float32: another number of samples at once may round otherwise."""
    module, data = MODULES[name]
    for first in range(1, model_of(module).shape.num_layers):
        ends = []
        for keeps in (False, True):
            model = model_of(module)
            gradient, part = TorchGradient(MinibatchLoss(model, *data())), part_of(model, first)
            if keeps:
                part = gradient.keep_features(part, np.arange(NUM_SAMPLES), PLENTY)
                assert part.features is not None
            for step in range(4):
                gradient.of_part(batch_of(step), part)
                model.state_array[: model.num_parameters] -= 0.1 * model.gradient_array
            ends.append(model.state_array.copy())
        np.testing.assert_allclose(ends[1], ends[0], rtol=0, atol=1e-6)
        assert not np.array_equal(ends[0], model_of(module).state_array)


def test_a_residual_network_is_cut_inside_of_a_block_where_two_tensors_pass():
    model = model_of(lambda: ResNet8((3, 16, 16), 10))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(NUM_SAMPLES, 3, 16, 16)).astype(np.float32), rng.integers(10, size=NUM_SAMPLES)
    gradient, batch = TorchGradient(MinibatchLoss(model, x, y)), batch_of(3)
    model.begin_training()
    numbers = {tensor.name: tensor.layer for tensor in model.shape.tensors}
    for name, num_tensors in (("blocks.1.conv1.weight", 1), ("blocks.1.conv2.weight", 2), ("fc.weight", 1)):
        part = part_of(model, numbers[name])
        before = model.state_array.copy()
        loss = gradient.of_part(batch, part)
        slope = model.gradient_array.copy()
        model.load(before)
        kept = gradient.keep_features(part, np.arange(NUM_SAMPLES), PLENTY)
        assert len(kept.features.values[1]) == num_tensors
        assert gradient.of_part(batch, kept) == pytest.approx(loss, rel=1e-5)  # float32
        np.testing.assert_allclose(model.gradient_array, slope, rtol=0, atol=1e-5 * np.abs(slope).max())
        model.load(before)


def test_running_means_below_the_part_stand_still_and_those_above_move():
    model = model_of(lambda: ResNet8((3, 16, 16), 10))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(NUM_SAMPLES, 3, 16, 16)).astype(np.float32), rng.integers(10, size=NUM_SAMPLES)
    model.begin_training()
    before, counters = (
        model.state_array.copy(),
        [int(c) for n, c in model.module.named_buffers() if n.endswith("tracked")],
    )
    first = next(tensor.layer for tensor in model.shape.tensors if tensor.name == "blocks.2.conv1.weight")
    TorchGradient(MinibatchLoss(model, x, y)).of_part(batch_of(0), part_of(model, first))
    moved, frozen = model.state_array != before, model.shape.frozen_below(first)
    assert not moved[frozen].any()
    assert moved[~frozen].any()
    after = [int(c) for n, c in model.module.named_buffers() if n.endswith("tracked")]
    assert [late - early for early, late in zip(counters, after, strict=True)] == [0] * 5 + [1] * 2
    assert all(layer.training for layer in model.module.modules())  # as it was


@pytest.mark.parametrize(
    "module",
    [
        Own,
        lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)),
        lambda: nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)).requires_grad_(),
    ],
    ids=["forward of a user", "dropout", "hooked"],
)
def test_modules_whose_lower_layers_may_differ_from_step_to_step_keep_no_features(module, request):
    model = model_of(module)
    if "hooked" in request.node.name:
        model.module[0].register_forward_hook(lambda *_: None)
    part = part_of(model, 1)
    found = cut(model.module, model.parts, 1)
    if "dropout" in request.node.name:  # what lies below the dropout is steady
        assert [node.target for node in found.below.graph.nodes if node.op == "call_module"] == ["0"]
    else:
        assert found is None
        gradient = TorchGradient(MinibatchLoss(model, *flat_data()))
        assert gradient.keep_features(part, np.arange(NUM_SAMPLES), PLENTY) is part


def test_torch_keeps_all_features_or_none():
    model = model_of(lambda: MLP((6,), 3))
    gradient, part = TorchGradient(MinibatchLoss(model, *flat_data())), part_of(model, 1)
    fits = NUM_SAMPLES * 64 * 4  # hidden units in float32
    assert gradient.keep_features(part, np.arange(NUM_SAMPLES), fits - 1) is part
    assert gradient.keep_features(part, np.arange(NUM_SAMPLES), fits).features is not None


# Stacks.


@pytest.mark.parametrize("keeps", [False, True], ids=["computed", "kept"])
@pytest.mark.parametrize("name", ["paper-cnn", "mlp"])
def test_rows_of_a_stack_train_a_part_as_each_does_alone(name, keeps):
    """Compared without the trial that a stack makes of itself, which would hide a difference; within rounding."""
    module, data = MODULES[name]
    model = model_of(module)
    loss = MinibatchLoss(model, *data())
    stack = Stack(model, loss, 4)
    rng = np.random.default_rng(0)
    for row in stack.rows:
        row.load(model.state_array + 0.05 * rng.normal(size=model.num_state).astype(np.float32))
        row.settle()
    batches = [batch_of(row, 8) for row in range(4)]
    for first in range(1, model.shape.num_layers):
        parts = [part_of(model, first)] * 4
        if keeps:
            every = np.arange(NUM_SAMPLES)
            parts = [stack.keep_features(row, part, every, PLENTY) for row, part in enumerate(parts)]
            assert all(part.features is not None for part in parts)
        trained = frozenset(own.name for own in model.parts if own.layer >= first)
        frozen = model.shape.frozen_below(first)[: model.num_parameters]
        for by_row in (False, True):
            for row in stack.rows:
                row.gradient_array[:] = np.nan
            losses = stack._computed(Stretch(0, 4, by_row, False, trained), batches, parts)
            for row, (batch, part) in enumerate(zip(batches, parts, strict=True)):
                together = stack.rows[row].gradient_array.copy()
                assert stack.alone(row, batch, part) == pytest.approx(losses[row], rel=1e-5)  # float32
                alone = stack.rows[row].gradient_array
                np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5 * np.abs(alone).max())
                assert not together[frozen].any() and together[~frozen].any()


# Which samples are visited again.


def test_features_pay_where_a_sample_is_visited_again():
    once = [np.array([4, 2]), np.array([7])]
    assert visited_again(once) is None
    assert visited_again([*once, np.array([2])]).tolist() == [2, 4, 7]


def test_places_of_samples_without_features_are_negative():
    features = Features(np.array([2, 5, 9]), None)
    assert features.places(np.array([9, 3, 2, 11, 5])).tolist() == [2, -1, 0, -1, 1]
