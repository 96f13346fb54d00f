"""One device: the choice of a sub-model, and steps that never move what may not move."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from airprune.methods.masking.base import Masking, SubModel
from airprune.methods.optimisers import OPTIMISERS
from airprune.methods.optimisers.base import StepSettings
from airprune.models.catalogue import MLP
from airprune.models.layout import Part
from airprune.rounds.device import device_round
from airprune.rounds.local import Device, Streams
from airprune.rounds.messages import Broadcast, Orders
from support.one_device import device


def train(one: Device, keep: int, received: np.ndarray | None = None, seed: int = 0, rate: float = 0.05, memory=None):
    start = one.model.state.numpy().copy() if received is None else received
    orders = Orders(device=3, keep=keep, learning_rate=rate, round_index=0, memory=memory or {})
    streams = Streams(seed, 0, 0)
    return start, device_round(one, Broadcast(model=start), orders, samples=np.arange(60), streams=streams)


@pytest.mark.parametrize("optimizer", sorted(OPTIMISERS))
def test_momentum_and_decay_never_move_a_pruned_weight(optimizer):
    one = device(optimizer=OPTIMISERS[optimizer](), momentum=0.9, weight_decay=0.1)
    _, result = train(one, keep=300)
    pruned = result.state[one.model.prunable][~result.mask]
    assert len(pruned) == one.model.prunable_weights - 300
    assert np.all(pruned == 0.0)
    assert np.any(result.state[one.model.prunable][result.mask] != 0.0)


def test_the_mask_keeps_the_weights_with_the_largest_probe_gradient():
    one = device()
    start, result = train(one, keep=300)
    reference = MLP((12,), 4)
    one.model.load(start)
    reference.load_state_dict(one.model.module.state_dict())
    index = Streams(0, 0, 0).batches[3].permutation(np.arange(60))[:16]
    F.cross_entropy(reference(one.loss.x[index]), one.loss.y[index]).backward()
    gradient = np.concatenate([reference.fc1.weight.grad.ravel(), reference.fc2.weight.grad.ravel()])
    threshold = np.sort(np.abs(gradient))[-300]
    assert np.count_nonzero(result.mask) == 300
    # Every row keeps its best weight, so a few large ones may give way.
    assert np.mean(result.mask[np.abs(gradient) > threshold]) > 0.8


def test_a_pruned_weight_can_return_in_the_next_round():
    """Ours: the probe sees the dense received model, so yesterday's pruned weights compete again."""
    one = device()
    received, first = train(one, keep=300)
    first_mask = first.mask.copy()
    merged = np.where(first.state != 0, first.state, received)  # the edge keeps what this device pruned
    _, second = train(one, keep=300, received=merged, seed=1)
    assert np.any(second.mask & ~first_mask)


def test_the_literal_reading_of_eq_2_freezes_the_first_mask():
    """|w − ŵ| with ŵ from masked training is exactly zero for every pruned weight, for ever."""
    one = device()
    _, result = train(one, keep=300)
    masked_start = one.model.state.numpy().copy()
    before = result.state[one.model.prunable].copy()
    mask = result.mask.copy()
    _, again = train(one, keep=one.model.prunable_weights, received=masked_start)  # dense training would move them …
    assert np.any(again.state[one.model.prunable][~mask] != 0)
    multiplier = torch.from_numpy(mask).float()
    one.model.load(masked_start)
    one.gradient(np.arange(60))
    one.model.gradient[one.model.prunable] *= multiplier
    weights = one.model.state_array[: one.model.num_parameters]
    OPTIMISERS["sgd"]().begin(StepSettings(learning_rate=0.05))(weights, one.model.gradient_array, 0.05)
    literal_importance = np.abs(one.model.state[one.model.prunable].numpy() - before)
    assert np.all(literal_importance[~mask] == 0.0)  # … masked training cannot
    assert set(np.flatnonzero(literal_importance)) <= set(np.flatnonzero(mask))


