"""From what users have, arrays or torch datasets, to a Dataset. Torch itself is never imported here."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.checks import quantity
from airprune.data.dataset import Dataset
from airprune.errors import InvalidValue
from airprune.randomness import rng_for

_WAY_OUT = "Give (x, y), ((x, y), (x_test, y_test)), a torch Dataset or a pair of them."
_CHANNELS = (1, 3, 4)

Part = tuple[np.ndarray, np.ndarray]


def as_dataset(
    data: Any,
    *,
    name: str = "custom",
    test: Any = None,
    test_share: float = 0.2,
    seed: int = 0,
    num_classes: int | None = None,
) -> Dataset:
    """A Dataset from arrays or torch objects.

    Bytes are scaled from 0…255 to [0, 1]; [N, H, W] becomes [N, 1, H, W], and [N, H, W, C] with 1, 3 or 4
    channels becomes [N, C, H, W]. Feature vectors stay [N, F].

    Args:
      data: (x, y) as numpy arrays, torch tensors or lists; ((x, y), (x_test, y_test)) as tuples; a map-style
        torch Dataset of (x, y) items, or a pair of them; or a Dataset, which is returned as it is.
      test: the test part, if `data` is only the training part.
      test_share: of the samples, drawn at random and held out, if there is no test part.
      seed: of that draw.
      num_classes: one more than the largest label, unless given.
    """
    if isinstance(data, Dataset):
        if test is not None:
            raise InvalidValue(
                "as_dataset.test", "must be None for a Dataset, which has a test part", type(test).__name__
            )
        return data
    if test is None and isinstance(data, tuple) and len(data) == 2 and all(map(_is_part, data)):
        data, test = data
    train = _part("as_dataset.data", data)
    held_out = _hold_out(train, test_share, seed) if test is None else (train, _part("as_dataset.test", test))
    (train_x, train_y), (test_x, test_y) = held_out
    if num_classes is None:
        largest = max((int(y.max()) for y in (train_y, test_y) if y.size and y.dtype.kind in "iub"), default=1)
        num_classes = max(1 + largest, 2)
    return Dataset(name=name, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y, num_classes=num_classes)


def standardized(dataset: Dataset) -> Dataset:
    """All samples shifted and scaled by one mean and one deviation, those of the training samples."""
    mean = float(dataset.train_x.mean(dtype=np.float64))
    deviation = float(dataset.train_x.std(dtype=np.float64)) or 1.0
    scaled = {
        name: (getattr(dataset, name) - np.float32(mean)) / np.float32(deviation) for name in ("train_x", "test_x")
    }
    return Dataset(
        name=dataset.name,
        train_y=dataset.train_y,
        test_y=dataset.test_y,
        num_classes=dataset.num_classes,
        **scaled,
    )


def _is_part(value: Any) -> bool:
    """Whether `value` is a whole part, i.e. samples with labels, rather than one array."""
    return (isinstance(value, tuple) and len(value) == 2) or _is_map_style(value)


def _is_map_style(value: Any) -> bool:
    if isinstance(value, (tuple, list, dict, str, bytes)) or hasattr(value, "shape"):
        return False
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _part(field: str, value: Any) -> Part:
    if isinstance(value, tuple) and len(value) == 2:
        x, y = _array(field, value[0]), _array(field, value[1])
    elif _is_map_style(value):
        x, y = _items(field, value)
    else:
        raise InvalidValue(field, "must be samples with labels", type(value).__name__, _WAY_OUT)
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        rule = "must be x [samples, features…] and y [samples]"
        raise InvalidValue(field, rule, f"shapes {x.shape} and {y.shape}", _WAY_OUT)
    return _as_images(x), y


def _items(field: str, dataset: Any) -> Part:
    """All items of a map-style dataset, stacked."""
    try:
        items = [dataset[index] for index in range(len(dataset))]
        pairs = [(_array(field, x), int(y)) for x, y in items]
    except (TypeError, ValueError) as error:
        raise InvalidValue(field, "must have items (x, y) with a whole y", str(error), _WAY_OUT) from error
    shapes = {x.shape for x, _ in pairs}
    if len(shapes) != 1:
        raise InvalidValue(
            field, "must have items of one shape", sorted(shapes)[:3] or "no items", "Resize them first."
        )
    return np.stack([x for x, _ in pairs]), np.array([y for _, y in pairs], dtype=np.int64)


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
    if x.ndim == 4 and x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS:
        x = np.moveaxis(x, 3, 1)
    if x.dtype == np.uint8:
        x = x.astype(np.float32) / np.float32(255)
    return x[:, None] if x.ndim == 3 else x


def _hold_out(part: Part, test_share: float, seed: int) -> tuple[Part, Part]:
    quantity("as_dataset.test_share", test_share, above=0.0, at_most=1.0)
    x, y = part
    num_test = max(1, round(len(x) * test_share))
    if num_test >= len(x):
        raise InvalidValue("as_dataset.test_share", f"must leave samples to train on out of {len(x)}", test_share)
    order = rng_for(seed, "hold-out").permutation(len(x))
    test, train = np.sort(order[:num_test]), np.sort(order[num_test:])
    return (x[train], y[train]), (x[test], y[test])
