"""What a dataset's file hands to the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from airprune.data.dataset import Dataset
from airprune.randomness import rng_for


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What the user asked for; the catalog has checked it.

    Attributes:
      data_dir: where to look first and to keep what is fetched; None for the cache folder.
      train_samples, test_samples: None for the usual number.
    """

    data_dir: Path | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class DatasetEntry:
    """One line of the catalog.

    Attributes:
      num_train, num_test: samples that loading gives unless told otherwise.
      max_train, max_test: samples there are.
      load: reads or draws the dataset.
      find: the folder that holds its files on this machine, None if nowhere. Files are not opened.
      fetch: brings its files to this machine; returns the folder and how they came.
    """

    name: str
    summary: str
    num_train: int
    num_test: int
    max_train: int
    max_test: int
    num_classes: int
    feature_shape: tuple[int, ...]
    load: Callable[[LoadOptions], Dataset]
    find: Callable[[Path | None], Path | None] | None = None
    fetch: Callable[[Path | None], tuple[Path, str]] | None = None

    @property
    def needs_files(self) -> bool:
        return self.fetch is not None


def subset(dataset: Dataset, options: LoadOptions) -> Dataset:
    """What is asked for of a whole data set, where that is small enough to be made first."""
    if options.train_samples is None and options.test_samples is None:
        return dataset
    train, test = places(options, dataset.num_train, dataset.num_test)
    return Dataset(
        name=dataset.name,
        train_x=dataset.train_x[train],
        train_y=dataset.train_y[train],
        test_x=dataset.test_x[test],
        test_y=dataset.test_y[test],
        num_classes=dataset.num_classes,
    )


def places(options: LoadOptions, num_train: int, num_test: int) -> tuple[slice | np.ndarray, slice | np.ndarray]:
    """Where the samples that are asked for lie among those there are, to train and to test on.

    They are the first ones of a seeded shuffle, so that a smaller subset is part of a larger one.
    """
    train = _some(num_train, options.train_samples, options.seed, 0)
    return train, _some(num_test, options.test_samples, options.seed, 1)


def _some(available: int, wanted: int | None, seed: int, part: int) -> slice | np.ndarray:
    if wanted is None:
        return slice(None)
    return rng_for(seed, "subset", part).permutation(available)[:wanted]
