"""Importances score what they say; the dense probe of Eq. (2) lets pruned weights return."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from airprune.components.layers import PrunableLayers
from airprune.errors import InvalidValue, UnknownName
from airprune.methods.masking.core import IMPORTANCES, Probe
from airprune.methods.masking.core.masks import choose_mask
from airprune.randomness import rng_for

LAYERS = PrunableLayers.of([("fc1", 5, 6), ("fc2", 3, 5)])


class SmallNetwork:
    """tanh network 6 → 5 → 3 with cross entropy; its prunable weights are one flat vector."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.weights = rng.normal(scale=0.6, size=LAYERS.num_weights)
        teacher = rng.normal(size=(6, 3))
        self.inputs = torch.from_numpy(rng.normal(size=(64, 6)))
        self.labels = (self.inputs @ torch.from_numpy(teacher)).argmax(dim=1)

    def _loss(self, flat: torch.Tensor, batch: slice) -> torch.Tensor:
        hidden = torch.tanh(self.inputs[batch] @ flat[:30].reshape(5, 6).T)
        return torch.nn.functional.cross_entropy(hidden @ flat[30:].reshape(3, 5).T, self.labels[batch])

    def loss(self, weights: np.ndarray) -> float:
        return self._loss(torch.from_numpy(weights), slice(None)).item()

    def gradient(self, weights: np.ndarray, batch: slice = slice(None)) -> np.ndarray:
        flat = torch.from_numpy(weights).clone().requires_grad_()
        self._loss(flat, batch).backward()
        return flat.grad.numpy()

    def train(self, weights: np.ndarray, mask: np.ndarray, batch: slice, learning_rate: float) -> np.ndarray:
        """Eqs. (5) and (8): three steps of masked SGD."""
        weights = weights * mask
        for _ in range(3):
            weights = weights - learning_rate * mask * self.gradient(weights, batch)
        return weights

    def probe(self) -> Probe:
        gradient = self.gradient(self.weights)
        return Probe(weights=self.weights, gradient=gradient, loss=self.loss, rng=rng_for(0, "test"))


def minibatches():
    return [slice(16 * (i % 4), 16 * (i % 4) + 16) for i in range(8)]


def test_every_importance_gives_one_finite_score_per_weight():
    for importance in IMPORTANCES.values():
        scores = importance.score(SmallNetwork(0).probe())
        assert scores.shape == (LAYERS.num_weights,) and np.all(np.isfinite(scores)) and np.all(scores >= 0)
        assert importance.summary


def test_every_importance_leaves_the_probe_as_it_was():
    probe = SmallNetwork(0).probe()
    weights, gradient = probe.weights.copy(), probe.gradient.copy()
    for importance in IMPORTANCES.values():
        importance.score(probe)
    assert np.array_equal(probe.weights, weights) and np.array_equal(probe.gradient, gradient)


def test_every_importance_says_truly_what_it_needs():
    for importance in IMPORTANCES.values():
        network = SmallNetwork(0)
        probe = Probe(
            weights=network.weights,
            gradient=network.gradient(network.weights) if importance.needs_gradient else None,
            loss=network.loss if importance.needs_loss else None,
            rng=rng_for(0, "test"),
        )
        importance.score(probe)
        if importance.needs_gradient or importance.needs_loss:
            with pytest.raises(InvalidValue, match=rf"must be given for importance '{importance.name}'"):
                importance.score(Probe(weights=network.weights))


def test_update_is_the_distance_of_one_step():
    network = SmallNetwork(1)
    gradient = network.gradient(network.weights)
    after = network.weights - 0.05 * gradient
    scores = IMPORTANCES["update"].score(Probe(weights=network.weights, gradient=gradient, learning_rate=0.05))
    assert scores == pytest.approx(np.abs(network.weights - after), abs=1e-15)  # the last bit of w


def test_update_ranks_by_gradient_whatever_the_learning_rate():
    network = SmallNetwork(1)
    gradient = network.gradient(network.weights)
    for learning_rate in (1e-6, 0.1, 10.0):
        probe = Probe(weights=network.weights, gradient=gradient, learning_rate=learning_rate)
        scores = IMPORTANCES["update"].score(probe)
        assert np.array_equal(np.argsort(scores), np.argsort(np.abs(gradient)))


def test_update_ranks_steps_too_small_to_change_the_weight():
    weights = np.ones(3, dtype=np.float32)
    gradient = np.array([3e-6, -9e-6, 6e-6], dtype=np.float32)
    assert np.array_equal(weights - np.float32(0.001) * gradient, weights)
    scores = IMPORTANCES["update"].score(Probe(weights=weights, gradient=gradient, learning_rate=0.001))
    assert scores.dtype == np.float32 and np.argsort(scores).tolist() == [0, 2, 1]


