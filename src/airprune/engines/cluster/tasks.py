"""What runs on the workers of a cluster.

Nothing here raises for trouble of our own: a `Refusal` or `Trouble` travels through the merges to the driver in place
of a result, so that Dask's exceptions are about Dask alone.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distributed import get_worker

from airprune.engines.base import Group
from airprune.engines.cluster.parcel import Parcel
from airprune.engines.machine import cancelled_by, single_thread
from airprune.errors import AirpruneError, trouble_of

_VERSIONED = ("airprune", "torch", "numpy")
_LOOK_S = 0.5


@dataclass(frozen=True)
class Refusal:
    """This worker must not take part, or not yet: `missing` means that only the files are wanting.

    Without a worker: the cluster has lost the task.
    """

    worker: str
    sentence: str
    missing: bool = False

    @property
    def is_loss(self) -> bool:
        """Whether the same may happen again and again; a worker that is refused does it once."""
        return self.missing or not self.worker


@dataclass(frozen=True)
class Trouble:
    """The work itself went wrong."""

    message: str


def dask_setup(worker: Any) -> None:
    """What Dask calls in a new worker: torch is imported now, not when the first task arrives."""
    single_thread()


def versions() -> dict[str, str]:
    """What the bits of a result depend on, whatever the work; a workshop may refuse to open for more."""
    found = {name: importlib.metadata.version(name) for name in _VERSIONED}
    return {"python": ".".join(platform.python_version_tuple()[:2]), **found}


def greet(wanted: dict[str, str], parcel: Parcel, *, dask_worker: Any = None) -> Refusal | None:
    """Asks a worker whether it may take part; cheap, since it runs beside the worker's own business."""
    found = versions()
    for name, version in wanted.items():
        if found[name] != version:
            return Refusal(dask_worker.address, f"has {name} {found[name]}, but this run has {name} {version}")
    return None if parcel.here else Refusal(dask_worker.address, "has no data", missing=True)


# Torch's random stream and number of threads are the process's: in one with several threads, one task at a time.
_ALONE = threading.Lock()


class _Opened:
    """The worker's one open workshop."""

    digest: str | None = None
    worker: Any = None

    @classmethod
    def of(cls, parcel: Parcel) -> Any:
        if cls.digest != parcel.digest:
            cls.digest = cls.worker = None  # the old one's memory first
            cls.worker = parcel.open()
            cls.digest = parcel.digest
        return cls.worker


def call(task: Any, shared: Any, *, method: str, parcel: Parcel, wanted: dict[str, str]) -> Any:
    """`worker.<method>(shared, task)`."""
    dask_worker = get_worker()
    refusal = None if _Opened.digest == parcel.digest else greet(wanted, parcel, dask_worker=dask_worker)
    if refusal is not None:
        return refusal
    key = dask_worker.get_current_task()

    def is_cancelled() -> bool:
        """Whether the driver has cancelled the task or has gone."""
        state = dask_worker.state.tasks.get(key)
        return state is None or state.state == "cancelled"

    while not _ALONE.acquire(timeout=_LOOK_S):
        if is_cancelled():
            return Trouble("It was cancelled.")
    try:
        worker = _Opened.of(parcel)
        with cancelled_by(is_cancelled):
            return getattr(worker, method)(shared, task)
    except AirpruneError as error:
        if _Opened.digest != parcel.digest:
            return Refusal(dask_worker.address, f"cannot take part: {error}")
        return Trouble(trouble_of(error))
    except Exception as error:
        return Trouble(trouble_of(error))
    finally:
        _ALONE.release()


def merge(parts: list[Any], merged: Callable[[list[Any]], Any]) -> Any:
    """Some parts, in order. Works on a copy of the first, which is used up: Dask may want it again."""
    for part in parts:
        if isinstance(part, Refusal | Trouble):
            return part
    return merged([copy.deepcopy(parts[0]), *parts[1:]])


def finish(parts: list[Any], group: Group, shared: Any) -> Any:
    """The group's result: all that travels to the driver."""
    part = merge(parts, group.merge)
    return part if isinstance(part, Refusal | Trouble) else dataclasses.replace(group, shared=shared).finish(part)


def hold(shared: Any) -> Any:
    """What several tasks take; a task of its own, so that Dask makes it again if it is lost."""
    return shared


def forget(parcel: Parcel) -> None:
    """The work is over: its memory and this machine's copy of its files."""
    if _ALONE.acquire(blocking=False):  # never wait for somebody's task in the worker's own thread
        try:
            if _Opened.digest == parcel.digest:
                _Opened.digest = _Opened.worker = None
        finally:
            _ALONE.release()
    parcel.forget()
