"""Defines engines, executors of tasks, which differ in nothing a user can see but speed.

    WorkerFactory   what a worker is to be
    Task       what it is given, one at a time
    Group      tasks whose results are merged into one, always in the same order
    Engine     runs them somewhere

None of them knows what the work is about.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from airprune.engines.machine import keep_large_buffers
from airprune.errors import WorkFailed

_CRASHES = tuple(f"signal {name}" for name in ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"))
# How often a task is given to a worker that dies of it.
MAX_TRIES = 3
# So many parts are merged at a time, which bounds the memory of merging.
GROUP_CHUNKS = 16
# So many results per worker may wait for an earlier one, which bounds the driver's memory.
_AHEAD = 8

# How long a worker on another machine may give no sign of life.
SILENCE_S = 30.0

Call = tuple[Any, Any]


class WorkerFactory(Protocol):
    """Makes a worker in its process; picklable by cloudpickle. Inherit from it for the defaults.

    Attributes:
      folder: files that workers need; placed on machines that do not see it. None: there are none.
      setup_payload: a pickled function without arguments that is called in worker processes before anything else of the
        factory is unpickled there, e.g. to register what the user's script has registered.
      way_out: what users can do when work is lost; ends a sentence.
    """

    folder: Path | None = None
    setup_payload: bytes | None = None
    way_out: str = "resume the run (--resume)"

    def open(self, folder: Path | None) -> Any:
        """Returns the worker, in its process; `folder` is where the files lie there."""
        ...


@runtime_checkable
class Task(Protocol):
    """A unit of work for a worker. Inherit from it for the defaults; what is no `Task` is handed out as it is."""

    def loaded(self) -> Any:
        """Returns the task with what must travel, read just before it is handed out."""
        return self

    def parts(self) -> Sequence[Any]:
        """Returns the smallest tasks it consists of, to find the ones that workers die of; () if it is indivisible."""
        return ()

    def without(self, parts: Sequence[Any]) -> Any:
        """Returns the task without these parts, which may leave nothing; it is handed out all the same."""
        raise TypeError(f"{self!r} is indivisible")


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Tasks, at least one, whose results ("parts") become one result. To be inherited from.

    Attributes:
      shared: what all of its tasks take, e.g. a model.
      method: the worker's: `worker.<method>(shared, task)` gives a part.
      travels: whether each part must come to the driver, which then merges them. Otherwise an engine may merge on its
        workers.
    """

    shared: Any
    tasks: Sequence[Any]
    method: str
    travels: bool = False

    def arrived(self, task: Any, part: Any) -> Any:
        """Returns the part as it is to be merged; called in the driver, in the order of the tasks, if parts travel."""
        return part

    @staticmethod
    def merge(parts: Iterable[Any]) -> Any:
        """Merges the parts in order, one at a time; the first one may be used up. Runs anywhere."""
        raise NotImplementedError

    def finish(self, part: Any) -> Any:
        """Returns the result from all parts merged. Runs anywhere; there may be no tasks there."""
        return part

    def lost(self, parts: Sequence[Any], how: str) -> Any:
        """Returns what stands for these parts of a task, which workers died of: merged after the rest; None: nothing.

        Raises if work may not go on without them. It is called with no parts before the search for them.
        """
        raise WorkFailed(Died(how).on("the same task"))


@dataclass(frozen=True)
class Died:
    """In place of a result: the worker died on this task every time it was tried."""

    how: str

    def on(self, what: str) -> str:
        return f"A worker died {MAX_TRIES} times on {what}, last by {self.how}; {self.advice}"

    @property
    def advice(self) -> str:
        """Names a likely cause and a way out: only the system's own SIGKILL points to memory."""
        if self.how == "signal SIGKILL":
            return "often this is too little memory, then fewer workers help."
        if self.how in _CRASHES:
            return (
                "this is a crash of native code, torch's or another library's. A few minibatches of the same model and "
                "data in plain torch show whether it is torch's; then another version of torch or other layers help."
            )
        return "what the worker wrote before may say why."


