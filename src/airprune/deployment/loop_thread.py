"""An event loop in a thread of its own, for callers in other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self, TypeVar

from airprune.errors import WorkFailed

T = TypeVar("T")


class Interrupted(WorkFailed):
    """The work that waited for a coroutine is to end."""


class LoopThread:
    """Runs coroutines while it is entered, for one other thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._called: Future[Any] | None = None
        self._is_interrupted = False
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts the coroutine, which may be cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the coroutine's result, when it has one; raises `Interrupted` if `interrupt` was called."""
        if self._is_interrupted:
            work.close()
            raise Interrupted("Interrupted.")
        self._called = called = self.start(work)
        if self._is_interrupted:
            called.cancel()
        try:
            return called.result()
        except CancelledError:
            raise Interrupted("Interrupted.") from None
        finally:
            self._called = None

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the coroutine's result as `call` does, interrupted or not."""
        return self.start(work).result()

    def interrupt(self) -> None:
        """Lets the call under way and those to come raise `Interrupted`, until `clear`; from any thread."""
        self._is_interrupted = True
        if (called := self._called) is not None:
            called.cancel()

    def clear(self) -> None:
        """Lets calls be made again."""
        self._is_interrupted = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        pending = asyncio.all_tasks(self._loop)  # left by an interrupt
        for task in pending:
            task.cancel()
        if pending:
            self._loop.run_until_complete(asyncio.wait(pending))
        self._loop.close()
