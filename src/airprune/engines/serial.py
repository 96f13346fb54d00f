"""Everything in this process, on one thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from airprune.engines.base import Call, Engine, loaded, opened
from airprune.engines.machine import single_thread
from airprune.errors import AirpruneError, WorkFailed


class SerialEngine(Engine):
    """The plainest engine, and the yardstick of the others."""

    num_workers = 1
    _restore_threads: Callable[[], None] | None = None

    def start(self) -> None:
        self._worker = opened(self.factory, self.factory.folder)
        self._restore_threads = single_thread()

    def as_completed(
        self, method: str, calls: Sequence[Call], *, until: Callable[[], int] | None = None
    ) -> Generator[tuple[int, Any]]:
        for index, (shared, task) in enumerate(calls):
            try:
                result = getattr(self._worker, method)(shared, loaded(task))
            except AirpruneError as error:  # as from any other engine's workers
                raise WorkFailed(str(error)) from error
            yield index, result

    def close(self) -> None:
        if self._restore_threads is not None:
            self._restore_threads()
