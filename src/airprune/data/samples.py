"""Reads samples with their targets from arrays, pandas tables, torch data sets and loaders, and Hugging Face data sets.

Each is recognised by its attributes; neither torch nor pandas nor datasets is imported here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.errors import InvalidValue

Array = np.ndarray
Inputs = Array | dict[str, Array]

WAY_OUT = (
    "Give (x, y), ((x, y), (x_test, y_test)), a pandas table, a torch Dataset or DataLoader, a Hugging Face dataset, "
    "or a pair of them; a list of them, one per device; or the path of a file or folder."
)
_CHANNELS = (1, 3, 4)
# Columns of tables that hold the target, in the order of search.
TARGETS = ("label", "labels", "target", "y", "class")
_ROWS_AT_ONCE = 1024
_INPUT, _TARGET, _OWNER = "\0x", "\0y", "\0owner"  # no names of inputs


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of tables, and keys of dictionaries.

    Attributes:
      target: None for the first of TARGETS.
      features: None for all others.
      owner: names who each sample comes from; None without owners.
    """

    target: str | None = None
    features: tuple[str, ...] | None = None
    owner: str | None = None

    def chosen(self, field: str, names: Sequence[str]) -> tuple[str, list[str]]:
        """Returns the target and the features among the columns that there are."""
        got = f"columns {', '.join(map(repr, names[:8]))}" if names else "no columns"
        for column, kind in ((self.target, "target"), (self.owner, "owner"), *((name, "") for name in self.inputs)):
            if column is not None and column not in names:
                raise InvalidValue(field, f"must have the {kind} column {column!r}".replace("  ", " "), got)
        target = self.target or next((name for name in TARGETS if name in names and name != self.owner), None)
        others = [name for name in self.inputs or names if name not in (target, self.owner)]
        if target is None or not others:
            raise InvalidValue(field, f"must have a target in a column {', '.join(TARGETS)}, and features", got)
        return target, others

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.features or ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Samples as they were read.

    Attributes:
      x: one array, or one for each named input of the model.  [num_samples, …]
      y: [num_samples, …]
      owner: names or numbers; None without an owner's column.  [num_samples]
    """

    x: Inputs
    y: Array
    owner: Array | None = None

    def __len__(self) -> int:
        return len(self.y)

    def some(self, chosen: Array) -> Samples:
        x = {name: array[chosen] for name, array in self.x.items()} if isinstance(self.x, dict) else self.x[chosen]
        return Samples(x=x, y=self.y[chosen], owner=None if self.owner is None else self.owner[chosen])


def joined(field: str, parts: Sequence[Samples]) -> Samples:
    """Returns all samples of several parts, one after the other; refuses parts of different shapes."""
    first = parts[0]
    for number, part in enumerate(parts):
        if _form(part) != _form(first):
            rule = f"must have parts of one shape and type, as part 0 has: {_form(first)}"
            raise InvalidValue(field, rule, f"{_form(part)} in part {number}", "Resize, pad or cut them first.")
    if isinstance(first.x, dict):
        names = list(first.x)
        x: Inputs = {name: np.concatenate([part.x[name] for part in parts]) for name in names}
    else:
        x = np.concatenate([part.x for part in parts])
    owners = [part.owner for part in parts if part.owner is not None]
    owner = np.concatenate(owners) if len(owners) == len(parts) else None
    return Samples(x=x, y=np.concatenate([part.y for part in parts]), owner=owner)


def _form(part: Samples) -> str:
    """Returns shapes and kinds of one sample: parts with the same can be joined."""
    kinds = {"f": "real", "i": "whole", "u": "whole", "b": "yes or no"}
    arrays = part.x if isinstance(part.x, dict) else {"x": part.x}
    return ", ".join(
        f"{name} {list(array.shape[1:])} {kinds.get(array.dtype.kind, 'text')}"
        for name, array in {**arrays, "y": part.y}.items()
    )


def is_part(value: Any) -> bool:
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


def samples_of(field: str, value: Any, targets: str, columns: Columns) -> Samples:
    """Returns the samples of one part; `targets` as of `as_dataset`."""
    if isinstance(value, tuple) and len(value) == 2:
        found = Samples(x=_inputs(field, value[0]), y=array_of(field, value[1]))
    elif _is_table(value):
        found = _table(field, value, columns)
    elif _is_loader(value):
        found = _stacked(field, _batches(value), columns)
    elif _is_map_style(value):
        found = _items(field, value, columns)
    else:
        raise InvalidValue(field, "must be samples with labels", type(value).__name__, WAY_OUT)
    return checked_samples(field, found, targets)


def checked_samples(field: str, found: Samples, targets: str) -> Samples:
    """Returns the samples with pixels scaled and targets of the wanted kind; refuses shapes that do not fit."""
    y, arrays = found.y, list(found.x.values()) if isinstance(found.x, dict) else [found.x]
    least = 1 if isinstance(found.x, dict) else 2
    wrong = any(x.ndim < least or len(x) != len(y) for x in arrays) if y.ndim else True
    shapes = {"classes": (1, ""), "tokens": (2, ", positions"), "values": (0, ", …"), "any": (0, ", …")}
    dimensions, more = shapes[targets]
    if wrong or (dimensions and y.ndim != dimensions):
        rule = f"must be x [samples, features…] and y [samples{more}]"
        got = f"shapes {' and '.join(str(array.shape) for array in (*arrays, y))}"
        raise InvalidValue(field, rule, got, WAY_OUT)
    if targets == "values" and y.dtype.kind in "iub":
        y = y.astype(np.float32)
    if isinstance(found.x, dict):
        return Samples(x={name: _as_images(x) for name, x in found.x.items()}, y=y, owner=found.owner)
    return Samples(x=_as_images(found.x), y=y, owner=found.owner)


def _inputs(field: str, value: Any) -> Inputs:
    if isinstance(value, Mapping):
        return {str(name): array_of(field, array) for name, array in value.items()}
    return array_of(field, value)


def _table(field: str, table: Any, columns: Columns) -> Samples:
    """Returns the columns of features side by side, or the only one as it is, and the column with the target."""
    names = list(table.column_names if _is_hugging_face(table) else table.columns)
    target, others = columns.chosen(field, names)
    if not _is_hugging_face(table):
        owner = None if columns.owner is None else array_of(field, table[columns.owner])
        return Samples(x=_real(field, table[others]), y=array_of(field, table[target]), owner=owner)
    if not hasattr(table, "__len__"):
        way_out = "Collect it first: datasets.Dataset.from_list(list(stream))."
        raise InvalidValue(field, "must have a length, which a stream has not", type(table).__name__, way_out)
    rows = table.with_format("numpy")[:]
    y = array_of(field, rows[target])
    owner = None if columns.owner is None else array_of(field, rows[columns.owner])
    features = getattr(table, "features", {})
    found = {name: _column(field, rows[name], features.get(name)) for name in others}
    if len(others) == 1:
        return Samples(x=found[others[0]], y=y, owner=owner)
    if text := [name for name, column in found.items() if column.dtype.kind not in "fiub"]:
        way_out = f"Choose others: as_dataset(…, features={[name for name in others if name not in text]!r})."
        raise InvalidValue(field, "must have columns of numbers", ", ".join(text), way_out)
    if any(column.ndim != 1 for column in found.values()):
        return Samples(x=found, y=y, owner=owner)  # several inputs, such as tokens and their mask
    return Samples(x=np.stack(list(found.values()), axis=1).astype(np.float32), y=y, owner=owner)


def _column(field: str, values: Any, feature: Any) -> Array:
    x = array_of(field, list(values))
    return x.astype(np.uint8) if x.dtype.kind == "i" and _is_bytes(feature) else x


def _is_bytes(feature: Any) -> bool:
    """True if a Hugging Face column holds bytes, which its numpy format widens to int64."""
    while (inner := getattr(feature, "feature", None)) is not None:
        feature = inner
    return getattr(feature, "dtype", None) == "uint8"


def _real(field: str, table: Any) -> Array:
    """Returns a pandas table of features as real numbers."""
    try:
        found: Array = table.to_numpy(dtype=np.float32)
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


def _pair(field: str, value: Any, columns: Columns, what: str) -> Samples:
    """Returns one item or batch: (x, y), x possibly a dictionary, or a dictionary with the target among its keys."""
    if isinstance(value, Mapping):
        target, others = columns.chosen(field, list(value))
        inputs = {name: array_of(field, value[name]) for name in others}
        owner = None if columns.owner is None else array_of(field, value[columns.owner])
        x: Inputs = inputs if len(inputs) > 1 else inputs[others[0]]
        return Samples(x=x, y=array_of(field, value[target]), owner=owner)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidValue(field, f"must have {what} (x, y)", type(value).__name__, WAY_OUT)
    return Samples(x=_inputs(field, value[0]), y=array_of(field, value[1]))


def _stacked(field: str, batches: Iterable[Any], columns: Columns) -> Samples:
    pairs = [_pair(field, batch, columns, "batches") for batch in batches]
    try:
        return joined(field, pairs)
    except (InvalidValue, ValueError, IndexError) as error:
        way_out = "Pad or cut samples to one length."
        raise InvalidValue(field, "must have batches of samples of one shape", str(error), way_out) from None


def _items(field: str, dataset: Any, columns: Columns) -> Samples:
    """Stacks all items of a map-style dataset."""
    try:
        items = [_pair(field, dataset[index], columns, "items") for index in range(len(dataset))]
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(field, "must have items (x, y)", str(error), WAY_OUT) from error
    shapes = {tuple((name, array.shape) for name, array in _arrays(item).items()) for item in items}
    if len(shapes) != 1:
        got = sorted({shape for one in shapes for _, shape in one})[:3] or "no items"
        raise InvalidValue(field, "must have items of one shape", got, "Resize, pad or cut them first.")
    first = items[0]
    stacks = {name: np.stack([_arrays(item)[name] for item in items]) for name in _arrays(first)}
    y, owner = stacks.pop(_TARGET), stacks.pop(_OWNER, None)
    return Samples(x=stacks if isinstance(first.x, dict) else stacks[_INPUT], y=y, owner=owner)


def _arrays(item: Samples) -> dict[str, Array]:
    """Returns the arrays of one item by name."""
    found = dict(item.x) if isinstance(item.x, dict) else {_INPUT: item.x}
    return found | {_TARGET: item.y} | ({} if item.owner is None else {_OWNER: item.owner})


def array_of(field: str, value: Any) -> Array:
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value  # numpy has no bfloat16
        found: Array = value.numpy()
        return found
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidValue(field, "must hold arrays of one shape", "a ragged list", WAY_OUT) from None


def _as_images(x: Array) -> Array:
    """Scales bytes, which are pixels, to [0, 1], channels first."""
    if x.dtype != np.uint8:
        return x
    if x.ndim == 4 and x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS:
        x = np.moveaxis(x, 3, 1)
    x = x.astype(np.float32) / np.float32(255)
    return x[:, None] if x.ndim == 3 else x
