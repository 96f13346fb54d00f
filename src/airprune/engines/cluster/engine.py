"""Hands tasks to the workers of a Dask cluster.

Of a group whose parts need not travel, one task holds what is shared, one per task of the group works, one per batch of
them merges, one finishes: all of them on the workers. Between driver and cluster travel what is shared and the result,
once per group, and the few numbers that describe each task.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import queue
import tempfile
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
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
from airprune.errors import WorkFailed

# Tasks of groups handed out per worker: enough that none waits, few enough that a newcomer finds work.
_TASKS_AHEAD = 32
_LOOK_AROUND_S = 1.0
_NO_WORKERS_S = 60.0
_ONLY_REFUSED_S = 5.0
_MAX_HAND_OUTS = 20
_DEATH = Died("a signal or an exit that only its own machine has seen")


@dataclass
class _UnderWay:
    """One group on its way.

    Attributes:
      number: its place among the groups.
      group: without the parts that workers died of.
      lost: what stands for those, by place of their task.
      keys: of its tasks.
    """

    number: int
    group: Group
    lost: dict[int, Any]
    keys: list[Any]
    future: Future


class DaskEngine(Engine):
    """On the cluster of `scheduler`, an address or a scheduler file; without one, on a cluster of its own."""

    remote = True
    _client: Client | None = None
    _own: OwnCluster | None = None
    _members: Members | None = None
    _place: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="airprune-workshop-")
        parcel = Parcel.of(self.workshop, Path(self._place.name))
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

    @property
    def num_workers(self) -> int:
        present = len(self.members.accepted)
        return max(1, min(present, self.workers or present))

    def as_completed(
        self, method: str, calls: Sequence[Call], *, until: Callable[[], int] | None = None
    ) -> Generator[tuple[int, Any]]:
        """With `until` that says how many are handed out; else one per worker, since they may be long."""
        waiting, under_way, hand_outs = deque(range(len(calls))), dict[Any, tuple[int, Future]](), Counter[int]()
        ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        held: tuple[Any, Future] | None = None
        self._look_around()
        try:
            while waiting or under_way:
                while waiting and (len(under_way) < self.num_workers if until is None else waiting[0] < until()):
                    index = waiting.popleft()
                    shared, task = calls[index]
                    if held is None or held[0] is not shared:
                        held = shared, self._submit(tasks.hold, shared)
                    future = self._submit_calls(method, held[1], [loaded(task)], method)[0]
                    future.add_done_callback(ended.put)
                    under_way[future.key] = index, future
                for future in self._ended(ended, under_way):
                    index, _ = under_way.pop(future.key)
                    result = self._result(future)
                    if not isinstance(result, tasks.Refusal):
                        yield index, _DEATH if isinstance(result, KilledWorker) else result
                        continue
                    waiting.appendleft(index)
                    self._count(hand_outs, index, result)
        finally:
            self._cancel([future for _, future in under_way.values()])

    def _ended(self, ended: queue.SimpleQueue[Future], under_way: dict[Any, tuple[int, Future]]) -> list[Future]:
        """The next one that ended; if none does for a while, those that nobody will ever do."""
        if time.monotonic() > self._looked + _LOOK_AROUND_S:
            self._wait_for_workers()
        with contextlib.suppress(queue.Empty):
            future = ended.get(timeout=_LOOK_AROUND_S)
            return [future] if future.key in under_way else []
        return [future for _, future in under_way.values() if self._is_stranded(future)]

    def reduce(self, groups: Sequence[Group]) -> list[Any]:
        """Groups are handed out while there is room, and waited for in their order."""
        if any(group.travels for group in groups):
            return super().reduce(groups)
        self._look_around()
        waiting, under_way, results = deque(enumerate(groups)), deque[_UnderWay](), []
        while waiting or under_way:
            room = _TASKS_AHEAD * self.num_workers
            while waiting and (not under_way or sum(len(one.keys) for one in under_way) < room):
                under_way.append(self._submit_group(*waiting.popleft(), lost={}))
            results.append(self._group_result(under_way.popleft()))
        return results

    def _submit_group(self, number: int, group: Group, lost: dict[int, Any]) -> _UnderWay:
        """Names the tasks of each group apart: Dask keeps tasks of one name back until a worker is free, rather than
        giving them out beforehand, only if the tasks that they depend on are few.
        """
        shared = self._submit(tasks.hold, group.shared, name=f"hold_{number}")
        futures = self._submit_calls(group.method, shared, list(map(loaded, group.tasks)), f"{group.method}_{number}")
        parts = [[part] if at not in lost else [part, lost[at]] for at, part in enumerate(futures)]
        batches = [
            self._submit(tasks.merge, list(itertools.chain.from_iterable(parts[at : at + GROUP_CHUNKS])), group.merge)
            for at in range(0, len(parts), GROUP_CHUNKS)
        ]
        without_tasks = dataclasses.replace(group, shared=None, tasks=())
        future = self._submit(tasks.finish, batches, without_tasks, shared)
        return _UnderWay(number, group, lost, [part.key for part in futures], future)

    def _group_result(self, one: _UnderWay) -> Any:
        """Waits for a group; hands it out again, if need be without the parts that workers die of."""
        hand_outs = Counter[int]()
        while isinstance(result := self._result(one.future), KilledWorker | tasks.Refusal):
            self._count(hand_outs, one.number, result)
            group, lost = one.group, one.lost
            if isinstance(result, KilledWorker):
                group.lost((), _DEATH.how)
                # Dask also blames tasks that only waited where another one died: those are just handed out again.
                if result.task in one.keys:
                    at = one.keys.index(result.task)
                    rest, stands_for = self.without_killers(group, group.tasks[at], _DEATH)
                    group = dataclasses.replace(group, tasks=(*group.tasks[:at], rest, *group.tasks[at + 1 :]))
                    lost = lost if stands_for is None else self._with_lost(group, lost, at, stands_for)
            one = self._submit_group(one.number, group, lost)
        return result

    @staticmethod
    def _with_lost(group: Group, lost: dict[int, Any], at: int, more: Any) -> dict[int, Any]:
        return {**lost, at: group.merge([lost[at], more]) if at in lost else more}

    def _submit(self, function: Any, *arguments: Any, name: str | None = None) -> Future:
        places = self.members.restriction
        key = self._key(name or function.__name__)
        future: Future = self.client.submit(function, *arguments, key=key, workers=places, pure=False)
        self._places[future] = places
        return future

    def _submit_calls(self, method: str, shared: Future, calls: list[Any], name: str) -> list[Future]:
        places = self.members.restriction
        futures: list[Future] = self.client.map(
            tasks.call,
            calls,
            shared=shared,
            method=method,
            parcel=self.members.parcel,
            wanted=self.members.wanted,
            key=[self._key(name) for _ in calls],
            workers=places,
            pure=False,
        )
        self._places.update(dict.fromkeys(futures, places))
        return futures

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
        """Long tasks see it and stop."""
        if futures and self.client.status == "running":
            with contextlib.suppress(OSError, TimeoutError):
                self.client.cancel(futures, force=True)

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
        self._looked = time.monotonic()

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
                patience = min(patience, time.monotonic() + _ONLY_REFUSED_S)
            time.sleep(0.1)
            self._look_around()

    def _check_connection(self) -> None:
        if self.client.status != "running":
            raise self._lost()

    def _lost(self) -> WorkFailed:
        where = self.scheduler or "this machine"
        return WorkFailed(
            f"The Dask scheduler ({where}) cannot be reached any more. Start it again and {self.workshop.way_out}."
        )

    def _count(self, hand_outs: Counter[int], index: int, result: tasks.Refusal | KilledWorker) -> None:
        """Gives up what is lost time and again; a worker that is left out from now on does not count."""
        if isinstance(result, tasks.Refusal) and result.worker and not result.missing:
            return
        hand_outs[index] += 1
        if hand_outs[index] == _MAX_HAND_OUTS:
            raise WorkFailed(f"The cluster lost the same task {_MAX_HAND_OUTS} times. {self._hint()}")

    def _hint(self) -> str:
        way_out = self.workshop.way_out
        return f"{way_out[0].upper()}{way_out[1:]}."

    def close(self) -> None:
        if self._client is not None:
            if self._members is not None and self._own is None and self._client.status == "running":
                self._members.forget()
            self._client.close(timeout=2)
        if self._own is not None:
            self._own.close()
        if self._place is not None:
            self._place.cleanup()
        self._client = self._own = self._members = self._place = None
