"""What an engine is: a place where device work runs. Engines differ in nothing a user can see but speed."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from airprune.engines.work import (
    MAX_TRIES,
    EdgeAverage,
    EdgeSum,
    EdgeWork,
    Failure,
    Job,
    TrainChunk,
)
from airprune.errors import WorkFailed

Array = np.ndarray
Call = tuple[Array, Any]


@dataclass(frozen=True)
class Died:
    """In place of a result: the worker died on this call every time it was tried."""

    how: str


class Engine(ABC):
    """Runs `Worker` methods somewhere. Use as a context: workers live from enter to exit.

    Args:
      workers: how many; by default one per core of this machine.
      scheduler, tls: of engines that reach beyond this machine.
    """

    def __init__(
        self, job: Job, *, workers: int | None = None, scheduler: str | None = None, tls: Path | None = None
    ) -> None:
        self.job = job
        self.workers = workers
        self.scheduler = scheduler
        self.tls = tls
        self.reported: set[int] = set()  # devices whose failure the user has read

    @abstractmethod
    def calls(self, method: str, calls: Sequence[Call]) -> Iterator[Any]:
        """`Worker.<method>(model, task)` for every (model, task), in their order; `Died` where workers die of it.

        A deliberate error is a `WorkFailed`.
        """

    def map(self, method: str, model: Array, tasks: Sequence[Any]) -> Iterator[Any]:
        """`Worker.<method>(model, task)` for every task, in the order of the tasks."""
        for result in self.calls(method, [(model, task) for task in tasks]):
            if isinstance(result, Died):
                raise WorkFailed(died(result))
            yield result

    def edge_averages(self, edges: Sequence[EdgeWork]) -> list[EdgeAverage]:
        """Trains one edge round of these edges; each edge's chunks are merged in order as they arrive."""
        calls = [(edge.received, chunk) for edge in edges for chunk in edge.chunks]
        sums = (self._survived(call, result) for call, result in zip(calls, self.calls("train", calls), strict=True))
        return [EdgeSum.of_edge(itertools.islice(sums, len(edge.chunks))).average(edge.received) for edge in edges]

    def _survived(self, call: Call, result: EdgeSum | Died) -> EdgeSum:
        """The result, or that of the chunk without the devices that workers die of."""
        if isinstance(result, EdgeSum):
            return result
        received, chunk = call
        rest, failures = self.without_killers(received, chunk)
        if not failures:
            raise WorkFailed(died(result))
        (again,) = self.calls("train", [(received, rest)])
        if isinstance(again, Died):
            raise WorkFailed(died(again))
        return replace(again, failures=(*again.failures, *failures))

    def without_killers(self, received: Array, chunk: TrainChunk) -> tuple[TrainChunk, list[Failure]]:
        """A chunk that workers died of without the devices to blame, if the scenario lets it go on without them.

        Tries each device alone, one after the other, so that none is blamed for another.
        """
        failures = []
        for device in chunk.devices if self.job.drop_failing else ():
            (result,) = self.calls("train", [(received, chunk.of([device]))])
            if isinstance(result, Died):
                failures.append(Failure(device, died(result)))
        killers = {failure.device for failure in failures}
        return chunk.of(device for device in chunk.devices if device not in killers), failures

    @abstractmethod
    def start(self) -> None:
        """Makes the workers ready."""

    @abstractmethod
    def close(self) -> None:
        """Ends the workers; harmless if there are none."""

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


def died(result: Died) -> str:
    return (
        f"A worker died {MAX_TRIES} times on the same devices, last by {result.how}; often this is too little memory, "
        "then fewer workers help. The run can be resumed."
    )
