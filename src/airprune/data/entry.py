"""Defines the entry of a data set in the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from airprune.data.dataset import Dataset
from airprune.randomness import rng_for


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The options of loading, checked by the catalog.

    Attributes:
      data_dir: folder that is searched first and keeps fetched files; None for the cache folder.
      train_samples, test_samples: None for the usual number.
    """

    data_dir: Path | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class DatasetEntry:
    """One data set of the catalog.

    Attributes:
      num_train, num_test: default numbers of samples.
      max_train, max_test: largest numbers of samples.
      load: reads or generates the data set.
      find: returns the folder that holds its files on this machine, None if nowhere. Files are not opened.
      fetch: fetches its files to this machine; returns the folder and the source.
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


def places(options: LoadOptions, num_train: int, num_test: int) -> tuple[slice | np.ndarray, slice | np.ndarray]:
    """Returns the indices of the wanted training and test samples.

    They are the first ones of a seeded shuffle, so that a smaller subset is part of a larger one.
    """
    train = _some(num_train, options.train_samples, options.seed, 0)
    return train, _some(num_test, options.test_samples, options.seed, 1)


def _some(available: int, wanted: int | None, seed: int, part: int) -> slice | np.ndarray:
    if wanted is None:
        return slice(None)
    return rng_for(seed, "subset", part).permutation(available)[:wanted]