class Engine(ABC):
    """Runs tasks on workers, which live from enter to exit.

    Args:
      workers: how many; by default one per core of this machine.
      scheduler, tls: of engines that reach beyond this machine.
      silence_s: how long one of their workers may give no sign of life before its work is done elsewhere.
    """

    # Whether workers may be on machines that do not see the driver's files.
    remote: ClassVar[bool] = False

    def __init__(
        self,
        factory: WorkerFactory,
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        tls: Path | None = None,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.factory = factory
        self.workers = workers
        self.scheduler = scheduler
        self.tls = tls
        self.silence_s = silence_s

    @abstractmethod
    def start(self) -> None:
        """Makes the workers ready."""

    @abstractmethod
    def close(self) -> None:
        """Ends the workers; harmless if there are none."""

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """Number of tasks that can be worked on at a time, as of now; at least 1."""

    @abstractmethod
    def as_completed(
        self, method: str, calls: Sequence[Call], *, until: Callable[[], int] | None = None
    ) -> Generator[tuple[int, Any]]:
        """Yields (index, `worker.<method>(shared, task)`) of every call as it ends; `Died` where workers die of it.

        An error in a worker is a `WorkFailed`. Closing it gives up what is under way.

        Args:
          until: calls from this index on are not to be handed out yet.
        """

    def calls(self, method: str, calls: Sequence[Call]) -> Iterator[Any]:
        """Yields results in the order of the calls; only a few tasks are loaded, and results held back, at a time."""
        early: dict[int, Any] = {}
        wanted = 0
        ended = self.as_completed(method, calls, until=lambda: wanted + _AHEAD * self.num_workers)
        with contextlib.closing(ended):
            for index, result in ended:
                early[index] = result
                while wanted in early:
                    yield early.pop(wanted)
                    wanted += 1

    def map(self, method: str, shared: Any, tasks: Sequence[Any]) -> Iterator[Any]:
        """Yields `worker.<method>(shared, task)` for every task, in the order of the tasks."""
        for result in self.calls(method, [(shared, task) for task in tasks]):
            if isinstance(result, Died):
                raise WorkFailed(result.on("the same task"))
            yield result

    def reduce(self, groups: Sequence[Group]) -> list[Any]:
        """Returns the result of each group, merged part by part as they arrive, by every engine in the same order."""
        results = []
        for method, same in itertools.groupby(groups, key=operator.attrgetter("method")):
            of_method = list(same)
            parts = self.calls(method, [(group.shared, task) for group in of_method for task in group.tasks])
            results += [self._reduced(group, parts) for group in of_method]
        return results

    def _reduced(self, group: Group, results: Iterator[Any]) -> Any:
        """Takes as many results as the group has tasks."""
        parts = (self._parts(group, task, part) for task, part in zip(group.tasks, results, strict=False))
        return group.finish(merged_in_batches(group.merge, parts))

    def _parts(self, group: Group, task: Any, part: Any) -> list[Any]:
        """Returns what a task contributes: its part, or that of the rest of it and what stands for the lost."""
        lost = None
        if isinstance(part, Died):
            task, lost = self.without_killers(group, task, part)
            (part,) = self.map(group.method, group.shared, [task])
        if group.travels:
            part = group.arrived(task, part)
        return [part] if lost is None else [part, lost]

    def without_killers(self, group: Group, task: Any, death: Died) -> tuple[Any, Any]:
        """Returns (the task without the parts that workers die of, what stands for those), if it may go on so.

        Tries each part alone, one after the other, so that none is blamed for another.
        """
        group.lost((), death.how)
        killers = []
        for part in task.parts() if isinstance(task, Task) else ():
            (result,) = self.calls(group.method, [(group.shared, part)])
            if isinstance(result, Died):
                killers.append(part)
                death = result
        return (task.without(killers), group.lost(killers, death.how)) if killers else (task, None)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def merged_in_batches(merge: Callable[[Iterable[Any]], Any], parts: Iterator[Sequence[Any]]) -> Any:
    """Merges what tasks contribute, in their order, `GROUP_CHUNKS` tasks at a time: the one order of every sum."""
    batches = (itertools.chain([first], itertools.islice(parts, GROUP_CHUNKS - 1)) for first in parts)
    return merge(merge(itertools.chain.from_iterable(batch)) for batch in batches)


def loaded(task: Any) -> Any:
    """Returns the task as it is handed out."""
    return task.loaded() if isinstance(task, Task) else task


def pack(factory: WorkerFactory) -> bytes:
    """Returns the factory as bytes for another process."""
    import cloudpickle  # which small devices do without

    return pickle.dumps((factory.setup_payload, cloudpickle.dumps(factory)))


def unpack(packed: bytes) -> WorkerFactory:
    """Reads the factory in another process, after its setup payload, which the rest may need."""
    setup_payload, pickled = pickle.loads(packed)
    if setup_payload is not None:
        pickle.loads(setup_payload)()
    factory: WorkerFactory = pickle.loads(pickled)
    return factory


def opened(factory: WorkerFactory, folder: Path | None) -> Any:
    """Opens the worker in a process with one thread: by its environment, or by `single_thread`."""
    keep_large_buffers()
    return factory.open(folder)
