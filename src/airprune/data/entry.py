"""Defines the entry of a data set in the catalog."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune.data.dataset import Dataset
from airprune.errors import InvalidValue
from airprune.randomness import rng_for


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The options of loading, checked by the catalog.

    Attributes:
      data_dir: folder that is searched first and keeps fetched files; None for the cache folder.
      train_samples, test_samples: None for the usual number.
      owners: number of owners whose samples are used, of those with at least `min_owner_samples` training samples; None
        for all of these.
    """

    data_dir: Path | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    seed: int = 0
    owners: int | None = None
    min_owner_samples: int = 1


@dataclass(frozen=True, kw_only=True)
class DatasetEntry:
    """One data set of the catalog.

    Attributes:
      num_train, num_test: default numbers of samples.
      max_train, max_test: largest numbers of samples.
      load: reads or generates the data set.
      find: returns the folder that holds its files on this machine, None if nowhere. Files are not opened.
      fetch: fetches its files to this machine; returns the folder and the source.
      has_owners: True if its samples have owners, and `load` chooses among them.
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
    has_owners: bool = False

    @classmethod
    def of(cls, name: str, data: Any, *, summary: str = "a data set of a script", seed: int = 0) -> DatasetEntry:
        """Returns the entry of samples in memory, for `register`: anything that `as_dataset` takes."""
        from airprune.data.convert import as_dataset

        whole = as_dataset(data, seed=seed, targets="any")

        def load(options: LoadOptions) -> Dataset:
            train, test = places(options, len(whole.train_y), len(whole.test_y))
            return Dataset(
                name=name,
                train_x=whole.train_x[train],
                train_y=whole.train_y[train],
                test_x=whole.test_x[test],
                test_y=whole.test_y[test],
                num_classes=whole.num_classes,
            )

        return cls(
            name=name,
            summary=summary,
            num_train=len(whole.train_y),
            num_test=len(whole.test_y),
            max_train=len(whole.train_y),
            max_test=len(whole.test_y),
            num_classes=whole.num_classes,
            feature_shape=whole.train_x.shape[1:],
            load=load,
        )

    @property
    def needs_files(self) -> bool:
        return self.fetch is not None


def places(options: LoadOptions, num_train: int, num_test: int) -> tuple[slice | np.ndarray, slice | np.ndarray]:
    """Returns the indices of the wanted training and test samples.

    They are the first ones of a seeded shuffle, so that a smaller subset is part of a larger one.
    """
    train = _some(num_train, options.train_samples, options.seed, 0)
    return train, _some(num_test, options.test_samples, options.seed, 1)


def places_of_owners(
    options: LoadOptions, train_owner: np.ndarray, test_owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of the wanted training and test samples of the wanted owners.

    Owners are sampled by the seed; of their samples, subsets are taken as `places` does.

    Args:
      train_owner, test_owner: owner of every sample that there is.
    """
    chosen = owners_of(options, train_owner)
    train, test = (np.flatnonzero(np.isin(owner, chosen)) for owner in (train_owner, test_owner))
    for field, samples in (("train_samples", train), ("test_samples", test)):
        if (count := getattr(options, field)) is not None and count > len(samples):
            rule = f"must be ≤ {len(samples):,}, all that the {len(chosen)} owners have"
            way_out = "Use more owners, or a larger min_owner_samples"
            raise InvalidValue(f"load_dataset.{field}", rule, f"{count:,}", way_out)
    some = places(options, len(train), len(test))
    return train[some[0]], test[some[1]]


def owners_of(options: LoadOptions, train_owner: np.ndarray) -> np.ndarray:
    """Returns the numbers of the wanted owners, sampled by the seed among those with enough training samples."""
    counts = np.bincount(train_owner)
    able = np.flatnonzero(counts >= max(options.min_owner_samples, 1))
    wanted = len(able) if options.owners is None else options.owners
    if not 1 <= wanted <= len(able):
        rule = f"must be from 1 to {len(able)}, the owners with at least {options.min_owner_samples} training samples"
        raise InvalidValue("load_dataset.owners", rule, "all" if options.owners is None else wanted)
    return able if options.owners is None else rng_for(options.seed, "owners").permutation(able)[:wanted]


def some_of(dataset: Dataset, options: LoadOptions) -> Dataset:
    """Returns at most as many samples as wanted, of the wanted owners, in the order of the data set."""
    train, test = np.arange(dataset.num_train), np.arange(dataset.num_test)
    if dataset.train_owner is not None:
        chosen = owners_of(options, dataset.train_owner)
        train = train[np.isin(dataset.train_owner, chosen)]
        if dataset.test_owner is not None:
            test = test[np.isin(dataset.test_owner, chosen)]
    elif options.owners is not None or options.min_owner_samples > 1:
        rule, way_out = "must be left out for samples without owners", "Name them by data.owner_column"
        raise InvalidValue("Scenario.data.owners", rule, options.owners or options.min_owner_samples, way_out)
    wanted = dataclasses.replace(
        options,
        train_samples=_at_most(options.train_samples, len(train)),
        test_samples=_at_most(options.test_samples, len(test)),
    )
    some = places(wanted, len(train), len(test))
    train, test = np.sort(train[some[0]]), np.sort(test[some[1]])
    whole = len(train) == dataset.num_train and len(test) == dataset.num_test
    return dataset if whole else dataset.some(train, test)


def _at_most(wanted: int | None, available: int) -> int | None:
    return None if wanted is None or wanted >= available else wanted


def _some(available: int, wanted: int | None, seed: int, part: int) -> slice | np.ndarray:
    if wanted is None:
        return slice(None)
    return rng_for(seed, "subset", part).permutation(available)[:wanted]
