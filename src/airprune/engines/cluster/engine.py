"""Hands each edge round to the workers of a Dask cluster; one averaged model per edge comes back.

For every edge: one task holds the received model, one per chunk trains, one per group of chunks merges, one averages.
All of them run on the workers. What travels between driver and cluster are models, one each way per edge, and the few
numbers that describe and record each device.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from distributed import CancelledError, Client, Future
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from airprune.engines.base import Call, Died, Engine, died
from airprune.engines.cluster import tasks
from airprune.engines.cluster.certificates import security_of
from airprune.engines.cluster.local import OwnCluster
from airprune.engines.cluster.members import Members
from airprune.engines.cluster.parcel import pack
from airprune.engines.work import GROUP_CHUNKS, EdgeAverage, EdgeWork, Failure
from airprune.errors import UsageError, WorkFailed

# Chunks handed out per worker: enough that none waits, few enough that a newcomer finds work.
_CHUNKS_AHEAD = 32
_LOOK_AROUND_S = 1.0
_CONNECT_S = 10.0
_NO_WORKERS_S = 60.0
_MAX_HAND_OUTS = 20
_DEATH = Died("a signal or an exit that only its own machine has seen")
_GIVEN_UP = f"The cluster lost the same task {_MAX_HAND_OUTS} times. The run can be resumed."


@dataclass
class _Edge:
    """One edge on its way: what was asked, and the future of its average."""

    number: int
    work: EdgeWork
    future: Future
    keys: list[str]
    failures: list[Failure] = field(default_factory=list)


class DaskEngine(Engine):
    """On the cluster of `scheduler`, an address or a scheduler file; without one, on a cluster of its own."""

    _client: Client | None = None
    _own: OwnCluster | None = None
    _members: Members | None = None

    def start(self) -> None:
        parcel = pack(self.job)
        quiet()
        if self.scheduler is None:
            self._own = OwnCluster(self.workers)
            self._client = connect(self._own.address, self._own.tls)
        else:
            self._client = connect(self.scheduler, self.tls)
        self._members = Members(self._client, parcel)
        self._numbers = itertools.count()
        self._name = uuid.uuid4().hex[:8]
        self._places: WeakKeyDictionary[Future, list[str] | None] = WeakKeyDictionary()
        self._wait_for_workers()

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    @property
    def members(self) -> Members:
        assert self._members is not None
        return self._members

    def calls(self, method: str, calls: Sequence[Call]) -> Iterator[Any]:
        self._look_around()
        futures = self._submit_calls(method, calls)
        for call, future in zip(calls, futures, strict=True):
            result = self._result(future)
            for _ in range(_MAX_HAND_OUTS):
                if not isinstance(result, tasks.Refusal):
                    break
                (future,) = self._submit_calls(method, [call])
                result = self._result(future)
            else:
                raise WorkFailed(_GIVEN_UP)
            yield _DEATH if isinstance(result, KilledWorker) else result

    def _submit_calls(self, method: str, calls: Sequence[Call]) -> list[Future]:
        models = {id(model): model for model, _ in calls}
        held = {key: self._submit(tasks.hold, model) for key, model in models.items()}
        places = self.members.restriction
        futures: list[Future] = self.client.map(
            tasks.call,
            [held[id(model)] for model, _ in calls],
            [task for _, task in calls],
            method=method,
            parcel=self.members.parcel,
            wanted=self.members.wanted,
            key=[self._key(method) for _ in calls],
            workers=places,
            pure=False,
        )
        self._places.update(dict.fromkeys(futures, places))
        return futures

    def edge_averages(self, edges: Sequence[EdgeWork]) -> list[EdgeAverage]:
        """Edges are handed out while there is room, and waited for in their order."""
        self._look_around()
        waiting, under_way = deque(edges), deque[_Edge]()
        averages: list[EdgeAverage] = []
        while waiting or under_way:
            room = _CHUNKS_AHEAD * max(1, len(self.members.accepted))
            while waiting and (not under_way or sum(len(e.keys) for e in under_way) < room):
                under_way.append(self._submit_edge(waiting.popleft(), len(averages) + len(under_way)))
            averages.append(self._average(under_way.popleft()))
        return averages

    def _submit_edge(self, work: EdgeWork, number: int) -> _Edge:
        """Names the tasks of each edge apart: Dask keeps tasks of one name back until a worker is free, rather than
        giving them out beforehand, only if the tasks that they depend on are few.
        """
        received = self._submit(tasks.hold, work.received, name=f"hold_{number}")
        keys = [self._key(f"train_{number}") for _ in work.chunks]
        chunks = self.client.map(
            tasks.train,
            list(work.chunks),
            received=received,
            parcel=self.members.parcel,
            wanted=self.members.wanted,
            key=keys,
            workers=self.members.restriction,
            pure=False,
        )
        groups = [
            self._submit(tasks.merge, chunks[start : start + GROUP_CHUNKS])
            for start in range(0, len(chunks), GROUP_CHUNKS)
        ]
        return _Edge(number, work, self._submit(tasks.average, groups, received), keys)

    def _average(self, edge: _Edge) -> EdgeAverage:
        """Waits for an edge; hands it out again, if need be without the devices that workers die of."""
        for _ in range(_MAX_HAND_OUTS):
            result = self._result(edge.future)
            if isinstance(result, EdgeAverage):
                return replace(result, failures=(*result.failures, *edge.failures))
            failures, work = edge.failures, edge.work
            if isinstance(result, KilledWorker):
                if not self.job.drop_failing:
                    raise WorkFailed(died(_DEATH))
                # Dask also blames tasks that only waited where another one died: those are just handed out again.
                if result.task in edge.keys:
                    chunk = work.chunks[edge.keys.index(result.task)]
                    rest, found = self.without_killers(work.received, chunk)
                    failures = [*failures, *found]
                    work = replace(work, chunks=tuple(rest if c is chunk else c for c in work.chunks))
            edge = self._submit_edge(work, edge.number)
            edge.failures = failures
        raise WorkFailed(_GIVEN_UP)

    def _submit(self, function: Any, *arguments: Any, name: str | None = None) -> Future:
        places = self.members.restriction
        key = self._key(name or function.__name__)
        future: Future = self.client.submit(function, *arguments, key=key, workers=places, pure=False)
        self._places[future] = places
        return future

    def _key(self, what: str) -> str:
        return f"{what}-{self._name}-{next(self._numbers)}"

    def _result(self, future: Future) -> Any:
        """The future's result, a `Refusal` if it must be asked for again, or the `KilledWorker` it came to."""
        while True:
            try:
                result = future.result(timeout=_LOOK_AROUND_S)
                break
            except TimeoutError:
                self._wait_for_workers()
                if self._is_stranded(future):
                    return tasks.Refusal("", "has left")
            except KilledWorker as error:
                return error
            except (FutureCancelledError, CancelledError, OSError) as error:
                self._check_connection()
                return tasks.Refusal("", f"has lost the task ({error})")
            except Exception as error:
                raise WorkFailed(
                    f"The cluster failed: {type(error).__name__}: {error}. The run can be resumed."
                ) from error
        if isinstance(result, tasks.Trouble):
            raise WorkFailed(result.message)
        if isinstance(result, tasks.Refusal) and not result.missing:
            self.members.refuse(result.worker, result.sentence)
            self._wait_for_workers()
        elif isinstance(result, tasks.Refusal):
            self.members.refresh()
        return result

    def _is_stranded(self, future: Future) -> bool:
        """Whether every worker that the task may go to has left."""
        places = self._places.get(future)
        return places is not None and self.members.accepted.isdisjoint(places)

    def _look_around(self) -> None:
        """Is the scheduler there, who has joined, who has left?"""
        self._check_connection()
        if self._own is not None:
            self._own.replace_dead()
        try:
            self.members.refresh()
        except (OSError, TimeoutError) as error:
            raise self._lost() from error

    def _wait_for_workers(self) -> None:
        """Until there is one that may work."""
        patience = time.monotonic() + _NO_WORKERS_S
        self._look_around()
        while not self.members.accepted:
            if time.monotonic() > patience:
                reasons = "; ".join(f"{address} {why}" for address, why in sorted(self.members.refused.items()))
                raise WorkFailed(
                    f"No worker of the cluster can take part{': ' + reasons if reasons else ', none has joined'}."
                )
            if self.members.refused and self.scheduler is not None:
                patience = min(patience, time.monotonic() + 5.0)
            time.sleep(0.1)
            self._look_around()

    def _check_connection(self) -> None:
        if self.client.status != "running":
            raise self._lost()

    def _lost(self) -> WorkFailed:
        where = self.scheduler or "this machine"
        return WorkFailed(
            f"The Dask scheduler ({where}) cannot be reached any more. Start it again and resume the run (--resume)."
        )

    def close(self) -> None:
        if self._client is not None:
            if self._members is not None and self._own is None and self._client.status == "running":
                self._members.forget()
            self._client.close(timeout=2)
        if self._own is not None:
            self._own.close()
        self._client = self._own = self._members = None


def connect(scheduler: str, tls: Path | str | None) -> Client:
    """A client of the scheduler at an address or named in a scheduler file."""
    address = scheduler if "://" in scheduler else _address_in(scheduler)
    if address.startswith("tls:") and tls is None:
        raise UsageError(f"The scheduler at {address} wants certificates: engine.tls must name their folder (--tls).")
    if not address.startswith("tls:") and tls is not None:
        raise UsageError(f"engine.tls goes with an address like tls://host:8786, got {address}, which has no TLS.")
    security = None if tls is None else security_of(tls, "client")
    try:
        return Client(address, security=security, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise WorkFailed(f"No Dask scheduler answers at {address} ({_short(error)}).") from error


def _address_in(file: str) -> str:
    """The address that a scheduler has written into its file."""
    try:
        address = json.loads(Path(file).read_text())["address"]
        if isinstance(address, str) and "://" in address:
            return address
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UsageError(
        f"Scenario.engine.scheduler must be an address like tls://host:8786 or a scheduler file, got {file!r}."
    )


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def quiet() -> None:
    """What matters is said by us, in sentences; Dask's own log is for its dashboard."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    for name in (*names, "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
