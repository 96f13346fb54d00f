"""Hands tasks to the workers of a Dask cluster.

Of a group whose parts need not travel, one task holds what is shared, one per task of the group works, one per batch of
them merges, one finishes: all of them on the workers. Between driver and cluster travel what is shared and the result,
once per group, and the few numbers that describe each task. Where there are batches enough to keep all workers busy, a
batch is one task, which works and merges: a scheduler spends a millisecond or two on every task, and parts that are
merged where they were made need not be kept, copied or sent.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from distributed import CancelledError, Client, Future
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from airprune.engines.base import GROUP_CHUNKS, Call, Died, Engine, Group, loaded
from airprune.engines.cluster import tasks
from airprune.engines.cluster.connection import connect, quiet
from airprune.engines.cluster.local import OwnCluster
from airprune.engines.cluster.members import Members
from airprune.engines.cluster.parcel import Parcel
from airprune.engines.cluster.scratch import ScratchFolder
from airprune.errors import WorkFailed

_log = logging.getLogger("airprune")
# Tasks of groups handed out per worker: enough that none waits, few enough that a newcomer finds work.
_TASKS_AHEAD = 32
# Batches per worker from which on whole batches are handed out: the last ones then leave others idle for little.
_WHOLE_BATCHES = 8
# Of those so many per worker are handed out.
_BATCHES_AHEAD = 4
_LOOK_AROUND_S = 1.0
_NO_WORKERS_S = 60.0
_SAY_WAITING_S = 5.0
_ONLY_REFUSED_S = 5.0
_MAX_HAND_OUTS = 20
_DEATH = Died("a signal or an exit that only its own machine has seen")


class DaskEngine(Engine):
    """On the cluster of `scheduler`, an address or a scheduler file; without one, on a cluster of its own."""

    remote = True
    _client: Client | None = None
    _own: OwnCluster | None = None
    _members: Members | None = None
    _place: ScratchFolder | None = None
    _is_lost = False

    def start(self) -> None:
        self._place = ScratchFolder("factory")
        parcel = Parcel.of(self.factory, Path(self._place.name))
        quiet()
        if self.scheduler is None:
            self._own = OwnCluster(self.workers)
            self._client = connect(self._own.address, self._own.tls)
        else:
            self._client = connect(self.scheduler, self.tls)
        end = None if self._own is None else self._own.end
        self._members = Members(self._client, parcel, silence_s=self.silence_s, end=end)
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

    @property
    def num_workers(self) -> int:
        present = len(self.members.accepted)
        return max(1, min(present, self.workers or present))

    def as_completed(
        self, method: str, calls: Sequence[Call], *, until: Callable[[], int] | None = None
    ) -> Generator[tuple[int, Any]]:
        """Yields results as they end; without `until` one call per worker is handed out, since they may be long."""
        held: dict[int, Future] = {}  # what the last call shares with its neighbours

        def submit(index: int) -> Future:
            shared, task = calls[index]
            if id(shared) not in held:
                held.clear()
                held[id(shared)] = self._submit(tasks.hold, shared)
            return self._submit_calls(method, held[id(shared)], [loaded(task)], name=method)[0]

        def has_room(index: int, under_way: Sequence[int]) -> bool:
            return len(under_way) < self.num_workers if until is None else index < until()

        with contextlib.closing(self._ended(deque(range(len(calls))), submit, has_room)) as ended:
            for index, result in ended:
                yield index, _DEATH if isinstance(result, KilledWorker) else result

    def reduce(self, groups: Sequence[Group]) -> list[Any]:
        """Groups whose parts need not travel are handed out whole, as many as give every worker some tasks."""
        if any(group.travels for group in groups):
            return super().reduce(groups)
        results: dict[int, Any] = {}
        is_whole = sum(_num_batches(group) for group in groups) >= _WHOLE_BATCHES * self.num_workers

        def has_room(number: int, under_way: Sequence[int]) -> bool:
            if is_whole:
                return sum(_num_batches(groups[other]) for other in under_way) < _BATCHES_AHEAD * self.num_workers
            return sum(len(groups[other].tasks) for other in under_way) < _TASKS_AHEAD * self.num_workers

        def submit(number: int) -> Future:
            return self._submit_group(number, groups[number], is_whole=is_whole)

        for number, result in self._ended(deque(range(len(groups))), submit, has_room):
            results[number] = result
            if isinstance(result, KilledWorker):
                groups[number].lost((), _DEATH.how)
                (results[number],) = super().reduce([groups[number]])  # task by task, which finds the ones to blame
        return [results[number] for number in range(len(groups))]

    def _submit_group(self, number: int, group: Group, *, is_whole: bool) -> Future:
        """Names the tasks of each group apart: Dask keeps tasks of one name back until a worker is free, rather than
        giving them out beforehand, only if the tasks that they depend on are few.

        Args:
          is_whole: whether its batches are handed out as one task each.
        """
        shared = self._submit(tasks.hold, group.shared, name=f"hold_{number}")
        name = f"{group.method}_{number}"
        calls = [loaded(task) for task in group.tasks]
        if is_whole:
            lots = [calls[start : start + GROUP_CHUNKS] for start in range(0, len(calls), GROUP_CHUNKS)]
            batches = self._submit_calls(group.method, shared, lots, name=name, work=tasks.batch, merged=group.merge)
        else:
            parts = self._submit_calls(group.method, shared, calls, name=name)
            batches = [
                self._submit(tasks.merge, parts[start : start + GROUP_CHUNKS], group.merge)
                for start in range(0, len(parts), GROUP_CHUNKS)
            ]
        return self._submit(tasks.finish, batches, replace(group, shared=None, tasks=()), shared)

    def _ended(
        self, waiting: deque[int], submit: Callable[[int], Future], has_room: Callable[[int, Sequence[int]], bool]
    ) -> Generator[tuple[int, Any]]:
        """Yields (index, result or the `KilledWorker` it came to) of what `submit` hands out, as they end.

        What the cluster has lost is handed out again.
        """
        under_way, hand_outs = dict[Any, tuple[int, Future]](), Counter[int]()
        ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._look_around()
        try:
            while waiting or under_way:
                while waiting and (not under_way or has_room(waiting[0], [index for index, _ in under_way.values()])):
                    index = waiting.popleft()
                    future = submit(index)
                    future.add_done_callback(ended.put)
                    under_way[future.key] = index, future
                for key in self._next_keys(ended, under_way):
                    index, future = under_way.pop(key)
                    result = self._result(future)
                    if isinstance(result, tasks.Refusal):
                        waiting.appendleft(index)
                        hand_outs[index] += result.is_loss
                        if hand_outs[index] == _MAX_HAND_OUTS:
                            raise WorkFailed(f"The cluster lost the same task {_MAX_HAND_OUTS} times. {self._hint()}")
                        continue
                    yield index, result
        finally:
            self._cancel([future for _, future in under_way.values()])

    def _next_keys(self, ended: queue.SimpleQueue[Future], under_way: Mapping[Any, tuple[int, Future]]) -> list[Any]:
        """Returns the next key that ended; if none does for a while, those that no worker will ever do."""
        if time.monotonic() > self._looked + _LOOK_AROUND_S:
            self._wait_for_workers()
        with contextlib.suppress(queue.Empty):
            key = ended.get(timeout=_LOOK_AROUND_S).key
            return [key] if key in under_way else []
        return [key for key, (_, future) in under_way.items() if self._is_stranded(future)]

    def _submit(self, function: Any, *arguments: Any, name: str | None = None) -> Future:
        places = self.members.restriction
        key = self._key(name or function.__name__)
        future: Future = self.client.submit(function, *arguments, key=key, workers=places, pure=False)
        self._places[future] = places
        return future

    def _submit_calls(
        self, method: str, shared: Future, calls: list[Any], *, name: str, work: Any = tasks.call, **more: Any
    ) -> list[Future]:
        places = self.members.restriction
        futures: list[Future] = self.client.map(
            work,
            calls,
            shared=shared,
            method=method,
            parcel=self.members.parcel,
            wanted=self.members.wanted,
            key=[self._key(name) for _ in calls],
            workers=places,
            pure=False,
            **more,
        )
        self._places.update(dict.fromkeys(futures, places))
        return futures

    def _key(self, what: str) -> str:
        return f"{what}-{self._name}-{next(self._numbers)}"

    def _result(self, future: Future) -> Any:
        """Returns the future's result, a `Refusal` if it must be submitted again, or the `KilledWorker` it came to."""
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
                raise WorkFailed(f"The cluster failed: {type(error).__name__}: {error}. {self._hint()}") from error
        if isinstance(result, tasks.Trouble):
            raise WorkFailed(result.message)
        if isinstance(result, tasks.Refusal) and not result.missing:
            self.members.refuse(result.worker, result.sentence)
            self._wait_for_workers()
        elif isinstance(result, tasks.Refusal):
            self.members.refresh()
        return result

    def _cancel(self, futures: list[Future]) -> None:
        """Cancels futures; long tasks see it and stop."""
        if futures and self._is_connected:
            with contextlib.suppress(OSError, TimeoutError):
                self.client.cancel(futures, force=True)

    def _is_stranded(self, future: Future) -> bool:
        """True if every worker that the task may go to has left."""
        places = self._places.get(future)
        return places is not None and self.members.accepted.isdisjoint(places)

    def _look_around(self) -> None:
        """Checks that the scheduler answers, and which workers have joined or left."""
        self._check_connection()
        if self._own is not None:
            self._own.replace_dead()
        try:
            self.members.refresh()
        except (OSError, TimeoutError) as error:
            raise self._lost() from error
        self._looked = time.monotonic()

    def _wait_for_workers(self) -> None:
        """Waits until there is a worker that may take part."""
        started = time.monotonic()
        patience, is_said = started + _NO_WORKERS_S, False
        self._look_around()
        while not self.members.accepted:
            if time.monotonic() > patience:
                reasons = self.members.reasons
                raise WorkFailed(
                    f"No worker of the cluster can take part{': ' + reasons if reasons else ', none has joined'}."
                )
            if self.members.refused and self.scheduler is not None:
                patience = min(patience, time.monotonic() + _ONLY_REFUSED_S)
            elif self._own is None and not is_said and time.monotonic() > started + _SAY_WAITING_S:
                is_said = True
                _log.warning("There is no worker; the run waits up to %g s for one.", _NO_WORKERS_S)
            time.sleep(0.1)
            self._look_around()

    def _check_connection(self) -> None:
        if self.client.status != "running":
            raise self._lost()

    @property
    def _is_connected(self) -> bool:
        """True if the scheduler can be reached."""
        return not self._is_lost and self.client.status == "running"

    def _lost(self) -> WorkFailed:
        self._is_lost = True
        where = self.scheduler or "this machine"
        return WorkFailed(
            f"The Dask scheduler ({where}) cannot be reached any more. Start it again and {self.factory.way_out}."
        )

    def _hint(self) -> str:
        way_out = self.factory.way_out
        return f"{way_out[0].upper()}{way_out[1:]}."

    def close(self) -> None:
        if self._client is not None:
            if self._members is not None and self._own is None and self._is_connected:
                self._members.forget()
            self._client.close(timeout=2)
        if self._own is not None:
            self._own.close()
        if self._place is not None:
            self._place.cleanup()
        self._client = self._own = self._members = self._place = None


def _num_batches(group: Group) -> int:
    return -(-len(group.tasks) // GROUP_CHUNKS)
