"""Worker processes on this machine, one thread each. A worker that dies is replaced and its task redone.

Workers are started as `python worker_process.py` and talk over a socket pair, so a user's script needs no
`if __name__ == "__main__"`, and a worker whose driver dies sees the line go dead and leaves.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from airprune.engines.base import MAX_TRIES, Call, Died, Engine, loaded, pack
from airprune.engines.children import Child, stop
from airprune.engines.machine import workers_here
from airprune.errors import WorkFailed

_WORKER_FILE = str(Path(__file__).with_name("worker_process.py"))


class _Batch:
    """Calls that were submitted together.

    Attributes:
      waiting: indices of the calls that no worker has.
      num_left: how many have not ended.
      ended: (index, result) of those that have, until they are taken.
    """

    def __init__(self, method: str, calls: Sequence[Call]) -> None:
        self.method, self.calls = method, calls
        self.waiting, self.tries = deque(range(len(calls))), Counter[int]()
        self.num_left, self.ended = len(calls), deque[tuple[int, Any]]()

    def end(self, index: int, result: Any) -> None:
        self.num_left -= 1
        self.ended.append((index, result))


@dataclass(eq=False)
class _Worker(Child):
    """A process that is or will be in its factory, and which call of which batch it is busy with."""

    busy_with: tuple[_Batch, int] | None = None

    @classmethod
    def begin(cls, packed: bytes) -> Self:
        # -P: the files beside it must not pass for modules of the same name.
        worker = cls.start("-P", _WORKER_FILE)
        with contextlib.suppress(OSError):  # if it is dead already, that shows when it gets its first task
            worker.line.send_bytes(packed)
        return worker

    def how_it_ended(self) -> str:
        status = self.process.returncode
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


class ProcessesEngine(Engine):
    """Runs as many workers as this machine has cores, or as configured."""

    def start(self) -> None:
        self._packed = pack(self.factory)
        self._processes: list[_Worker] = []
        for _ in range(workers_here(self.workers)):
            self._processes.append(_Worker.begin(self._packed))

    @property
    def num_workers(self) -> int:
        return len(self._processes)

    def as_completed(
        self, method: str, calls: Sequence[Call], *, until: Callable[[], int] | None = None
    ) -> Generator[tuple[int, Any]]:
        batch = _Batch(method, calls)
        while batch.num_left:
            self._hand_out(batch, len(calls) if until is None else until())
            self._collect()
            while batch.ended:
                yield batch.ended.popleft()

    def _hand_out(self, batch: _Batch, until: int) -> None:
        for worker in self._processes:
            if worker.busy_with is None and batch.waiting and batch.waiting[0] < until:
                index = batch.waiting.popleft()
                shared, task = batch.calls[index]
                message = (batch.method, shared, loaded(task))
                batch.tries[index] += 1
                worker.busy_with = batch, index
                with contextlib.suppress(OSError):  # if it is dead, that shows when results are collected
                    worker.line.send(message)

    def _collect(self) -> None:
        """Gives results to their batches; dead workers are replaced and their calls put back in front, or given up.

        A batch may be submitted while another is under way, so that any worker's result may be any batch's.
        """
        busy = {worker.line: place for place, worker in enumerate(self._processes) if worker.busy_with}
        for connection in wait(list(busy)):
            place = busy[connection]  # type: ignore[index]
            worker = self._processes[place]
            assert worker.busy_with is not None
            batch, index = worker.busy_with
            try:
                failed, result = worker.line.recv()
            except (EOFError, OSError):
                stop([worker])
                self._processes[place] = _Worker.begin(self._packed)
                if batch.tries[index] < MAX_TRIES:
                    batch.waiting.appendleft(index)
                else:
                    batch.end(index, Died(worker.how_it_ended()))
                continue
            worker.busy_with = None
            if failed:
                raise WorkFailed(result)
            batch.end(index, result)

    def close(self) -> None:
        stop(getattr(self, "_processes", []))
        self._processes = []
