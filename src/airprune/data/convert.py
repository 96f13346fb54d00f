"""Converts arrays, pandas tables, torch data sets and loaders, and Hugging Face data sets to a Dataset.

Each is recognised by its attributes; neither torch nor pandas nor datasets is imported here.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from airprune.checks import quantity
from airprune.data.dataset import Dataset
from airprune.errors import InvalidValue
from airprune.randomness import rng_for

_WAY_OUT = (
    "Give (x, y), ((x, y), (x_test, y_test)), a pandas table, a torch Dataset or DataLoader, a Hugging Face dataset, "
    "or a pair of them."
)
_CHANNELS = (1, 3, 4)
# Columns of tables that hold the target, in the order of search.
TARGETS = ("label", "labels", "target", "y", "class")
_ROWS_AT_ONCE = 1024

Part = tuple[np.ndarray, np.ndarray]


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
) -> Dataset:
    """Returns a Dataset from arrays, tables or torch objects.

    Shapes stay as they are, real numbers become float32, whole numbers int64. Bytes are pixels: scaled from 0…255 to
    [0, 1], with [N, H, W] turned to [N, 1, H, W], and [N, H, W, C] with 1, 3 or 4 channels to [N, C, H, W].

    Args:
      data: (x, y) as numpy arrays, pandas objects, torch tensors or lists; ((x, y), (x_test, y_test)) as tuples; a
        pandas DataFrame or Hugging Face dataset with its target in a column of `TARGETS`; a map-style torch Dataset of
        (x, y) items; a torch DataLoader of (x, y) batches; a pair of any of these; a mapping with "train" and "test";
        or a Dataset, which is returned as it is.
      test: the test part, if `data` is only the training part.
      test_share: share of the samples that is held out at random, if there is no test part.
      seed: of the held-out samples.
      num_classes: one more than the largest training label, unless given; a test label beyond it is refused.
      targets: "classes": y holds one class per sample; "values": real numbers of any shape; "any": what y holds.
      owner: the number of the owner of each sample, for the partition "natural".  [num_samples]
      test_owner: of the test part, if there is one.
    """
    if isinstance(data, Dataset):
        for field, given in (("test", test), ("owner", owner), ("test_owner", test_owner)):
            if given is not None:
                rule = "must be None for a Dataset, which has " + ("a test part" if field == "test" else "its own")
                raise InvalidValue(f"as_dataset.{field}", rule, type(given).__name__)
        return data
    if test is None and isinstance(data, Mapping):
        if not {"train", "test"} <= set(data):
            rule, got = "must have the parts train and test", ", ".join(map(str, data))
            way_out = "Give one part, data[NAME], of which some is held out, or a pair (data[NAME], data[NAME])."
            raise InvalidValue("as_dataset.data", rule, got, way_out)
        data, test = data["train"], data["test"]
    if test is None and isinstance(data, tuple) and len(data) == 2 and all(map(_is_part, data)):
        data, test = data
    train = _part("as_dataset.data", data, targets)
    train_owner = None if owner is None else _owner("as_dataset.owner", owner, len(train[0]))
    if test is not None:
        (train_x, train_y), (test_x, test_y) = train, _part("as_dataset.test", test, targets)
    else:
        if test_owner is not None:
            rule = "must be None without a test part, whose owners follow from owner"
            raise InvalidValue("as_dataset.test_owner", rule, type(test_owner).__name__)
        kept, held_out = _hold_out(len(train[0]), test_share, seed)
        (train_x, train_y), (test_x, test_y) = ((train[0][part], train[1][part]) for part in (kept, held_out))
        if train_owner is not None:
            train_owner, test_owner = train_owner[kept], train_owner[held_out]
    if num_classes is None:
        num_classes = _num_classes(train[1], test_y, targets)
    return Dataset(
        name=name,
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        num_classes=num_classes,
        train_owner=train_owner,
        test_owner=test_owner,
    )


def _owner(field: str, value: Any, num_samples: int) -> np.ndarray:
    owner = _array(field, value)
    if owner.shape != (num_samples,):
        raise InvalidValue(field, f"must be one number for each of {num_samples} samples", f"shape {owner.shape}")
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


def standardized(dataset: Dataset) -> Dataset:
    """Shifts and scales all samples by the mean and the standard deviation of the training samples.

    One of each for all, or one for each channel of colour images. Whole numbers are tokens, which stay as they are.
    """
    train = dataset.train_x
    if train.dtype == np.int64:
        return dataset
    if train.ndim == 4 and train.shape[1] > 1:
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


def _is_part(value: Any) -> bool:
    """True if `value` is a whole part, i.e. samples with labels, rather than one array."""
    is_pair = isinstance(value, tuple) and len(value) == 2
    return is_pair or _is_table(value) or _is_loader(value) or _is_map_style(value)


def _is_table(value: Any) -> bool:
    """True for a pandas DataFrame or a Hugging Face dataset."""
    return (hasattr(value, "columns") and hasattr(value, "to_numpy")) or _is_hugging_face(value)


def _is_hugging_face(value: Any) -> bool:
    return hasattr(value, "column_names") and hasattr(value, "with_format") and not isinstance(value, Mapping)


def _is_loader(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("dataset", "collate_fn", "__iter__"))


def _is_map_style(value: Any) -> bool:
    if isinstance(value, (tuple, list, dict, str, bytes)) or hasattr(value, "shape"):
        return False
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _part(field: str, value: Any, targets: str) -> Part:
    if isinstance(value, tuple) and len(value) == 2:
        x, y = _array(field, value[0]), _array(field, value[1])
    elif _is_table(value):
        x, y = _table(field, value)
    elif _is_loader(value):
        x, y = _stacked(field, _batches(value))
    elif _is_map_style(value):
        x, y = _items(field, value)
    else:
        raise InvalidValue(field, "must be samples with labels", type(value).__name__, _WAY_OUT)
    if x.ndim < 2 or y.ndim == 0 or (targets == "classes" and y.ndim != 1) or len(x) != len(y):
        rule = f"must be x [samples, features…] and y [samples{'' if targets == 'classes' else ', …'}]"
        raise InvalidValue(field, rule, f"shapes {x.shape} and {y.shape}", _WAY_OUT)
    if targets == "values" and y.dtype.kind in "iub":
        y = y.astype(np.float32)
    return _as_images(x), y


def _table(field: str, table: Any) -> Part:
    """Returns the other columns side by side, or the only one as it is, and the column with the target."""
    names = list(table.column_names if _is_hugging_face(table) else table.columns)
    target = next((name for name in TARGETS if name in names), None)
    others = [name for name in names if name != target]
    if target is None or not others:
        got = f"columns {', '.join(map(repr, names[:8]))}"
        raise InvalidValue(field, f"must have a target in a column {', '.join(TARGETS)}, and features", got)
    if not _is_hugging_face(table):
        return _real(field, table[others]), _array(field, table[target])
    if not hasattr(table, "__len__"):
        way_out = "Collect it first: datasets.Dataset.from_list(list(stream))."
        raise InvalidValue(field, "must have a length, which a stream has not", type(table).__name__, way_out)
    rows = table.with_format("numpy")[:]
    y = _array(field, rows[target])
    if len(others) == 1:
        x = _array(field, list(rows[others[0]]))
        is_bytes = x.dtype.kind == "i" and _is_bytes(getattr(table, "features", {}).get(others[0]))
        return x.astype(np.uint8) if is_bytes else x, y
    columns = [_array(field, rows[name]) for name in others]
    if any(column.ndim != 1 or column.dtype.kind not in "fiub" for column in columns):
        way_out = "Choose one with table.select_columns([…]), or give (x, y)."
        raise InvalidValue(field, "must have one column of features, or columns of numbers", ", ".join(others), way_out)
    return np.stack(columns, axis=1).astype(np.float32), y


def _is_bytes(feature: Any) -> bool:
    """True if a Hugging Face column holds bytes, which its numpy format widens to int64."""
    while (inner := getattr(feature, "feature", None)) is not None:
        feature = inner
    return getattr(feature, "dtype", None) == "uint8"


def _real(field: str, table: Any) -> np.ndarray:
    """Returns a pandas table of features as real numbers."""
    try:
        found: np.ndarray = table.to_numpy(dtype=np.float32)
        return found
    except (TypeError, ValueError) as error:
        way_out = "Encode the others first, e.g. pandas.get_dummies(table)."
        raise InvalidValue(field, "must have columns of numbers", str(error), way_out) from None


def _batches(loader: Any) -> Iterable[Any]:
    """Yields one pass of a loader in the order of its dataset: airprune shuffles by itself.

    Its sampler chooses the samples, its collate function makes the batches. A stream keeps its own order.
    """
    # Torch's streams have a `__getitem__` too, which only raises, and a sampler that never ends.
    streams = any(kind.__name__ == "IterableDataset" for kind in type(loader.dataset).__mro__)
    if streams or not hasattr(loader.dataset, "__len__") or getattr(loader, "batch_sampler", None) is None:
        return loader
    chosen = sorted(itertools.chain.from_iterable(loader.batch_sampler))
    size = min(getattr(loader, "batch_size", None) or _ROWS_AT_ONCE, _ROWS_AT_ONCE)
    starts = range(0, len(chosen), size)
    return (loader.collate_fn([loader.dataset[i] for i in chosen[start : start + size]]) for start in starts)


def _stacked(field: str, batches: Iterable[Any]) -> Part:
    pairs = []
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise InvalidValue(field, "must have batches (x, y)", type(batch).__name__, _WAY_OUT)
        pairs.append((_array(field, batch[0]), _array(field, batch[1])))
    try:
        return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])
    except ValueError as error:
        way_out = "Pad or cut samples to one length."
        raise InvalidValue(field, "must have batches of samples of one shape", str(error), way_out) from None


def _items(field: str, dataset: Any) -> Part:
    """Stacks all items of a map-style dataset."""
    try:
        pairs = [dataset[index] for index in range(len(dataset))]
        arrays = [(_array(field, x), _array(field, y)) for x, y in pairs]
    except (TypeError, ValueError) as error:
        raise InvalidValue(field, "must have items (x, y)", str(error), _WAY_OUT) from error
    for place in (0, 1):
        shapes = {pair[place].shape for pair in arrays}
        if len(shapes) != 1:
            got = sorted(shapes)[:3] or "no items"
            raise InvalidValue(field, "must have items of one shape", got, "Resize, pad or cut them first.")
    return np.stack([x for x, _ in arrays]), np.stack([y for _, y in arrays])


def _array(field: str, value: Any) -> np.ndarray:
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value  # numpy has no bfloat16
        return value.numpy()
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidValue(field, "must hold arrays of one shape", "a ragged list", _WAY_OUT) from None


def _as_images(x: np.ndarray) -> np.ndarray:
    """Scales bytes, which are pixels, to [0, 1], channels first."""
    if x.dtype != np.uint8:
        return x
    if x.ndim == 4 and x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS:
        x = np.moveaxis(x, 3, 1)
    x = x.astype(np.float32) / np.float32(255)
    return x[:, None] if x.ndim == 3 else x


def _hold_out(num_samples: int, test_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of the samples to train on, and of those held out."""
    quantity("as_dataset.test_share", test_share, above=0.0, at_most=1.0)
    num_test = max(1, round(num_samples * test_share))
    if num_test >= num_samples:
        raise InvalidValue("as_dataset.test_share", f"must leave samples to train on out of {num_samples}", test_share)
    order = rng_for(seed, "hold-out").permutation(num_samples)
    return np.sort(order[num_test:]), np.sort(order[:num_test])
