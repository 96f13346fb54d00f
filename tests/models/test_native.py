"""The native kernel against torch, against itself, and against wrong calls."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from airprune.models.catalogue import FlatModel, PaperCNN
from airprune.models.kernels import native
from airprune.models.kernels.native import NativeGradient, NativeScores
from support.each import each

pytestmark = [
    pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}"),
    pytest.mark.usefixtures("one_thread"),
]

TENSORS = [f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2") for part in ("weight", "bias")]
SHAPES = [(1, 28, 28), (3, 32, 32), (2, 13, 11), (1, 4, 4), (1, 5, 18), (3, 14, 7)]
NUM_SAMPLES = 9


class Problem:
    """A model, samples, and what kernel and torch make of them.

    Pixels and convolutions lie on grids: multiples of 1/4 up to 2, of 1/8 up to 1/2 and of 1/16 up to 1/4. With up to
    four channels a first layer's value is then a multiple of 1/32 below 37, a second layer's one of 1/512 below 2^12:
    every sum is exact in float32. So pooling and ReLU choose alike in both precisions, and only rounding differs.
    """

    def __init__(self, shape=(1, 8, 8), hidden=8, classes=10, prunable=(), seed=0):
        self.rng = np.random.default_rng(seed)
        self.model = FlatModel(PaperCNN(shape, classes, hidden), prunable=prunable)
        self.tensor = {part.name: part.view(self.model.state_array) for part in self.model.parts}
        for name, most, step in (("conv1", 4, 1 / 8), ("conv2", 4, 1 / 16)):
            self.tensor[f"{name}.weight"][...] = self.grid(self.tensor[f"{name}.weight"].shape, most, step)
            self.tensor[f"{name}.bias"][...] = self.grid(self.tensor[f"{name}.bias"].shape, 16, 1 / 32)
        for name in ("fc1", "fc2"):
            weight, bias = self.tensor[f"{name}.weight"], self.tensor[f"{name}.bias"]
            pruned = self.rng.random(weight.shape) < 0.4
            weight[...] = np.where(pruned, 0.0, self.rng.normal(size=weight.shape) / np.sqrt(weight.shape[1]))
            bias[...] = self.rng.normal(size=bias.shape)
        self.x = self.grid((NUM_SAMPLES, *shape), 8, 1 / 4)
        self.y = self.rng.integers(classes, size=NUM_SAMPLES)

    def grid(self, shape, most, step):
        return (self.rng.integers(-most, most + 1, size=shape) * step).astype(np.float32)

    def off_the_grid(self):
        """Where every sum rounds, in all layers."""
        for tensor in (*self.tensor.values(), self.x):
            tensor += self.rng.normal(scale=0.05, size=tensor.shape)
        return self

    def native(self, batch, instruction_set=None):
        """(loss, gradient by tensor)"""
        loss = NativeGradient(self.model, self.x, self.y, instruction_set=instruction_set)(batch)
        return loss, self.model.named_arrays(self.model.gradient.numpy().copy())

    def torch(self, batch, dtype=torch.float64):
        """The same by torch; each sample goes through once and counts as often as the batch names it."""
        classes, hidden = self.tensor["fc2.weight"].shape
        module = PaperCNN(self.x.shape[1:], classes, hidden).to(dtype)
        module.load_state_dict(self.model.module.state_dict())
        index, counts = np.unique(batch, return_counts=True)
        x, y = torch.from_numpy(self.x[index]).to(dtype), torch.from_numpy(self.y[index])
        losses = F.cross_entropy(module(x), y, reduction="none")
        loss = losses @ torch.from_numpy(counts).to(dtype) / len(batch)
        loss.backward()
        return loss.item(), {name: parameter.grad.numpy() for name, parameter in module.named_parameters()}

    def check(self, batch):
        loss, gradient = self.native(batch)
        expected_loss, expected = self.torch(batch)
        assert loss == pytest.approx(expected_loss, rel=1e-5)  # scores of about ten in float32, the rest in double
        assert sorted(gradient) == sorted(TENSORS)
        for name in TENSORS:
            # Float32 again: sums of some thousand terms, and hidden values that are small differences of large ones.
            atol = 5e-6 * np.abs(expected[name]).max() + 5e-7
            np.testing.assert_allclose(gradient[name], expected[name], rtol=0, atol=atol, err_msg=name)
        return expected


# The same function as torch's.


@pytest.mark.parametrize("batch_size", [1, 7, 128])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_loss_and_gradient_are_torchs_in_double_precision(shape, batch_size):
    """128 of 9 samples: each of them more than once."""
    problem = Problem(shape, hidden=8 if shape[0] == 1 else 64, seed=batch_size)
    expected = problem.check(problem.rng.integers(NUM_SAMPLES, size=batch_size))
    assert all(np.abs(gradient).max() > 1e-4 for gradient in expected.values())  # nothing agrees by being zero


@settings(max_examples=100)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(4, 15), st.integers(4, 15)),
    hidden=st.integers(1, 64),
    classes=st.integers(2, 20),
    batch=st.lists(st.integers(0, NUM_SAMPLES - 1), min_size=1, max_size=12),
    prunable=st.sampled_from([(), ("conv2", "fc1"), ("fc2",), ("conv1", "fc2", "fc1", "conv2")]),
    seed=st.integers(0, 2**32),
)
def test_loss_and_gradient_are_torchs_for_networks_and_layouts_of_every_kind(
    shape, hidden, classes, batch, prunable, seed
):
    Problem(shape, hidden, classes, prunable, seed).check(np.array(batch))


def test_scores_far_apart_neither_overflow_nor_vanish():
    problem = Problem(classes=7)
    problem.tensor["fc2.bias"][...] = np.linspace(-3000, 3000, 7)  # exp(3000) is no double
    problem.y[:7] = np.arange(7)
    problem.check(np.arange(7))


@pytest.mark.parametrize("dead", TENSORS[:6:2])
def test_a_layer_that_is_dead_for_every_image_gets_no_gradient(dead):
    problem = Problem()
    problem.tensor[dead][...] = 0.0
    problem.tensor[dead.replace("weight", "bias")][...] = 0.0  # a ReLU at exactly zero is shut, as torch's is
    expected = problem.check(np.arange(NUM_SAMPLES))
    assert np.all(expected[dead] == 0.0) and np.all(expected[dead.replace("weight", "bias")] == 0.0)


# Backgrounds: what sees nothing else is computed once per call.


def on_a_background(problem, value):
    """Each image has something in one rectangle, the first nothing."""
    for image in problem.x:
        top, left = (problem.rng.integers(size) for size in image.shape[1:])
        height, width = problem.rng.integers(1, 12, size=2)
        patch = image[:, top : top + height, left : left + width].copy()
        image[...] = value
        image[:, top : top + height, left : left + width] = patch
    problem.x[0] = value
    return problem


@settings(max_examples=100)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(4, 70), st.integers(4, 60)),
    value=st.sampled_from([0.0, -0.25, 1.5]),
    batch=st.lists(st.integers(0, NUM_SAMPLES - 1), min_size=1, max_size=12),
    seed=st.integers(0, 2**32),
)
def test_loss_and_gradient_are_torchs_where_images_have_a_background(shape, value, batch, seed):
    on_a_background(Problem(shape, seed=seed), value).check(np.array(batch))


@each("instruction_set", native.instruction_sets)
@each("value", [0.0, -0.0, -0.42, np.nan])
@each("shape", [*SHAPES, (1, 40, 56), (1, 40, 57)])
def test_scores_have_the_same_bits_whatever_is_taken_for_the_background(shape, value, instruction_set):
    """After an image that begins with another value nothing is found to be background."""
    problem = on_a_background(Problem(shape).off_the_grid(), value)
    odd = np.full((1, *shape), 7.0, np.float32)
    x, y = np.concatenate([odd, problem.x]), np.zeros(NUM_SAMPLES + 1, np.int64)
    scores = NativeScores(problem.model, x, y, instruction_set=instruction_set)
    found, expected = scores(slice(1, None)), scores(slice(None))[1:]
    assert found.tobytes() == expected.tobytes()
    assert len({row.tobytes() for row in found}) > 1 or np.isnan(value)


# Ties.


def pooled_ties(values: torch.Tensor) -> float:
    """The share of pooling windows that let something through and have their maximum more than once."""
    windows = values.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    largest = windows.max(-1, keepdim=True).values
    return float((((windows == largest).sum(-1) > 1) & (largest[..., 0] > 0)).double().mean())


def flat_first_layer(problem):
    problem.tensor["conv1.weight"][...] = 0.0
    problem.tensor["conv1.bias"][...] = 1.0


def flat_second_layer(problem):
    problem.tensor["conv2.weight"][...] = 0.0
    problem.tensor["conv2.bias"][...] = 1.0


def few_values(problem):
    problem.x[...] = np.sign(problem.x)
    problem.tensor["conv1.weight"][...] = np.sign(problem.tensor["conv1.weight"]) / 2
    problem.tensor["conv2.weight"][...] = np.sign(problem.tensor["conv2.weight"]) / 4
    problem.tensor["conv1.bias"][...] = problem.tensor["conv2.bias"][...] = 0.5


def constant_images(problem):
    problem.x[...] = 1.0


def shapes_on_a_background(problem):
    problem.x[...] = -1.0
    problem.x[:, :, 3:9, 5:8] = 1.0


@pytest.mark.parametrize("shape", [(1, 16, 16), (2, 13, 11)], ids=str)
@pytest.mark.parametrize(
    ("flatten", "ties1", "ties2"),
    [
        (flat_first_layer, 1.0, 0.05),  # every window of every image, by construction
        (flat_second_layer, 0.0, 1.0),
        (few_values, 0.1, 0.005),
        (constant_images, 0.2, 0.01),
        (shapes_on_a_background, 0.1, 0.01),
    ],
)
def test_of_equal_values_the_first_in_the_window_wins_as_in_torch(shape, flatten, ties1, ties2):
    problem = Problem(shape)
    flatten(problem)
    module = problem.model.module
    with torch.no_grad():
        first = module.conv1(torch.from_numpy(problem.x))
        second = module.conv2(F.relu(F.max_pool2d(first, 2)))
    assert pooled_ties(first) >= ties1 and pooled_ties(second) >= ties2
    problem.check(np.arange(NUM_SAMPLES))


# The same bits.


def as_bytes(result) -> tuple:
    loss, gradient = result
    return np.float64(loss).tobytes(), *(gradient[name].tobytes() for name in TENSORS)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_instruction_set_gives_the_same_bytes(shape):
    problem = Problem(shape, hidden=9).off_the_grid()
    batch = problem.rng.integers(NUM_SAMPLES, size=20)
    results = {as_bytes(problem.native(batch, name)) for name in native.instruction_sets}
    assert len(results) == 1


@pytest.mark.parametrize("name", native.instruction_sets)
def test_a_call_gives_the_same_bytes_whatever_calls_before_it_left_behind(name):
    problem = Problem((2, 13, 11)).off_the_grid()
    kernel = NativeGradient(problem.model, problem.x, problem.y, instruction_set=name)
    results = set()
    for garbage in (0x00, 0xFF, 0x7F, 0x3F, None):  # zeros, NaN, huge, about one; what the last call left
        if garbage is not None:
            kernel._scratch[:] = garbage
            problem.model.gradient.numpy().view(np.uint8)[:] = garbage
        results.add((kernel(np.array([3, 0, 3, 8])), problem.model.gradient.numpy().tobytes()))
        kernel(np.array([5]))
    assert len(results) == 1


# Numbers that are none.


def is_finite(problem, batch=range(NUM_SAMPLES)) -> bool:
    """Whether the kernel's loss is; torch's must be alike."""
    batch = np.array(batch)
    losses = {bool(np.isfinite(problem.native(batch, name)[0])) for name in native.instruction_sets}
    assert losses == {bool(np.isfinite(problem.torch(batch, torch.float32)[0]))}
    return losses.pop()


@pytest.mark.parametrize("name", TENSORS)
def test_a_nan_or_an_infinity_in_any_weight_shows_in_the_loss_as_in_torchs(name):
    for place in (0, -1):
        for value in (np.nan, np.inf, -np.inf):
            problem = Problem()
            problem.tensor[name][(place,) * problem.tensor[name].ndim] = value
            assert not is_finite(problem) or value == -np.inf  # which a ReLU may cut off


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("pixel", [(0, 0), (0, 10), (12, 0), (12, 10), (6, 5), (7, 6)], ids=str)
def test_a_nan_or_an_infinity_in_an_image_shows_in_the_loss(pixel, value):
    problem = Problem((2, 13, 11))
    problem.x[4, 1, *pixel] = value
    assert not is_finite(problem)
    assert is_finite(problem, [0, 3, 5])  # and goes when the image does


@pytest.mark.parametrize("place", range(4))
def test_a_nan_is_seen_wherever_in_its_pooling_window_it_lies(place):
    """0 · inf at one place of every window, -inf at the three others, which the ReLU would cut off."""
    problem = Problem()
    problem.x[...] = -1.0
    problem.x[:, :, place // 2 :: 2, place % 2 :: 2] = 0.0
    problem.tensor["conv1.weight"][...] = 0.0
    problem.tensor["conv1.weight"][:, :, 1, 1] = np.inf
    assert not is_finite(problem)


# The gradient of what is pruned, and what it keeps for the next one.


@pytest.mark.parametrize("name", native.instruction_sets)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_probe_gives_the_prunable_gradient_and_leaves_the_next_gradient_as_it_would_be(shape, name):
    problem = Problem(shape).off_the_grid()
    model, kernel = problem.model, NativeGradient(problem.model, problem.x, problem.y, instruction_set=name)

    def plain(batch):
        loss = NativeGradient(model, problem.x, problem.y, instruction_set=name)(batch)
        return loss, model.gradient_array.copy()

    for batch in (np.array([3, 0, 3, 8]), np.array([5]), np.arange(NUM_SAMPLES)):
        loss, gradient = plain(batch)
        assert kernel.of_prunable(batch) == loss
        assert model.gradient_array[model.prunable].tobytes() == gradient[model.prunable].tobytes()
        model.state_array[model.prunable][::3] = 0.0
        loss, gradient = plain(batch)
        for _ in range(2):  # once from what is kept, once without
            assert kernel(batch) == loss
            assert model.gradient_array.tobytes() == gradient.tobytes()


@pytest.mark.parametrize("tensor", [name for name in TENSORS if name.startswith("conv")])
def test_what_a_probe_keeps_is_not_used_for_other_convolutions_or_images(tensor):
    problem = Problem((2, 13, 11)).off_the_grid()
    kernel, batch = NativeGradient(problem.model, problem.x, problem.y), np.array([1, 2, 3])
    for changes_weight in (True, False):
        kernel.of_prunable(batch)
        if changes_weight:
            problem.tensor[tensor].flat[-1] += 0.25
        else:
            batch = np.array([1, 2, 4])
        found = kernel(batch), problem.model.gradient_array.tobytes()
        fresh = NativeGradient(problem.model, problem.x, problem.y)(batch), problem.model.gradient_array.tobytes()
        assert found == fresh


def test_a_probe_of_pruned_convolutions_goes_back_through_them():
    problem = Problem(prunable=("conv2", "fc1"))
    model, kernel = problem.model, NativeGradient(problem.model, problem.x, problem.y)
    loss, expected = kernel(np.arange(4)), model.gradient_array.copy()
    assert kernel.of_prunable(np.arange(4)) == loss
    assert model.gradient_array.tobytes() == expected.tobytes()


def test_a_minibatch_too_large_to_keep_is_probed_all_the_same():
    problem = Problem((1, 4, 4))
    model, kernel, batch = problem.model, NativeGradient(problem.model, problem.x, problem.y), np.arange(300) % 9
    loss, expected = kernel(batch), model.gradient_array.copy()
    assert kernel.of_prunable(batch) == loss == kernel(batch)
    assert model.gradient_array.tobytes() == expected.tobytes()


# Wrong calls.

FIELDS = ("instruction_set", "shape", "offsets", "state", "gradient", "x", "y", "batch", "scratch")


@pytest.fixture
def call():
    """A right call of the kernel, argument by argument. After the last sample lies one more that is not to be read."""
    problem = Problem((1, 8, 8), hidden=4, classes=3)
    kernel = NativeGradient(problem.model, problem.x[:-1], problem.y[:-1])
    kernel._scratch[:] = 7
    problem.model.gradient.fill_(7.0)
    arrays = (*kernel._arrays, np.array([0, NUM_SAMPLES - 2]), kernel._scratch)
    return dict(zip(FIELDS, (kernel._instruction_set, kernel._shape, kernel._offsets, *arrays), strict=True))


def replaced(place, value):
    return lambda numbers: (*numbers[:place], value, *numbers[place + 1 :])


def read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view


WRONG = {
    "an unknown instruction set": ("instruction_set", lambda _: "mmx"),
    "no instruction set": ("instruction_set", lambda _: ""),
    "an instruction set that is no word": ("instruction_set", lambda _: 512),
    "half an instruction set": ("instruction_set", lambda name: name[:-1]),
    "a shape that is no tuple": ("shape", list),
    "a shape of four": ("shape", lambda shape: shape[:-1]),
    "a shape of fractions": ("shape", lambda shape: tuple(map(float, shape))),
    "other channels": ("shape", replaced(0, 2)),
    "wider images": ("shape", replaced(2, 9)),
    "more hidden units": ("shape", replaced(3, 5)),
    "more classes": ("shape", replaced(4, 4)),
    "seven offsets": ("offsets", lambda offsets: offsets[:-1]),
    "labels below zero": ("y", lambda y: y - 3),
    "labels beyond the classes": ("y", lambda y: y + 3),
    "an empty minibatch": ("batch", lambda batch: batch[:0]),
    "a negative sample": ("batch", lambda _: np.array([0, -1])),
    "the sample after the last": ("batch", lambda _: np.array([0, NUM_SAMPLES - 1])),
    "the largest sample number": ("batch", lambda _: np.array([np.iinfo(np.int64).max])),
    "the smallest sample number": ("batch", lambda _: np.array([np.iinfo(np.int64).min])),
    "an image too few": ("x", lambda x: x[:-1]),
    "an image too many": ("x", lambda x: np.concatenate([x, x[:1]])),
    "no images": ("x", lambda x: x[:0]),
    "a label too few": ("y", lambda y: y[:-1]),
    "no labels": ("y", lambda y: y[:0]),
    "a weight too few": ("state", lambda state: state[:-1]),
    "a gradient too short": ("gradient", lambda gradient: gradient[:-1]),
    "scratch a byte short": ("scratch", lambda scratch: scratch[:-1]),
    "no scratch": ("scratch", lambda scratch: scratch[:0]),
    "scratch of words": ("scratch", lambda scratch: np.resize(scratch, 8 * scratch.size).view(np.int64)),
    "a gradient that is read-only": ("gradient", read_only),
    "scratch that is read-only": ("scratch", read_only),
    "scratch of bytes": ("scratch", bytes),
    "images the other way round": ("x", lambda x: x.transpose(0, 1, 3, 2)),
    **{f"{name} every second": (name, lambda array: np.repeat(array, 2, axis=0)[::2]) for name in FIELDS[3:]},
    **{f"{name} backwards": (name, lambda array: array[::-1]) for name in FIELDS[3:]},
    **{f"{name} in double": (name, lambda array: array.astype(np.float64)) for name in FIELDS[3:6]},
    **{f"{name} in half": (name, lambda array: array.astype(np.float16)) for name in FIELDS[3:6]},
    **{f"{name} of 32 bits": (name, lambda array: array.astype(np.int32)) for name in FIELDS[6:8]},
    **{f"{name} is no array": (name, lambda array: array.tolist()) for name in FIELDS[3:]},
    **{
        f"{what} {value:.0e}": ("shape", replaced(place, value))
        for place, what in enumerate(("channels", "height", "width", "hidden", "classes"))
        for value in (0, -1, 100_000, 2**31, 2**62, 10**30)
    },
    **{
        f"{tensor} from {start:.0e}": ("offsets", replaced(place, start))
        for place, tensor in enumerate(TENSORS)
        for start in (-1, -(2**62), 10**6, 2**40, 2**61, 2**63 - 1, 10**30)
    },
}


@each("wrong", WRONG)
def test_a_wrong_call_raises_and_touches_nothing(call, wrong):
    for written in ("gradient", "scratch"):  # the right call of the case before has left its results there
        call[written].fill(7)
    before = [call[name].tobytes() for name in FIELDS[3:]]
    name, spoil = WRONG[wrong]
    with pytest.raises((ValueError, TypeError, OverflowError, BufferError)):
        native._paper_cnn.gradient(*{**call, name: spoil(call[name])}.values())
    assert [call[name].tobytes() for name in FIELDS[3:]] == before
    assert np.isfinite(native._paper_cnn.gradient(*call.values()))  # the right call is right


def test_absurd_networks_have_no_scratch_size():
    for place in range(5):
        for value in (0, -1, 2**31, 2**62, 10**30):
            with pytest.raises((ValueError, OverflowError)):
                native._paper_cnn.scratch_bytes(*replaced(place, value)((1, 8, 8, 4, 3)))
