"""The native kernel on 64-bit ARM (NEON, under qemu-user): the bits of this machine's kernel, whatever it computes."""

import numpy as np
import pytest

from airprune.models.kernels import native
from airprune.models.kernels.base import TrainedPart
from airprune.models.kernels.native import NativeGradient, NativeScores
from airprune.models.without_torch import PlainCnn
from support import arm

pytestmark = [
    pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}"),
    pytest.mark.skipif(bool(arm.missing()), reason=arm.missing() or "ARM is emulated"),
]
NUM_SAMPLES = 6
LAYERS = ("conv1", "conv2", "fc1", "fc2")
SHAPES = [(1, 28, 28), (3, 14, 7), (2, 13, 11), (1, 4, 4)]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Returns the program for ARM that answers calls of the kernel."""
    return arm.build_calls(tmp_path_factory.mktemp("arm"))


@pytest.fixture(params=native.instruction_sets)
def calls(monkeypatch, request):
    """Notes the calls of this machine's kernel, in each of its instruction sets."""
    return arm.Calls(monkeypatch, request.param)


def problem(shape=(1, 12, 12), hidden=8, classes=10, prunable=(), seed=0):
    """A CNN with some zeros in its classifier, and images half of which are an even background."""
    rng = np.random.default_rng(seed)
    model = PlainCnn(shape, classes, hidden, prunable=prunable)
    model.start(seed)
    for part in model.parts:
        tensor = part.view(model.state_array)
        tensor += rng.normal(scale=0.05, size=tensor.shape)
        if part.name == "fc1.weight":
            tensor[rng.random(tensor.shape) < 0.4] = 0.0
    x = rng.normal(size=(NUM_SAMPLES, *shape)).astype(np.float32)
    x[:, :, : shape[1] // 2] = 0.25
    return model, x, rng.integers(classes, size=NUM_SAMPLES)


def part_from(model, first):
    """The layers from this one on; those below are frozen."""
    trained = LAYERS[first:]
    return TrainedPart(tensors=tuple(part.name.split(".")[0] in trained for part in model.parts), first_trained=first)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_and_scores_on_arm_are_those_of_this_machine_to_the_bit(program, calls, shape):
    model, x, y = problem(shape, hidden=9)
    gradient = NativeGradient(model, x, y)
    gradient(np.array([0, 3, 3, 5]))
    assert all(np.abs(part.view(model.gradient_array)).max() > 1e-6 for part in model.parts)  # none agrees by being 0
    for first in (1, 2, 3):
        gradient.of_part(np.arange(NUM_SAMPLES), part_from(model, first))
    NativeScores(model, x, y)(slice(None))
    calls.check(program)


@pytest.mark.parametrize("prunable", [(), LAYERS], ids=["classifier", "every layer"])
def test_a_chunk_of_devices_on_arm_ends_in_the_same_bits(program, calls, prunable):
    """Probes, masks, steps and sums of devices that prune, or freeze layers and keep their features."""
    model, x, y = problem(prunable=prunable)
    size = model.prunable.stop - model.prunable.start
    batches = [[np.array([0, 1, 2]), np.array([3, 4])], [np.array([5, 0, 4])], [np.array([1, 2]), np.array([2, 1])]]
    total, counts = np.zeros(model.num_state), np.zeros(size, np.int64)
    done = NativeGradient(model, x, y).train_chunk(
        model.state_array.copy(),
        batches,
        keep=[size // 3, size, size],
        weights=[1.0, 1 / 3, 2.5],
        learning_rate=0.05,
        total=total,
        counts=counts,
        parts=[None, None, part_from(model, 2)],
        most_bytes=2**20,
    )
    assert done is not None and done[1][0] > 0.0 and counts.sum() == size // 3
    calls.check(program)


def test_masks_steps_and_sums_on_arm_are_those_of_this_machine_to_the_bit(program, calls):
    rng = np.random.default_rng(0)
    for size in (1, 7, 2_049, 25_168):
        values, ties = (rng.normal(size=size).astype(np.float32) for _ in range(2))
        values[: size // 3] = 0.0  # units that are cut off
        ties = np.round(ties, 1)
        rows = np.array(sorted({0, size // 2, size - 1}))
        for keep in {len(rows), max(size // 2, len(rows)), size}:
            for factor in (0.0, 0.01, 3e-42):  # by values with their signs; by moves; by moves that are denormal
                calls.call("choose", np.zeros(size, bool), values, ties, rows, keep, factor)
        mask = rng.random(size) < 0.5
        anything = rng.integers(2**32, size=size, dtype=np.uint32).view(np.float32)  # infinities, denormals, NaN
        for numbers in (values, anything, values * np.float32(1e-39)):
            calls.call("hold", numbers.copy(), mask)
            calls.call("multiply", numbers.copy(), mask)
            for factor in (-1 / 3, 1.0):
                calls.call("add_scaled", numbers.copy(), values, factor)
                calls.call("add_scaled", numbers.copy(), values, factor, ties)
                calls.call("add_state", rng.normal(size=size), numbers, factor)
        calls.call("add_counts", np.arange(size), mask)
    calls.check(program)


def test_a_model_that_has_diverged_is_not_a_number_on_arm_either(program, calls):
    model, x, y = problem()
    x[0, 0, 5, 6] = np.inf  # of which a pooling cell that the ReLU cuts off must know nothing, or as much
    assert not np.isfinite(NativeGradient(model, x, y)(np.arange(NUM_SAMPLES)))
    x[0, 0, 5, 6] = 1.0
    for value in (np.nan, np.inf):
        model.state_array[100] = value  # of a convolution
        assert not np.isfinite(NativeGradient(model, x, y)(np.arange(NUM_SAMPLES)))
    calls.check(program)


def test_a_difference_of_one_bit_is_found(program, calls):
    model, x, y = problem()
    NativeGradient(model, x, y)(np.arange(NUM_SAMPLES))
    calls.noted[0].arrays[1].view(np.uint32)[17] ^= 1
    with pytest.raises(AssertionError, match="call 0 of 1, gradient, array 1"):
        calls.check(program)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_networks_of_every_kind_have_the_same_bits_on_arm(program, calls, seed):
    """Some are wider than what is searched for backgrounds; steps follow each other."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 4)), int(rng.integers(4, 32)), int(rng.integers(4, 64)))
    prunable = [(), LAYERS, ("conv2", "fc1"), ("fc2",)][seed % 4]
    model, x, y = problem(shape, int(rng.integers(1, 65)), int(rng.integers(2, 21)), prunable, seed)
    gradient = NativeGradient(model, x, y)
    for _ in range(2):
        gradient.of_prunable(batch := rng.integers(NUM_SAMPLES, size=4))
        gradient(batch)
        model.state_array[: model.num_parameters] -= np.float32(0.1) * model.gradient_array
    NativeScores(model, x, y)(slice(None))
    calls.check(program)
