"""Everything in this process, on one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from airprune.engines.base import Call, Engine
from airprune.engines.work import Worker, single_thread
from airprune.errors import AirpruneError, WorkFailed


class SerialEngine(Engine):
    """The plainest engine, and the yardstick of the others."""

    _threads_before: int | None = None

    def start(self) -> None:
        self._threads_before = torch.get_num_threads()
        single_thread()
        self._worker = Worker(self.job)

    def calls(self, method: str, calls: Sequence[Call]) -> Iterator[Any]:
        for model, task in calls:
            try:
                result = getattr(self._worker, method)(model, task)
            except AirpruneError as error:  # as from any other engine's workers
                raise WorkFailed(str(error)) from error
            yield result

    def close(self) -> None:
        if self._threads_before is not None:
            torch.set_num_threads(self._threads_before)
