"""The character model: no score sees a later character, and its channels are units."""

import numpy as np
import torch

from airprune.components.units import leading
from airprune.models.catalogue import FlatModel, build_model
from airprune.models.layout import places
from airprune.models.losses.classification import ACCURACY, CROSS_ENTROPY


def model() -> FlatModel:
    module = build_model("char-cnn", input_shape=(80,), num_classes=65, seed=0)
    return FlatModel(module, prunable=["*"], float64=True)


def characters(num_samples: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 65, (num_samples, 80)))


def test_weights_are_those_of_embedding_and_convolutions():
    assert model().prunable_weights == 16 * 96 * 5 + 96 * 96 * 5 + 96 * 65
    assert model().fixed_weights == 65 * 16


def test_a_score_sees_its_own_and_the_twenty_characters_before():
    module, x = model().module, characters(1)
    before, moved = module(x), x.clone()
    moved[0, 30] = (x[0, 30] + 1) % 65
    differs = (module(moved) != before).any(dim=1)[0]
    assert differs.nonzero()[:, 0].tolist() == list(range(30, 51))


def test_a_model_without_half_the_channels_gives_the_scores_of_the_masked_one():
    whole, x = model(), characters()
    graph = whole.shape.units
    assert [group.num_units for group in graph.groups] == [96, 96]
    kept = leading(graph, 0.5)
    weights = whole.state_array[whole.prunable]
    weights *= graph.mask(kept)
    small = whole.smaller(graph.kept(graph.mask(kept)), x.numpy())
    assert small is not None and small.prunable_weights == 16 * 48 * 5 + 48 * 48 * 5 + 48 * 65
    small.load(whole.state_array[places(whole, small, graph.kept(graph.mask(kept)))])
    torch.testing.assert_close(small.module(x), whole.module(x), rtol=1e-12, atol=1e-12)


def test_loss_and_accuracy_of_tokens_are_means_over_positions():
    scores = torch.full((2, 3, 4), -50.0)
    targets = torch.tensor([[0, 1, 2, 0], [1, 1, 1, 1]])
    scores.scatter_(1, targets[:, None], 50.0)
    scores[1, :, :2] = 0.0  # a guess among three: log 3; the first class, 0, is taken, which is wrong
    assert ACCURACY.sum(scores, targets) == 1.5 and float(ACCURACY.mean(scores, targets)) == 0.75
    assert np.isclose(float(CROSS_ENTROPY.sum(scores, targets)), 2 * np.log(3) / 4, rtol=1e-6)
    assert np.isclose(float(CROSS_ENTROPY.mean(scores, targets)), 2 * np.log(3) / 8, rtol=1e-6)
    alone = CROSS_ENTROPY.combined(torch.stack([scores, scores]))
    torch.testing.assert_close(alone.softmax(1), scores.softmax(1))
