"""The samples of one device: its part of the scenario's data set, or its own."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from airprune.deployment.run_definition import RunDefinition
from airprune.errors import UsageError, raise_if_exhausted
from airprune.scenario.data import dataset_of, samples_by_device

Array = np.ndarray
Samples = tuple[Array, Array]


def samples_of(source: str | None, work: RunDefinition, index: int) -> Samples:
    """Returns (x [num_samples, *input_shape] float32, y [num_samples] int64) of a device.

    Args:
      source: a folder with x.npy and y.npy, an .npz file with x and y, or `package:function`, which is called without
        arguments and returns (x, y); None: the samples that the simulator deals to this device.
    """
    if source is None:
        return _dealt(work, index)
    is_function = ":" in source and not Path(source).exists()
    return _checked(source, _called(source) if is_function else _read(Path(source)), work)


def test_set_of(source: str | None) -> tuple[Samples, Samples] | None:
    """Returns the cloud's test set as `airprune.run` takes data sets; None if there is none of its own.

    Devices have the training samples, and report how many; those here only give shape and classes.
    """
    if source is None:
        return None
    x, y = inputs_of(source)
    if y is None or y.shape != (len(x),) or not len(x) or not np.issubdtype(y.dtype, np.integer):
        got = "none" if y is None else f"{y.dtype} {y.shape}"
        raise UsageError(f"--data {source}: y must have one whole number for each of {len(x)} samples, got {got}.")
    samples = np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.int64)
    return samples, samples


def inputs_of(source: str) -> tuple[Array, Array | None]:
    """Returns (x, y) of a source as `samples_of` takes it; y is None if it has none. Shapes are not checked."""
    check_source(source)
    path = Path(source)
    if ":" in source and not path.exists():
        found = _called(source)
        x, y = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    else:
        x, y = _read_inputs(path)
    return np.asarray(x), None if y is None else np.asarray(y)


def _read_inputs(path: Path) -> tuple[Any, Any]:
    try:
        if path.is_dir():
            names = [path / "x.npy", path / "y.npy"]
            x, y = (np.load(name, allow_pickle=False) if name.exists() else None for name in names)
        else:
            with np.load(path, allow_pickle=False) as arrays:
                x, y = arrays["x"], arrays.get("y")
        if x is None:
            raise KeyError("x.npy is missing")
    except (OSError, ValueError, KeyError) as error:
        raise_if_exhausted(error)
        raise UsageError(f"--data {path} cannot be read: {error}. Give a folder with x.npy, or an .npz file.") from None
    return x, y


def check_source(source: str | None) -> None:
    """Raises `UsageError` if this cannot be a source of samples; called before any edge is dialled."""
    if source is not None and not Path(source).exists() and ":" not in source:
        raise UsageError(
            f"--data must be a folder, an .npz file or package:function, got {source}, which does not exist."
        )


def _dealt(work: RunDefinition, index: int) -> Samples:
    data = dataset_of(work.scenario)
    places = samples_by_device(work.scenario, data, work.scenario.build_network())[index]
    return data.train_x[places].copy(), data.train_y[places].copy()


def _called(source: str) -> Any:
    module, _, name = source.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"--data {source} cannot be imported: {error}. Is its package installed on this machine?"
        ) from None
    return function()


def _read(path: Path) -> Any:
    try:
        if path.is_dir():
            return tuple(np.load(path / name, mmap_mode="r", allow_pickle=False) for name in ("x.npy", "y.npy"))
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["x"], arrays["y"]
    except (OSError, ValueError, KeyError) as error:
        raise_if_exhausted(error)
        raise UsageError(
            f"--data {path} cannot be read: {error}. Give a folder with x.npy and y.npy, an .npz file with x and y, or "
            "package:function."
        ) from None


def _checked(source: str, found: Any, work: RunDefinition) -> Samples:
    try:
        x, y = (np.asarray(array) for array in found)
    except (TypeError, ValueError):
        raise UsageError(f"--data {source} must give (x, y), got {type(found).__name__}.") from None
    if x.shape[1:] != work.input_shape:
        raise UsageError(f"--data {source}: x must have samples of shape {work.input_shape}, got {x.shape[1:]}.")
    if y.shape != (len(x),) or not len(x):
        raise UsageError(f"--data {source}: y must have one label for each of {len(x)} samples, got {y.shape}.")
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= work.num_classes:
        raise UsageError(
            f"--data {source}: y must be whole numbers below {work.num_classes}, got {y.min()} … {y.max()}."
        )
    return np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.int64)
