"""What an engine is: a place where device work runs. Engines differ in nothing a user can see but speed."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from airprune.engines.work import EdgeSum, Job, TrainChunk


class Engine(ABC):
    """Runs `Worker` methods somewhere. Use as a context: workers live from enter to exit."""

    def __init__(self, job: Job, *, workers: int | None = None) -> None:
        self.job = job
        self.workers = workers

    @abstractmethod
    def map(self, method: str, tasks: Sequence[Any]) -> Iterator[Any]:
        """`Worker.<method>(task)` for every task, in the order of the tasks; a deliberate error is a `WorkFailed`."""

    def edge_sums(self, chunks_of_edges: Sequence[Sequence[TrainChunk]]) -> list[EdgeSum]:
        """Trains all chunks of one edge round; one merged sum per edge, chunks merged in order as they arrive."""
        results = self.map("train", [chunk for chunks in chunks_of_edges for chunk in chunks])
        return [EdgeSum.joined(itertools.islice(results, len(chunks))) for chunks in chunks_of_edges]

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
