"""Reads what each owner has: a list of data sets, or a partitioner as flwr-datasets has them.

A partitioner is any object with `num_partitions` and `load_partition(i)`; a FederatedDataset has several, by split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from airprune.checks import whole_number
from airprune.data.samples import Columns, Samples, is_part, joined, samples_of
from airprune.errors import AirpruneError, InvalidValue

TRAIN, TEST = "train", "test"


def is_partitioner(value: Any) -> bool:
    return callable(getattr(value, "load_partition", None)) and not isinstance(value, type)


def by_owner(field: str, value: Any, targets: str, columns: Columns) -> tuple[Samples, Samples | None]:
    """Returns the training and test samples of all owners, numbered in their order; no test part if they have none."""
    if is_partitioner(value):
        return _of_partitioner(field, value, targets, columns)
    if not value:
        raise InvalidValue(field, "must have a part for each device", "an empty list")
    pairs = [_pair(f"{field}[{number}]", part, targets, columns) for number, part in enumerate(value)]
    tests = [test for _, test in pairs if test is not None]
    if tests and len(tests) < len(pairs):
        lacking = next(number for number, (_, test) in enumerate(pairs) if test is None)
        rule = "must have a test part in all of its parts or in none"
        raise InvalidValue(field, rule, f"none in part {lacking}")
    train = _numbered(field, [train for train, _ in pairs])
    return train, _numbered(field, tests) if tests else None


def _pair(field: str, part: Any, targets: str, columns: Columns) -> tuple[Samples, Samples | None]:
    """Returns (training samples, test samples or None) of one owner."""
    if isinstance(part, Mapping) and {TRAIN, TEST} <= set(part):
        part = (part[TRAIN], part[TEST])
    if isinstance(part, tuple) and len(part) == 2 and all(map(is_part, part)):
        return _samples(field, part[0], targets, columns), _samples(field, part[1], targets, columns)
    return _samples(field, part, targets, columns), None


def _samples(field: str, part: Any, targets: str, columns: Columns) -> Samples:
    """Returns the samples of one owner; refuses one without any."""
    inside = part[1] if isinstance(part, tuple) else part
    if hasattr(inside, "__len__") and not len(inside):
        raise InvalidValue(field, "must have samples", "none", "Use fewer devices, or larger parts.")
    return samples_of(field, part, targets, columns)


def _of_partitioner(field: str, value: Any, targets: str, columns: Columns) -> tuple[Samples, Samples | None]:
    by_split = _read(field, lambda: getattr(value, "partitioners", None))
    if not isinstance(by_split, Mapping):
        return _partitions(field, value, targets, columns), None
    split = TRAIN if TRAIN in by_split else next(iter(by_split), None)
    if split is None:
        raise InvalidValue(field, "must have a partitioner", "none")
    train = _partitions(field, by_split[split], targets, columns)
    if TEST in by_split and split != TEST:
        return train, _partitions(field, by_split[TEST], targets, columns)
    try:
        whole = value.load_split(TEST)
    except (AttributeError, KeyError, ValueError):  # it has no such split
        return train, None
    return train, samples_of(field, whole, targets, columns)


def _partitions(field: str, partitioner: Any, targets: str, columns: Columns) -> Samples:
    count = _read(field, lambda: partitioner.num_partitions)
    whole_number(f"{field}.num_partitions", count, at_least=1)
    parts = [_read(field, lambda n=number: partitioner.load_partition(n)) for number in range(count)]
    by = getattr(partitioner, "partition_by", getattr(partitioner, "_partition_by", None))
    found = []
    for number, part in enumerate(parts):
        where = f"{field}.load_partition({number})"
        names = list(getattr(part, "column_names", ()))
        # The column that names owners is no feature, but the one with the target may be what partitions go by.
        own = columns
        if isinstance(by, str) and by in names and columns.owner is None and by != columns.chosen(where, names)[0]:
            own = Columns(target=columns.target, features=columns.features, owner=by)
        found.append(_samples(where, part, targets, own))
    return _numbered(field, found)


def _read(field: str, call: Any) -> Any:
    try:
        return call()
    except AirpruneError:
        raise
    except Exception as error:  # whatever a partitioner raises, such as one without its dataset
        got = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise InvalidValue(field, "must load its partitions", got) from None


def _numbered(field: str, parts: list[Samples]) -> Samples:
    """Joins the parts; the number of each is its owner."""
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    whole = joined(field, parts)
    return Samples(x=whole.x, y=whole.y, owner=owner)
