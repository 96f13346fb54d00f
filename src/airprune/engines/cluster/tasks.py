"""What runs on the workers of a cluster.

Nothing here raises for trouble of our own: a `Refusal` or `Trouble` travels through the merges to the driver in place
of a result, so that Dask's exceptions are about Dask alone.
"""

from __future__ import annotations

import importlib.metadata
import platform
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import get_worker

from airprune.engines.cluster.parcel import Parcel
from airprune.engines.work import EdgeAverage, EdgeSum, TrainChunk, Worker, single_thread
from airprune.errors import AirpruneError, trouble_of
from airprune.kernels import native

Array = np.ndarray

_VERSIONED = ("airprune", "torch", "numpy")


@dataclass(frozen=True)
class Refusal:
    """This worker must not take part, or not yet: `missing` means that only the files are wanting."""

    worker: str
    sentence: str
    missing: bool = False


@dataclass(frozen=True)
class Trouble:
    """The work itself went wrong."""

    message: str


def versions() -> dict[str, str]:
    """What the bits of a result depend on; `kernel` is the one that `train.kernel=auto` means on this machine."""
    found = {name: importlib.metadata.version(name) for name in _VERSIONED}
    kernel = "torch" if native.trouble else "native"
    return {"python": ".".join(platform.python_version_tuple()[:2]), **found, "kernel": kernel}


def greet(wanted: dict[str, str], parcel: Parcel, *, dask_worker: Any = None) -> Refusal | None:
    """Asks a worker whether it may take part; cheap, since it runs beside the worker's own business."""
    refusal = other_version(wanted, dask_worker.address)
    if refusal is None and not parcel.here:
        return Refusal(dask_worker.address, "has no data", missing=True)
    return refusal


def other_version(wanted: dict[str, str], address: str) -> Refusal | None:
    """Refuses if this worker's bits could differ from those `wanted`."""
    found = versions()
    for name, version in wanted.items():
        if found[name] != version:
            return Refusal(address, f"has {name} {found[name]}, but this run has {name} {version}")
    return None


# Torch's random stream and number of threads are the process's: in one with several threads, one task at a time.
ALONE = threading.Lock()


class _Opened:
    """The worker's one open job."""

    digest: str | None = None
    worker: Worker | None = None

    @classmethod
    def of(cls, parcel: Parcel) -> Worker:
        if cls.digest != parcel.digest or cls.worker is None:
            cls.digest = cls.worker = None  # the old one's memory first
            single_thread()
            cls.worker = Worker(parcel.open())
            cls.digest = parcel.digest
        return cls.worker


def call(model: Array, task: Any, *, method: str, parcel: Parcel, wanted: dict[str, str]) -> Any:
    """`Worker.<method>(model, task)`."""
    refusal = None if _Opened.digest == parcel.digest else greet(wanted, parcel, dask_worker=get_worker())
    if refusal is not None:
        return refusal
    with ALONE:
        try:
            worker = _Opened.of(parcel)
        except AirpruneError as error:
            return Refusal(get_worker().address, f"cannot take part: {error}")
        except Exception as error:
            return Trouble(trouble_of(error))
        try:
            return getattr(worker, method)(model, task)
        except Exception as error:
            return Trouble(trouble_of(error))


def train(chunk: TrainChunk, received: Array, parcel: Parcel, wanted: dict[str, str]) -> EdgeSum | Refusal | Trouble:
    result: EdgeSum | Refusal | Trouble = call(received, chunk, method="train", parcel=parcel, wanted=wanted)
    return result


def merge(parts: list[EdgeSum | Refusal | Trouble]) -> EdgeSum | Refusal | Trouble:
    """A group of chunks, in order. Works on a copy: Dask may want the first part again."""
    for part in parts:
        if not isinstance(part, EdgeSum):
            return part
    sums = [part for part in parts if isinstance(part, EdgeSum)]
    return EdgeSum.joined([sums[0].copy(), *sums[1:]])


def average(groups: list[EdgeSum | Refusal | Trouble], received: Array) -> EdgeAverage | Refusal | Trouble:
    """The edge's groups, in order, and their mean: all that travels to the driver."""
    merged = merge(groups)
    return merged.average(received) if isinstance(merged, EdgeSum) else merged


def hold(model: Array) -> Array:
    """A model that several tasks take; a task of its own, so that Dask makes it again if it is lost."""
    return model


def receive(parcel: Parcel, name: str, offset: int, piece: bytes) -> None:
    parcel.receive(name, offset, piece)


def complete(parcel: Parcel) -> None:
    parcel.complete()


def forget(parcel: Parcel) -> None:
    """The run is over: its memory and this machine's copy of its files."""
    if ALONE.acquire(blocking=False):  # never wait for somebody's task in the worker's own thread
        try:
            if _Opened.digest == parcel.digest:
                _Opened.digest = _Opened.worker = None
        finally:
            ALONE.release()
    parcel.forget()