def test_pruning_error_is_the_squared_norm_of_what_was_removed():
    one = device()
    start, result = train(one, keep=300)
    removed = start[one.model.prunable][~result.mask].astype(np.float64)
    assert result.pruning_error_sq == pytest.approx(np.square(removed).sum(), rel=1e-5)  # float32 sum


def test_one_plain_step_is_eq_8():
    one = device(local_epochs=1, batch_size=60)
    start, result = train(one, keep=one.model.prunable_weights)
    one.model.load(start)
    one.gradient(np.arange(60))
    expected = start[: one.model.num_parameters] - 0.05 * one.model.gradient.numpy()
    fresh = device(local_epochs=1, batch_size=60)
    _, result = train(fresh, keep=fresh.model.prunable_weights, received=start)
    np.testing.assert_allclose(result.state[: one.model.num_parameters], expected, rtol=1e-5, atol=1e-7)  # float32


OPTIONS = {"sgd": {"momentum": 0.9}, "adam": {}, "adamw": {"weight_decay": 0.01}, "torch": {"momentum": 0.9}}


@pytest.mark.parametrize("optimizer", sorted(OPTIMISERS))
def test_steps_equal_torch_optim(optimizer):
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.normal(size=50))
    reference = torch.nn.Parameter(weights.clone())
    kind = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=0.1),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01),
        "torch": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9),
    }[optimizer]([reference])
    settings = StepSettings(learning_rate=0.1, tensors=[Part("w", 0, (50,))], **OPTIONS[optimizer])
    step = OPTIMISERS[optimizer]().begin(settings)
    for _ in range(5):
        gradient = rng.normal(size=50)
        reference.grad = torch.from_numpy(gradient.copy())
        kind.step()
        step(weights.numpy(), gradient, 0.1)
    torch.testing.assert_close(weights, reference.detach(), rtol=1e-12, atol=1e-12)


def test_without_pruning_there_is_no_mask_and_the_same_minibatches():
    one = device()
    start, dense = train(one, keep=one.model.prunable_weights)
    assert dense.mask is None and dense.pruning_error_sq == 0.0 and dense.num_samples == 120
    dense_loss = dense.loss
    _, pruned = train(one, keep=one.model.prunable_weights - 1, received=start)
    assert pruned.loss == pytest.approx(dense_loss, rel=0.05)  # one weight of a thousand, the same batches


def test_frozen_weights_keep_their_received_value_and_are_not_sent():
    one = device(choices={"masking__name": "frozen"}, momentum=0.9, weight_decay=0.1)
    seen = []
    gradient = one.gradient
    one.gradient = lambda batch: seen.append(one.model.state_array[one.model.prunable].copy()) or gradient(batch)
    start, result = train(one, keep=300)
    frozen = ~result.mask
    for weights in seen:  # in every forward pass
        assert np.array_equal(weights[frozen], start[one.model.prunable][frozen])
    assert np.any(seen[-1][result.mask] != start[one.model.prunable][result.mask])
    assert np.all(result.state[one.model.prunable][frozen] == 0.0)  # what is summed
    assert result.pruning_error_sq == 0.0


def test_frozen_and_zeroed_choose_the_same_weights():
    masks = [train(device(choices={"masking__name": name}), keep=300)[1].mask for name in ("probe", "frozen")]
    assert np.array_equal(*masks)


@pytest.mark.parametrize("optimizer", sorted(OPTIMISERS))
def test_a_pull_to_the_received_model_never_moves_what_may_not_move(optimizer):
    choices = {"masking__name": "frozen", "objective__name": "prox", "objective__prox__mu": 10.0}
    one = device(choices=choices, optimizer=OPTIMISERS[optimizer](), weight_decay=0.1)
    start, result = train(one, keep=300)
    assert np.any(result.state[one.model.prunable][result.mask] != start[one.model.prunable][result.mask])
    plain = device(choices={"masking__name": "frozen"}, optimizer=OPTIMISERS[optimizer](), weight_decay=0.1)
    away = [np.abs(r.state - start)[: one.model.num_parameters] for r in (result, train(plain, keep=300)[1])]
    sent = np.ones(one.model.num_parameters, dtype=bool)
    sent[one.model.prunable] = result.mask
    assert away[0][sent].sum() < away[1][sent].sum()  # the pull shortens the way


