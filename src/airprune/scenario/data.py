"""Loads the data set of a scenario and partitions it among the devices."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from airprune.data import (
    PARTITIONS,
    Dataset,
    DatasetEntry,
    Holdings,
    as_dataset,
    dataset_named,
    draw_samples,
    load_dataset,
    partition,
    standardized,
)
from airprune.data.convert import with_targets
from airprune.data.entry import LoadOptions, some_of
from airprune.errors import InvalidValue
from airprune.scenario.scenario import Scenario
from airprune.scenario.sections import DataSection
from airprune.wireless.network import Network

Array = np.ndarray


def dataset_of(scenario: Scenario, given: Any = None, *, targets: str = "classes") -> Dataset:
    """Returns the scenario's data set, or the one `given` instead; `targets` as the loss needs, see `as_dataset`."""
    data = scenario.data
    if data.judge_on == "held-out" and (given is not None or data.path is not None):
        rule, way_out = "must be test with a data set of your own", "Give held-out samples as its test samples"
        raise InvalidValue("Scenario.data.judge_on", rule, data.judge_on, way_out)
    if given is not None:
        return as_dataset(given, seed=scenario.seed, targets=targets)
    if data.path is not None:
        return _of_path(data, scenario.seed, targets)
    dataset = load_dataset(
        data.name,
        data_dir=data.data_dir,
        train_samples=data.train_samples,
        test_samples=data.test_samples,
        judge_on=data.judge_on,
        seed=scenario.seed,
        owners=data.owners,
        min_owner_samples=data.min_owner_samples,
    )
    return with_targets(standardized(dataset) if data.standardize else dataset, targets)


def _of_path(data: DataSection, seed: int, targets: str) -> Dataset:
    """Reads the samples of your own: as many as the settings allow, of the owners that they allow."""
    path = Path(str(data.path))
    whole = as_dataset(
        path,
        name=path.name,
        seed=seed,
        targets=targets,
        owner=data.owner_column,
        target=data.target_column,
        features=data.feature_columns,
        sample_shape=data.sample_shape,
    )
    options = LoadOptions(
        train_samples=data.train_samples,
        test_samples=data.test_samples,
        seed=seed,
        owners=data.owners,
        min_owner_samples=data.min_owner_samples,
    )
    dataset = some_of(whole, options)
    return standardized(dataset, by_column=True) if data.standardize else dataset


def entry_of(scenario: Scenario) -> DatasetEntry:
    """Returns the catalog's entry of the scenario's data set; for samples of your own, one of what the path holds."""
    data = scenario.data
    if data.path is None:
        return dataset_named(data.name)
    from airprune.models.losses import LOSSES

    loss = scenario.train.loss
    return _entry_of_path(data, scenario.seed, LOSSES[loss].targets if loss in LOSSES else "any")


@functools.lru_cache(maxsize=8)
def _entry_of_path(data: DataSection, seed: int, targets: str) -> DatasetEntry:
    found = _of_path(data, seed, targets)
    return DatasetEntry(
        name=found.name,
        summary="samples of your own",
        num_train=found.num_train,
        max_train=found.num_train,
        num_test=found.num_test,
        max_test=found.num_test,
        num_classes=found.num_outputs,
        feature_shape=found.feature_shape,
        load=lambda options: _of_path(data, seed, targets),
        has_owners=found.train_owner is not None,
    )


def classes_of(y: Array, data: Dataset) -> Array:
    """Returns the class of each sample; without classes, or with one for each position, 0 for all.  [num_samples]"""
    return y if data.num_classes and y.ndim == 1 else np.zeros(len(y), dtype=np.int64)


def samples_by_device(scenario: Scenario, data: Dataset, network: Network) -> Holdings:
    """Returns the indices of each device's training samples: partitioned, or sampled by each device by itself."""
    settings = scenario.data
    if settings.partition == "natural" and data.train_owner is None:
        rule = "must be another for samples without owners"
        way_out = "Name them: data.owner_column for a path, as_dataset(…, owner=…) in Python"
        raise InvalidValue("Scenario.data.partition", rule, "'natural'", way_out)
    if data.owner_order == "device" and settings.partition != "natural":
        rule = "must be natural for a list or a partitioner, whose parts are the devices'"
        raise InvalidValue("Scenario.data.partition", rule, repr(settings.partition), 'Example: partition = "natural"')
    if PARTITIONS[settings.partition].by_class and not (data.num_classes and data.train_y.ndim == 1):
        rule = "must be iid for samples without classes" + ("" if data.train_owner is None else ", or natural")
        raise InvalidValue("Scenario.data.partition", rule, repr(settings.partition), 'Example: partition = "iid"')
    classes = classes_of(data.train_y, data)
    options: dict[str, Any] = {
        "edge": network.edge,
        "kind": settings.partition,
        "seed": scenario.seed,
        "classes_per_device": settings.classes_per_device,
        "alpha": settings.alpha,
        "size_spread": settings.size_spread,
    }
    if settings.samples_per_device is None:
        return partition(classes, owner=data.train_owner, owner_order=data.owner_order, **options)
    return draw_samples(classes, samples_per_device=settings.samples_per_device, **options)


def held_out_by_device(scenario: Scenario, data: Dataset, samples: Holdings) -> tuple[Array, ...] | None:
    """Returns the indices of each device's own test samples, those of its owners; None where owners have none.

    Only with the partition natural, and a test part with owners. A device may have none.  [num_devices] arrays
    """
    if scenario.data.partition != "natural" or data.train_owner is None or data.test_owner is None:
        return None
    order = np.argsort(data.test_owner, kind="stable")
    owner = data.test_owner[order]
    found = []
    for own in samples:
        owners = np.unique(data.train_owner[own])
        first, last = np.searchsorted(owner, owners), np.searchsorted(owner, owners, side="right")
        found.append(np.sort(np.concatenate([order[a:b] for a, b in zip(first, last, strict=True)])))
    return tuple(found)
