"""Glyphs: quick to draw, the same every time, and worth a convolution."""

import numpy as np
import pytest
import torch
from torch import nn

from airprune.data import load_dataset
from airprune.data.glyphs import glyphs
from airprune.errors import InvalidValue


def test_drawing_repeats_and_follows_the_seed():
    first, again, other = (glyphs(num_train=300, num_test=50, seed=seed) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_a_smaller_set_is_the_beginning_of_a_larger_one():
    small, large = (load_dataset("glyphs", train_samples=n, test_samples=n) for n in (700, 1_500))
    np.testing.assert_array_equal(small.train_x, large.train_x[:700])
    np.testing.assert_array_equal(small.test_y, large.test_y[:700])


def test_images_are_in_range_and_classes_even():
    dataset = load_dataset("glyphs")
    assert dataset.train_x.shape == (10_000, 1, 28, 28) and dataset.test_x.shape == (2_000, 1, 28, 28)
    assert dataset.train_x.min() >= 0 and dataset.train_x.max() <= 1
    np.testing.assert_array_equal(np.bincount(dataset.train_y), 1_000)
    assert not (dataset.train_x[:2_000] == dataset.test_x).all(axis=(1, 2, 3)).any()


def test_sizes_beyond_the_largest_are_refused():
    with pytest.raises(InvalidValue, match=r"glyphs\.num_train"):
        glyphs(num_train=60_001)


def accuracy_after_training(model: nn.Module, dataset, epochs: int) -> float:
    """Plain SGD, rate 0.05, momentum 0.9, batches of 64."""
    x, y = torch.tensor(dataset.train_x), torch.tensor(dataset.train_y)
    shuffle = torch.Generator().manual_seed(0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=shuffle).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    with torch.no_grad():
        guess = model(torch.tensor(dataset.test_x)).argmax(dim=1)
    return float((guess == torch.tensor(dataset.test_y)).float().mean())


@pytest.mark.slow
def test_a_convolution_beats_a_linear_model_by_far():
    """Five epochs, since a few initial weights are slow to leave the start; after five, 12 of 12 had 88 % or more."""
    dataset = load_dataset("glyphs", train_samples=5_000)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two threads crawl on a busy machine
    try:
        torch.manual_seed(0)
        linear = accuracy_after_training(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), dataset, epochs=8)
        convolution = accuracy_after_training(paper_cnn(), dataset, epochs=5)
    finally:
        torch.set_num_threads(threads)
    assert 0.3 < linear <= 0.70
    assert convolution >= linear + 0.15


def paper_cnn() -> nn.Module:
    return nn.Sequential(  # pooling before ReLU is the same function, and quicker
        nn.Conv2d(1, 32, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(1600, 8), nn.ReLU(), nn.Linear(8, 10),
    ).to(memory_format=torch.channels_last)  # fmt: skip