def test_magnitude_is_the_size_of_the_weight():
    assert IMPORTANCES["magnitude"].score(Probe(weights=np.array([-2.0, 0.0, 1.0]))).tolist() == [2.0, 0.0, 1.0]


def test_exact_is_the_squared_loss_change_without_the_weight():
    network = SmallNetwork(2)
    scores = IMPORTANCES["exact"].score(network.probe())
    for j in range(LAYERS.num_weights):
        others = np.arange(LAYERS.num_weights) != j
        change = network.loss(network.weights) - network.loss(network.weights * others)
        assert scores[j] == change**2


def test_taylor_is_exact_where_the_loss_is_linear():
    slope = np.array([1.0, -2.0, 0.5])
    probe = Probe(weights=np.array([0.5, 0.25, -4.0]), gradient=slope, loss=lambda w: float(slope @ w))
    assert IMPORTANCES["taylor"].score(probe) == pytest.approx([0.25, 0.25, 4.0], rel=1e-15)
    assert IMPORTANCES["exact"].score(probe) == pytest.approx([0.25, 0.25, 4.0], rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_taylor_ranks_almost_like_exact(seed):
    probe = SmallNetwork(seed).probe()
    exact = IMPORTANCES["exact"].score(probe)
    # Second-order terms reorder neighbours, so not 1; a random ranking has 0 ± 0.15.
    assert spearmanr(exact, IMPORTANCES["taylor"].score(probe)).statistic > 0.75


def test_taylor_tends_to_exact_as_the_weight_shrinks():
    network = SmallNetwork(3)
    for size, tolerance in ((1e-2, 0.1), (1e-4, 1e-3)):  # the relative error is of the order of the weight
        network.weights[4] = size
        probe = network.probe()
        ratio = IMPORTANCES["taylor"].score(probe)[4] / IMPORTANCES["exact"].score(probe)[4]
        assert ratio == pytest.approx(1.0, rel=tolerance)


def test_taylor_tells_tiny_float32_scores_apart():
    weights = np.full(2, 1e-12, dtype=np.float32)
    probe = Probe(weights=weights, gradient=np.array([1e-12, 2e-12], dtype=np.float32))
    low, high = IMPORTANCES["taylor"].score(probe)
    assert 0 < low < high


def test_random_repeats_from_its_stream():
    def scores(device):
        return IMPORTANCES["random"].score(Probe(weights=np.zeros(50), rng=rng_for(7, "pruning", device)))

    assert np.array_equal(scores(1), scores(1)) and not np.array_equal(scores(1), scores(2))


def test_a_pruned_weight_can_return_under_the_dense_probe():
    network = SmallNetwork(4)
    weights, masks = network.weights, []
    for batch in minibatches():
        probe = Probe(weights=weights, gradient=network.gradient(weights, batch), learning_rate=0.5)
        mask = choose_mask(IMPORTANCES["update"].score(probe), keep=18, layers=LAYERS, tie_break=np.abs(weights))
        # Weights that no device kept stay where they were, Eq. (12).
        weights = np.where(mask, network.train(weights, mask, batch, 0.5), weights)
        masks.append(mask)
    returned = [np.any(now & ~before) for before, now in pairwise(masks)]
    assert all(returned)
    assert np.any(masks, axis=0).sum() > 1.5 * 18


def test_the_literal_reading_of_eq_2_freezes_the_first_mask():
    network = SmallNetwork(4)
    probe = Probe(weights=network.weights, gradient=network.gradient(network.weights, minibatches()[0]))
    first = choose_mask(IMPORTANCES["update"].score(probe), keep=18, layers=LAYERS)
    mask, weights = first, network.weights * first
    for batch in minibatches():
        trained = network.train(weights, mask, batch, 0.5)
        importance = np.abs(weights - trained)
        assert np.all(importance[~mask] == 0.0)
        # A kept weight whose unit feeds nothing has importance 0 too; its size, not 0, keeps it.
        mask = choose_mask(importance, keep=18, layers=LAYERS, tie_break=np.abs(weights))
        assert np.array_equal(mask, first)
        weights = trained


def test_misuse_names_the_field():
    with pytest.raises(UnknownName, match="did you mean 'magnitude'"):
        IMPORTANCES["magnitud"]
    with pytest.raises(InvalidValue, match=r"Probe\.learning_rate must be > 0, got 0"):
        Probe(weights=np.zeros(2), learning_rate=0.0)
    with pytest.raises(InvalidValue, match=r"Probe\.gradient must have the shape \(2,\)"):
        Probe(weights=np.zeros(2), gradient=np.zeros(3))
    with pytest.raises(InvalidValue, match=r"Probe\.weights must be one flat vector"):
        Probe(weights=np.zeros((2, 2)))
    with pytest.raises(InvalidValue, match=r"Probe\.rng must be given .* rng_for"):
        IMPORTANCES["random"].score(Probe(weights=np.zeros(2)))
