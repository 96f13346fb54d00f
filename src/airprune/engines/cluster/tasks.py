"""Functions that run on the workers of a cluster.

Nothing here raises for trouble of our own: a `Refusal` or `Trouble` travels through the merges to the driver in place
of a result, so that Dask's exceptions are about Dask alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from distributed import get_worker

from airprune.engines.base import Group
from airprune.engines.cluster.parcel import Parcel
from airprune.engines.cluster.versions import change_since_start, difference, versions
from airprune.engines.machine import cancelled_by, machine_trouble, os_trouble
from airprune.errors import AirpruneError, trouble_of

_LOOK_S = 0.5
_NANNY_S = 30.0


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
        """True if the same may happen again and again; a worker is excluded only once."""
        return self.missing or not self.worker


@dataclass(frozen=True)
class Trouble:
    """The work itself went wrong."""

    message: str


def greet(wanted: dict[str, str], parcel: Parcel, *, dask_worker: Any = None) -> Refusal | None:
    """Asks a worker whether it may take part; cheap, since it runs beside the worker's own business."""
    unlike = difference(wanted, versions()) or change_since_start()
    if unlike is not None:
        return Refusal(dask_worker.address, unlike)
    try:
        return None if parcel.here else Refusal(dask_worker.address, "has no data", missing=True)
    except OSError as error:
        return Refusal(dask_worker.address, f"cannot look for the run's files: {os_trouble(error)}")


def keep(step: Callable[..., None], parcel: Parcel, *arguments: Any, dask_worker: Any = None) -> Refusal | None:
    """Takes a step of keeping the files, a method of `Parcel`; a machine that cannot keep them all keeps none."""
    try:
        step(parcel, *arguments)
    except OSError as error:
        parcel.forget()
        return Refusal(dask_worker.address, f"cannot keep the run's files: {os_trouble(error)}")
    return None


# Torch's random stream and number of threads are the process's: in one with several threads, one task at a time.
_ALONE = threading.Lock()


class _Opened:
    """The worker's one open factory."""

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
    """Returns `worker.<method>(shared, task)`."""
    dask_worker = get_worker()
    refusal = None if _Opened.digest == parcel.digest else greet(wanted, parcel, dask_worker=dask_worker)
    if refusal is not None:
        return refusal
    key = dask_worker.get_current_task()

    def is_cancelled() -> bool:
        """True if the driver has cancelled the task or has ended."""
        state = dask_worker.state.tasks.get(key)
        return state is None or state.state == "cancelled"

    while not _ALONE.acquire(timeout=_LOOK_S):
        if is_cancelled():
            return Trouble("It was cancelled.")
    try:
        worker = _Opened.of(parcel)
        with cancelled_by(is_cancelled):
            return getattr(worker, method)(shared, task)
    except Exception as error:
        is_open = _Opened.digest == parcel.digest
        if not is_open and isinstance(error, AirpruneError):
            return Refusal(dask_worker.address, f"cannot take part: {error}")
        if not is_open and isinstance(error, OSError):
            return Refusal(dask_worker.address, f"cannot open the run's files: {os_trouble(error)}")
        if (trouble := machine_trouble(error)) is not None:
            return Refusal(dask_worker.address, f"cannot use its files: {trouble}")
        return Trouble(trouble_of(error))
    finally:
        _ALONE.release()


class _Ended(Exception):
    """A batch comes to this instead of a part."""

    def __init__(self, instead: Refusal | Trouble) -> None:
        self.instead = instead


def batch(
    lot: list[Any],
    shared: Any,
    *,
    method: str,
    parcel: Parcel,
    wanted: dict[str, str],
    merged: Callable[[Iterable[Any]], Any],
) -> Any:
    """Runs `call` for each of some tasks, merged in order as they end, as `merge` does it with parts that were kept."""

    def parts() -> Iterator[Any]:
        for task in lot:
            part = call(task, shared, method=method, parcel=parcel, wanted=wanted)
            if isinstance(part, Refusal | Trouble):
                raise _Ended(part)
            yield part

    try:
        return merged(parts())
    except _Ended as end:
        return end.instead


def merge(parts: list[Any], merged: Callable[[list[Any]], Any]) -> Any:
    """Merges some parts, in order. Works on a copy of the first, which is used up: Dask may want it again."""
    for part in parts:
        if isinstance(part, Refusal | Trouble):
            return part
    return merged([copy.deepcopy(parts[0]), *parts[1:]])


def finish(parts: list[Any], group: Group, shared: Any) -> Any:
    """Returns the group's result: all that travels to the driver."""
    part = merge(parts, group.merge)
    return part if isinstance(part, Refusal | Trouble) else dataclasses.replace(group, shared=shared).finish(part)


def hold(shared: Any) -> Any:
    """Returns what several tasks share; a task of its own, so that Dask makes it again if it is lost."""
    return shared


def forget(parcel: Parcel) -> None:
    """Frees the memory of work that is over, and this machine's copy of its files."""
    if _ALONE.acquire(blocking=False):  # never wait for a task in the worker's own thread
        try:
            if _Opened.digest == parcel.digest:
                _Opened.digest = _Opened.worker = None
        finally:
            _ALONE.release()
    parcel.forget()


async def expel(address: str, *, dask_scheduler: Any) -> None:
    """Drops a worker that hangs, on the scheduler, so that what it has under way or holds is done elsewhere.

    Dask makes the others hang up on it. Its nanny, if it has one that answers, replaces it. Otherwise it leaves as
    soon as it sees that it was dropped.
    """
    worker = dask_scheduler.workers.get(address)
    if worker is None:
        return
    if worker.nanny is not None:
        call = dask_scheduler.rpc(worker.nanny).kill(reason="airprune-hangs")
        _UNDER_WAY.add(task := asyncio.ensure_future(_quietly(call)))
        task.add_done_callback(_UNDER_WAY.discard)
    for comm in list(dask_scheduler.rpc.occupied.get(address, ())):
        comm.abort()  # to close it would wait until what is being sent has arrived
    await dask_scheduler.remove_worker(address, stimulus_id="airprune-hangs")


_UNDER_WAY: set[asyncio.Future[None]] = set()


async def _quietly(call: Any) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(call, _NANNY_S)
