"""Loads the data set of a scenario and partitions it among the devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.data import (
    PARTITIONS,
    Dataset,
    Holdings,
    as_dataset,
    draw_samples,
    load_dataset,
    partition,
    standardized,
)
from airprune.data.convert import with_targets
from airprune.errors import InvalidValue
from airprune.scenario.scenario import Scenario
from airprune.wireless.network import Network

Array = np.ndarray


def dataset_of(scenario: Scenario, given: Any = None, *, targets: str = "classes") -> Dataset:
    """Returns the scenario's data set, or the one `given` instead; `targets` as the loss needs, see `as_dataset`."""
    data = scenario.data
    if given is not None:
        if data.judge_on == "held-out":
            rule, way_out = "must be test with a data set of your own", "Give held-out samples as its test samples"
            raise InvalidValue("Scenario.data.judge_on", rule, data.judge_on, way_out)
        return as_dataset(given, seed=scenario.seed, targets=targets)
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


def classes_of(y: Array, data: Dataset) -> Array:
    """Returns the class of each sample; without classes, or with one for each position, 0 for all.  [num_samples]"""
    return y if data.num_classes and y.ndim == 1 else np.zeros(len(y), dtype=np.int64)


def samples_by_device(scenario: Scenario, data: Dataset, network: Network) -> Holdings:
    """Returns the indices of each device's training samples: partitioned, or sampled by each device by itself."""
    settings = scenario.data
    if settings.partition == "natural" and data.train_owner is None:
        rule, way_out = "must be another for samples without owners", 'Example: data.name = "shakespeare"'
        raise InvalidValue("Scenario.data.partition", rule, "'natural'", way_out)
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
        return partition(classes, owner=data.train_owner, **options)
    return draw_samples(classes, samples_per_device=settings.samples_per_device, **options)
