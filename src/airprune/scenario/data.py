"""The samples of a scenario: its data set, and which of them each device has."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.data import Dataset, as_dataset, load_dataset, partition, standardized
from airprune.errors import InvalidValue
from airprune.network import Network
from airprune.scenario.scenario import Scenario

Array = np.ndarray


def dataset_of(scenario: Scenario, given: Any = None) -> Dataset:
    """What the scenario names, or what is `given` in its place."""
    data = scenario.data
    if given is not None:
        if data.judge_on == "held-out":
            rule, way_out = "must be test with a dataset of your own", "Give held-out samples as its test samples"
            raise InvalidValue("Scenario.data.judge_on", rule, data.judge_on, way_out)
        return as_dataset(given, seed=scenario.seed)
    dataset = load_dataset(
        data.name,
        data_dir=data.data_dir,
        train_samples=data.train_samples,
        test_samples=data.test_samples,
        judge_on=data.judge_on,
        seed=scenario.seed,
    )
    return standardized(dataset) if data.standardize else dataset


def samples_by_device(scenario: Scenario, data: Dataset, network: Network) -> tuple[Array, ...]:
    """Indices of each device's training samples.  [num_devices] arrays"""
    settings = scenario.data
    samples = partition(
        data.train_y,
        edge=network.edge,
        kind=settings.partition,
        seed=scenario.seed,
        classes_per_device=settings.classes_per_device,
        alpha=settings.alpha,
        size_spread=settings.size_spread,
    )
    return tuple(samples)
