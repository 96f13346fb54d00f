"""The samples of one device: its part of the scenario's data set, or its own."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from airprune.deployment.run_definition import RunDefinition
from airprune.errors import UsageError, raise_if_exhausted
from airprune.scenario.data import dataset_of, samples_by_device

Array = np.ndarray
Samples = tuple[Array, Array]
_SAMPLES = "Give a folder with x.npy and y.npy, an .npz file with x and y, or package:function."


def samples_of(source: str | None, work: RunDefinition, index: int) -> Samples:
    """Returns (x [num_samples, *input_shape] float32, y [num_samples] int64) of a device.

    Args:
      source: a folder with x.npy and y.npy, an .npz file with x and y, or `package:function`, which is called without
        arguments and returns (x, y); None: the samples that the simulator deals to this device.
    """
    if source is None:
        return _dealt(work, index)
    return _checked(source, _called(source) if _is_function(source) else _read(Path(source)), work)


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
    if _is_function(source):
        found = _called(source)
        x, y = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    else:
        x, y = _read_inputs(path)
    return np.asarray(x), None if y is None else np.asarray(y)


def _read_inputs(path: Path) -> tuple[Any, Any]:
    if not path.is_dir():
        with _opened(path) as arrays:
            return arrays["x"], arrays.get("y")
    with _readable(path):
        x, y = (
            np.load(name, allow_pickle=False) if name.exists() else None for name in (path / "x.npy", path / "y.npy")
        )
        if x is None:
            raise ValueError("x.npy is missing")
        return x, y


def check_source(source: str | None) -> None:
    """Raises `UsageError` if this cannot be a source of samples; called before any edge is dialled."""
    if source is not None and not Path(source).exists() and ":" not in source:
        raise UsageError(
            f"--data must be a folder, an .npz file or package:function, got {source}, which does not exist."
        )


def check_samples(source: str | None) -> None:
    """Raises `UsageError` unless this has samples with labels; what a model takes is known when a run begins."""
    check_source(source)
    if source is None:
        return
    path = Path(source)
    if _is_function(source):
        _function(source)
    elif path.is_dir():
        _read(path)
    else:
        with _opened(path) as arrays:
            if missing := {"x", "y"} - set(arrays.files):
                raise UsageError(f"--data {path} has no {' and no '.join(sorted(missing))}. {_SAMPLES}")


def _dealt(work: RunDefinition, index: int) -> Samples:
    data = dataset_of(work.scenario)
    places = samples_by_device(work.scenario, data, work.scenario.build_network())[index]
    return data.train_x[places].copy(), data.train_y[places].copy()


def _is_function(source: str) -> bool:
    return ":" in source and not Path(source).exists()


def _function(source: str) -> Callable[[], Any]:
    module, _, name = source.partition(":")
    try:
        function: Callable[[], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--data {source} cannot be imported: {error}. Is its package installed on this machine?"
        ) from None
    return function


def _called(source: str) -> Any:
    function = _function(source)
    try:
        return function()
    except Exception as error:
        raise_if_exhausted(error)
        raise UsageError(f"--data {source} has raised {type(error).__name__}: {error}") from error


def _read(path: Path) -> Any:
    if not path.is_dir():
        with _opened(path) as arrays:
            return arrays["x"], arrays["y"]
    with _readable(path):
        return tuple(np.load(path / name, mmap_mode="r", allow_pickle=False) for name in ("x.npy", "y.npy"))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yields the arrays of an .npz file by name."""
    with _readable(path), path.open("rb") as file:  # numpy leaves one open that is no archive
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise ValueError("it is one array")
        with found as arrays:
            yield arrays


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Makes one sentence of a failure to read samples."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # of a damaged file, numpy raises what its bytes happen to mean
        raise_if_exhausted(error)
        words = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"--data {path} cannot be read: {words}. {_SAMPLES}") from None


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
    x = np.asarray(x, dtype=np.float32)
    if not np.isfinite(x).all():
        raise UsageError(f"--data {source}: x must be finite numbers of float32; some are not.")
    return x, np.asarray(y, dtype=np.int64)
