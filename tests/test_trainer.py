"""One device: the probe, the mask, and steps that never move a pruned weight."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from airprune.learning.optimisers import OPTIMISERS
from airprune.learning.trainer import LocalSettings, Trainer
from airprune.models import MLP, FlatModel
from airprune.pruning.importance import importance_named
from support.tiny import blobs


def trainer(**changes) -> Trainer:
    torch.manual_seed(0)
    (x, y), _ = blobs()
    settings = {"batch_size": 16, "local_epochs": 2, "importance": importance_named("update"), **changes}
    return Trainer(FlatModel(MLP((12,), 4)), x, y, LocalSettings(**settings))


def train(one: Trainer, keep: int, received: np.ndarray | None = None, seed: int = 0, rate: float = 0.05):
    start = one.model.state.numpy().copy() if received is None else received
    return start, one.train(
        start, keep=keep, samples=np.arange(60), rng=np.random.default_rng(seed), learning_rate=rate
    )


@pytest.mark.parametrize("optimizer", sorted(OPTIMISERS))
def test_momentum_and_decay_never_move_a_pruned_weight(optimizer):
    one = trainer(optimizer=optimizer, momentum=0.9, weight_decay=0.1)
    _, result = train(one, keep=300)
    pruned = result.state[one.model.prunable][~result.mask]
    assert len(pruned) == one.model.fc_weights - 300
    assert np.all(pruned == 0.0)
    assert np.any(result.state[one.model.prunable][result.mask] != 0.0)


def test_the_mask_keeps_the_weights_with_the_largest_probe_gradient():
    one = trainer()
    start, result = train(one, keep=300)
    reference = MLP((12,), 4)
    one.model.load(start)
    reference.load_state_dict(one.model.module.state_dict())
    index = np.arange(60)[np.random.default_rng(0).permutation(60)[:16]]
    F.cross_entropy(reference(one.x[index]), one.y[index]).backward()
    gradient = np.concatenate([reference.fc1.weight.grad.ravel(), reference.fc2.weight.grad.ravel()])
    threshold = np.sort(np.abs(gradient))[-300]
    assert np.count_nonzero(result.mask) == 300
    # Every row keeps its best weight, so a few large ones may give way.
    assert np.mean(result.mask[np.abs(gradient) > threshold]) > 0.8


def test_a_pruned_weight_can_return_in_the_next_round():
    """Ours: the probe sees the dense received model, so yesterday's pruned weights compete again."""
    one = trainer()
    received, first = train(one, keep=300)
    first_mask = first.mask.copy()
    merged = np.where(first.state != 0, first.state, received)  # the edge keeps what this device pruned
    _, second = train(one, keep=300, received=merged, seed=1)
    assert np.any(second.mask & ~first_mask)


def test_the_literal_reading_of_eq_2_freezes_the_first_mask():
    """|w − ŵ| with ŵ from masked training is exactly zero for every pruned weight, for ever."""
    one = trainer()
    _, result = train(one, keep=300)
    masked_start = one.model.state.numpy().copy()
    before = result.state[one.model.prunable].copy()
    mask = result.mask.copy()
    _, again = train(one, keep=one.model.fc_weights, received=masked_start)  # dense training would move them …
    assert np.any(again.state[one.model.prunable][~mask] != 0)
    multiplier = torch.from_numpy(mask).float()
    one.model.load(masked_start)
    one._gradient(torch.arange(60))
    one.model.gradient[one.model.prunable] *= multiplier
    OPTIMISERS["sgd"](0.05, 0.0, 0.0)(one.model.state[: one.model.num_parameters], one.model.gradient)
    literal_importance = np.abs(one.model.state[one.model.prunable].numpy() - before)
    assert np.all(literal_importance[~mask] == 0.0)  # … masked training cannot
    assert set(np.flatnonzero(literal_importance)) <= set(np.flatnonzero(mask))


def test_pruning_error_is_the_squared_norm_of_what_was_removed():
    one = trainer()
    start, result = train(one, keep=300)
    removed = start[one.model.prunable][~result.mask].astype(np.float64)
    assert result.pruning_error_sq == pytest.approx(np.square(removed).sum(), rel=1e-5)  # float32 sum


def test_one_plain_step_is_eq_8():
    one = trainer(local_epochs=1, batch_size=60)
    start, result = train(one, keep=one.model.fc_weights)
    one.model.load(start)
    one._gradient(torch.arange(60))
    expected = start[: one.model.num_parameters] - 0.05 * one.model.gradient.numpy()
    fresh = trainer(local_epochs=1, batch_size=60)
    _, result = train(fresh, keep=fresh.model.fc_weights, received=start)
    np.testing.assert_allclose(result.state[: one.model.num_parameters], expected, rtol=1e-5, atol=1e-7)  # float32


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_steps_equal_torch_optim(optimizer):
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.normal(size=50))
    reference = torch.nn.Parameter(weights.clone())
    kind = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.01),
    }[optimizer]([reference])
    step = OPTIMISERS[optimizer](0.1, 0.9 if optimizer == "sgd" else 0.0, 0.01)
    for _ in range(5):
        gradient = torch.from_numpy(rng.normal(size=50))
        reference.grad = gradient.clone()
        kind.step()
        step(weights, gradient)
    torch.testing.assert_close(weights, reference.detach(), rtol=1e-12, atol=1e-12)


def test_without_pruning_there_is_no_mask_and_the_same_minibatches():
    one = trainer()
    start, dense = train(one, keep=one.model.fc_weights)
    assert dense.mask is None and dense.pruning_error_sq == 0.0 and dense.num_samples == 120
    dense_loss = dense.loss
    _, pruned = train(one, keep=one.model.fc_weights - 1, received=start)
    assert pruned.loss == pytest.approx(dense_loss, rel=0.05)  # one weight of a thousand, the same batches