def part_of(forward=None, scale=None, moves=None):
    """A masking that holds everything and trains by the given rule."""

    class Part(Masking):
        name = "part"

        def choose(self, view):
            return SubModel(forward=forward, scale=scale, moves=moves)

    return Part()


def test_a_forward_mask_of_ones_changes_nothing_to_the_bit():
    everything = np.ones(12 * 64 + 64 * 4, dtype=bool)
    plain = train(device(), keep=1024)[1].state.copy()
    masked = train(device(masking=part_of(forward=lambda step, weights: everything)), keep=1024)[1].state
    assert np.array_equal(plain, masked)


def test_weights_outside_the_forward_pass_move_by_the_gradient_there():
    """As in dynamic pruning with feedback: the forward pass is sparse, the update dense."""
    half = np.arange(1024) % 2 == 0
    one = device(masking=part_of(forward=lambda step, weights: half), local_epochs=1, batch_size=60)
    start, result = train(one, keep=1024)
    reference = device()
    sparse = start.copy()
    sparse[reference.model.prunable] *= half
    reference.model.load(sparse)
    reference.gradient(Streams(0, 0, 0).batches[3].permutation(np.arange(60)))
    expected = start[: one.model.num_parameters] - np.float32(0.05) * reference.model.gradient.numpy()
    np.testing.assert_allclose(result.state[: one.model.num_parameters], expected, rtol=1e-6, atol=1e-8)


def test_a_scale_of_the_forward_pass_scales_gradients_by_the_chain_rule():
    twice = np.full(1024, 2.0, dtype=np.float32)
    one = device(masking=part_of(scale=twice), local_epochs=1, batch_size=60)
    start, result = train(one, keep=1024)
    reference = device()
    scaled = start.copy()
    scaled[reference.model.prunable] *= 2
    reference.model.load(scaled)
    reference.gradient(Streams(0, 0, 0).batches[3].permutation(np.arange(60)))
    gradient = reference.model.gradient.numpy().copy()
    gradient[reference.model.prunable] *= 2
    np.testing.assert_allclose(
        result.state[: one.model.num_parameters], start[: len(gradient)] - np.float32(0.05) * gradient, rtol=1e-5
    )


def test_an_upload_holds_what_the_edge_decodes_and_counts_its_bits():
    choices = {"compression__name": "top-k", "compression__top-k__share": 0.25}
    one = device(choices=choices)
    memory = {"top-k.error": np.zeros(1024, dtype=np.float32)}
    start, result = train(one, keep=1024, memory=memory)
    state, new = result.state.copy(), result.memory["top-k.error"]
    assert result.sent_bits == 256 * (64 + 10)  # a quarter of 1,024 weights, each with its index
    weights = one.model.shape.is_weight
    assert np.count_nonzero(state[weights] != start[weights]) <= 256
    _, dense = train(device(), keep=1024)
    wanted = dense.state[weights].astype(np.float64) - start[weights]
    sent = state[weights].astype(np.float64) - start[weights]
    np.testing.assert_allclose(sent + new, wanted, atol=1e-7)  # float32 models
    assert np.array_equal(state[~weights], dense.state[~weights])  # biases travel as they are
    assert not np.any(memory["top-k.error"])  # what was handed in is left alone


def test_memory_of_weights_that_are_not_sent_waits():
    choices = {"compression__name": "top-k", "compression__top-k__share": 0.1}
    one = device(choices=choices)
    old = np.random.default_rng(0).normal(size=1024).astype(np.float32)
    _, result = train(one, keep=300, memory={"top-k.error": old})
    assert np.array_equal(result.memory["top-k.error"][~result.mask], old[~result.mask])  # an MLP: all weights prunable
    assert np.any(result.memory["top-k.error"][result.mask] != old[result.mask])
