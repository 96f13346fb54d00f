"""Converts arrays, tables, torch objects, lists of them, partitioners and files to a Dataset."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from airprune.checks import quantity
from airprune.data.dataset import Dataset
from airprune.data.files import read_files
from airprune.data.input_fields import InputField, fields_of, packed
from airprune.data.owned import by_owner, is_partitioner
from airprune.data.samples import Array, Columns, Inputs, Samples, array_of, is_part, samples_of
from airprune.errors import InvalidValue
from airprune.randomness import rng_for


def as_dataset(
    data: Any,
    *,
    name: str = "custom",
    test: Any = None,
    test_share: float = 0.2,
    seed: int = 0,
    num_classes: int | None = None,
    targets: str = "classes",
    owner: Any = None,
    test_owner: Any = None,
    target: str | None = None,
    features: Sequence[str] | None = None,
    sample_shape: Sequence[int] | None = None,
) -> Dataset:
    """Returns a Dataset from arrays, tables, torch objects, files, or lists of what each owner has.

    Shapes stay as they are, real numbers become float32, whole numbers int64. Bytes are pixels: scaled from 0…255 to
    [0, 1], with [N, H, W] turned to [N, 1, H, W], and [N, H, W, C] with 1, 3 or 4 channels to [N, C, H, W].

    Args:
      data: (x, y) as numpy arrays, pandas objects, torch tensors or lists; ((x, y), (x_test, y_test)) as tuples; a
        pandas DataFrame or Hugging Face dataset with its target in a column of `TARGETS`; a map-style torch Dataset of
        (x, y) items; a torch DataLoader of (x, y) batches; a pair of any of these; a mapping with "train" and "test";
        a list of any of these, one for each device; an object with `num_partitions` and `load_partition(i)`, or a
        FederatedDataset of flwr-datasets; the path of a CSV, NPZ or LEAF file, or of a folder of LEAF, PFLlib or
        images; or a Dataset, which is returned as it is. x may be a dictionary of arrays, and items or batches may be
        dictionaries that have the target among their keys: then the model gets a dictionary.
      test: the test part, if `data` is only the training part.
      test_share: share of the samples that is held out at random, if there is no test part; of each owner's samples, if
        they have owners.
      seed: of the held-out samples.
      num_classes: one more than the largest training label, unless given; a test label beyond it is refused.
      targets: "classes": y holds one class per sample; "tokens": one per position; "values": real numbers of any shape;
        "any": what y holds.
      owner: the owner of each sample, for the partition "natural": the name of a column, or numbers or names.
        [num_samples]
      test_owner: of the test part, if there is one.
      target: the column with the target, if it is not one of `TARGETS`.
      features: the columns with the features, if they are not all others.
      sample_shape: the shape of a sample, where the file has it flat; the size of images in a folder.
    """
    if isinstance(data, Dataset):
        for field, given in (("test", test), ("owner", owner), ("test_owner", test_owner)):
            if given is not None:
                rule = "must be None for a Dataset, which has " + ("a test part" if field == "test" else "its own")
                raise InvalidValue(f"as_dataset.{field}", rule, type(given).__name__)
        return data
    columns = Columns(
        target=target,
        features=None if features is None else tuple(features),
        owner=owner if isinstance(owner, str) else None,
    )
    found = _found(data, test, targets, columns, sample_shape)
    if owner is not None and columns.owner is None:
        found = found.owned(owner, test_owner)
    elif test_owner is not None:
        raise InvalidValue("as_dataset.test_owner", "must be None without owner", type(test_owner).__name__)
    if columns.owner is not None and found.train.owner is None:
        rule = "must be the owners themselves for samples without columns"
        raise InvalidValue("as_dataset.owner", rule, repr(owner), "Give one number or name per sample.")
    numbered, names = _numbered_owners(found)
    parts, all_y = _split(numbered, test_share, seed)
    if num_classes is None:
        num_classes = len(found.class_names) or _num_classes(all_y, parts[1].y, targets)
    arrays, fields = _arrays(parts)
    order: Literal["device", "sorted"] = "device" if found.is_by_device else "sorted"
    return Dataset(
        name=name,
        num_classes=num_classes,
        fields=fields,
        class_names=found.class_names,
        owner_names=names,
        owner_order=order if parts[0].owner is not None else "random",
        **arrays,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Found:
    """The parts as they were read.

    Attributes:
      class_names: of classes that files have as text, in the order of their numbers.
      is_by_device: True if there is one owner per device, in their order.
    """

    train: Samples
    test: Samples | None
    class_names: tuple[str, ...] = ()
    is_by_device: bool = False

    def owned(self, owner: Any, test_owner: Any) -> _Found:
        """Returns the same with the owners that are given beside the samples."""
        if self.is_by_device:
            rule = "must be None for a list or partitioner, whose parts are the owners"
            raise InvalidValue("as_dataset.owner", rule, type(owner).__name__)
        train = dataclasses.replace(self.train, owner=_owner("as_dataset.owner", owner, len(self.train)))
        if self.test is None and test_owner is not None:
            rule = "must be None without a test part, whose owners follow from owner"
            raise InvalidValue("as_dataset.test_owner", rule, type(test_owner).__name__)
        if self.test is None or test_owner is None:
            return dataclasses.replace(self, train=train)
        theirs = _owner("as_dataset.test_owner", test_owner, len(self.test))
        return dataclasses.replace(self, train=train, test=dataclasses.replace(self.test, owner=theirs))


def _found(data: Any, test: Any, targets: str, columns: Columns, sample_shape: Sequence[int] | None) -> _Found:
    """Reads the training part, and the test part if there is one."""
    if isinstance(data, (str, os.PathLike)):
        shape = None if sample_shape is None else tuple(sample_shape)
        files = read_files(Path(data), targets=targets, columns=columns, sample_shape=shape)
        found = _Found(train=files.train, test=files.test, class_names=files.class_names)
        return (
            found if test is None else dataclasses.replace(found, test=_part("as_dataset.test", test, targets, columns))
        )
    if sample_shape is not None:
        rule, way_out = "must be None for samples that are not in a file", "Give x.reshape(…)."
        raise InvalidValue("as_dataset.sample_shape", rule, tuple(sample_shape), way_out)
    if is_partitioner(data) or _is_list_of_parts(data):
        train, own_test = by_owner("as_dataset.data", data, targets, columns)
        found = _Found(train=train, test=own_test, is_by_device=True)
        return (
            found if test is None else dataclasses.replace(found, test=_part("as_dataset.test", test, targets, columns))
        )
    if test is None and isinstance(data, Mapping):
        if not {"train", "test"} <= set(data):
            rule, got = "must have the parts train and test", ", ".join(map(str, data))
            way_out = "Give one part, data[NAME], of which some is held out, or a pair (data[NAME], data[NAME])."
            raise InvalidValue("as_dataset.data", rule, got, way_out)
        data, test = data["train"], data["test"]
    elif test is None and isinstance(data, tuple) and len(data) == 2 and all(map(_is_part_or_list, data)):
        data, test = data
    if _is_list_of_parts(data) or is_partitioner(data):
        return _found(data, test, targets, columns, None)
    train = samples_of("as_dataset.data", data, targets, columns)
    return _Found(train=train, test=None if test is None else _part("as_dataset.test", test, targets, columns))


def _part(field: str, value: Any, targets: str, columns: Columns) -> Samples:
    """Returns the samples of a test part: with owners if it is a list, or has their column."""
    if isinstance(value, (str, os.PathLike)):
        return read_files(Path(value), targets=targets, columns=columns, sample_shape=None).train
    if is_partitioner(value) or _is_list_of_parts(value):
        return by_owner(field, value, targets, columns)[0]
    return samples_of(field, value, targets, columns)


def _is_list_of_parts(value: Any) -> bool:
    return isinstance(value, list) and (not value or all(is_part(one) or isinstance(one, Mapping) for one in value))


def _is_part_or_list(value: Any) -> bool:
    return is_part(value) or is_partitioner(value) or (_is_list_of_parts(value) and len(value) > 0)


def _numbered_owners(found: _Found) -> tuple[_Found, tuple[str, ...]]:
    """Returns the parts with numbers for owners, and the names of numbers 0, 1, … where they have names, sorted."""
    train = found.train.owner
    if train is None:
        return dataclasses.replace(found, test=_without_owner(found.test)), ()
    test = None if found.test is None else found.test.owner
    owners = (train,) if test is None else (train, test)
    if all(owner.dtype.kind in "iu" for owner in owners):
        return found, ()
    texts = [np.array([str(one) for one in owner.tolist()]) for owner in owners]
    names = np.unique(np.concatenate(texts))
    numbers = [np.searchsorted(names, text) for text in texts]
    parts: dict[str, Any] = {"train": dataclasses.replace(found.train, owner=numbers[0])}
    if test is not None and found.test is not None:
        parts["test"] = dataclasses.replace(found.test, owner=numbers[1])
    return dataclasses.replace(found, **parts), tuple(names.tolist())


def _without_owner(part: Samples | None) -> Samples | None:
    return None if part is None else dataclasses.replace(part, owner=None)


def _split(found: _Found, test_share: float, seed: int) -> tuple[tuple[Samples, Samples], Array]:
    """Returns the training and the test part, and the labels of all training samples before holding some out."""
    if found.test is not None:
        return (found.train, found.test), found.train.y
    kept, held_out = _hold_out(len(found.train), test_share, seed, found.train.owner)
    return (found.train.some(kept), found.train.some(held_out)), found.train.y


def _arrays(parts: tuple[Samples, Samples]) -> tuple[dict[str, Any], tuple[InputField, ...]]:
    """Returns the arrays of a Dataset, and the fields of inputs that are dictionaries."""
    arrays: dict[str, Any] = {}
    train, test = parts
    fields = fields_of("as_dataset.data", train.x) if isinstance(train.x, dict) else ()
    for name, part in (("train", train), ("test", test)):
        arrays[f"{name}_x"] = _packed(f"as_dataset.{name}", part.x, fields)
        arrays[f"{name}_y"] = part.y
        arrays[f"{name}_owner"] = part.owner
    return arrays, fields


def _packed(field: str, x: Inputs, fields: tuple[InputField, ...]) -> Array:
    if not fields and not isinstance(x, dict):
        return x
    mine = fields_of(field, x) if isinstance(x, dict) else ()
    if {(one.name, one.shape) for one in mine} != {(one.name, one.shape) for one in fields} or not isinstance(x, dict):
        wanted, got = (
            ", ".join(f"{one.name} {list(one.shape)}" for one in some) or "one array" for some in (fields, mine)
        )
        raise InvalidValue(field, f"must have the inputs of the training samples, {wanted}", got)
    return packed(field, x, fields)


def _owner(field: str, value: Any, num_samples: int) -> np.ndarray:
    owner = array_of(field, value)
    if owner.shape != (num_samples,):
        raise InvalidValue(
            field, f"must be one number or name for each of {num_samples} samples", f"shape {owner.shape}"
        )
    return owner


def _num_classes(known: np.ndarray, test_y: np.ndarray, targets: str) -> int:
    """Returns the number of classes of the training labels, before holding out; 0 if the targets are not classes."""
    labels = (known, test_y)
    if targets == "values" or (targets == "any" and not all(y.ndim == 1 and y.dtype.kind in "iub" for y in labels)):
        return 0
    if targets == "any" and any(y.size and int(y.min()) < 0 for y in labels):
        return 0
    # −1 where there are no labels, which `Dataset` refuses.
    largest, tested = (int(y.max()) if y.size and y.dtype.kind in "iub" else -1 for y in labels)
    num_classes = max(1 + largest, 2)
    if largest >= 0 and num_classes <= tested:
        raise InvalidValue(
            "as_dataset.test",
            f"must have labels of the training samples, whose largest is {largest}",
            tested,
            f"Remove those samples, or give the number of classes: as_dataset(…, num_classes={tested + 1}).",
        )
    return num_classes


def with_targets(dataset: Dataset, targets: str) -> Dataset:
    """Returns the samples with their classes as numbers, for losses of numbers."""
    if targets != "values" or not dataset.num_classes:
        return dataset
    train_y, test_y = (y.astype(np.float32) for y in (dataset.train_y, dataset.test_y))
    return dataclasses.replace(dataset, train_y=train_y, test_y=test_y, num_classes=0)


def standardized(dataset: Dataset, *, by_column: bool = False) -> Dataset:
    """Shifts and scales all samples by the mean and the standard deviation of the training samples.

    One of each for all, or one for each channel of colour images; `by_column`: one for each column of a table. Whole
    numbers are tokens, which stay as they are, and so do several inputs side by side.
    """
    train = dataset.train_x
    if train.dtype == np.int64 or dataset.fields:
        return dataset
    if by_column and train.ndim == 2:
        mean, deviation = train.mean(axis=0, dtype=np.float64), train.std(axis=0, dtype=np.float64)
        deviation = np.where(deviation > 0.0, deviation, 1.0)
    elif train.ndim == 4 and train.shape[1] > 1:
        mean = train.mean(axis=(0, 2, 3), dtype=np.float64, keepdims=True)
        deviation = train.std(axis=(0, 2, 3), dtype=np.float64, keepdims=True)
        deviation = np.where(deviation > 0.0, deviation, 1.0)
    else:
        mean = np.array(float(train.mean(dtype=np.float64)))
        deviation = np.array(float(train.std(dtype=np.float64)) or 1.0)
    scaled = {
        name: (getattr(dataset, name) - mean.astype(np.float32)) / deviation.astype(np.float32)
        for name in ("train_x", "test_x")
    }
    return dataclasses.replace(dataset, **scaled)


def _hold_out(num_samples: int, test_share: float, seed: int, owner: Array | None) -> tuple[Array, Array]:
    """Returns the indices of the samples to train on, and of those held out: a share of all, or of each owner's."""
    quantity("as_dataset.test_share", test_share, above=0.0, at_most=1.0)
    order = rng_for(seed, "hold-out").permutation(num_samples)
    if owner is None:
        num_test = max(1, round(num_samples * test_share))
        chosen = order[:num_test]
    else:
        by_owner = order[np.argsort(owner[order], kind="stable")]  # each owner's samples together, shuffled
        counts = np.unique(owner, return_counts=True)[1]
        place = np.arange(num_samples) - np.repeat(np.cumsum(counts) - counts, counts)
        wanted = np.minimum(np.rint(counts * test_share), counts - 1)  # every owner keeps a sample to train on
        chosen = by_owner[place < np.repeat(wanted, counts)]
    if not 0 < len(chosen) < num_samples:
        raise InvalidValue("as_dataset.test_share", f"must leave samples to train on out of {num_samples}", test_share)
    kept = np.ones(num_samples, dtype=bool)
    kept[chosen] = False
    return np.flatnonzero(kept), np.sort(chosen)
