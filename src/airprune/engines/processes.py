"""Worker processes on this machine, one thread each. A worker that dies is replaced and its task redone.

Workers are started as `python worker_process.py` and talk over a socket pair, so a user's script needs no
`if __name__ == "__main__"`, and a worker whose driver dies sees the line go dead and leaves.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from airprune.engines.base import MAX_TRIES, Call, Died, Engine, loaded, pack
from airprune.engines.machine import num_cores, worker_environment
from airprune.errors import WorkFailed

_GRACE_S = 1.0
_WORKER_FILE = str(Path(__file__).with_name("worker_process.py"))


@dataclass(eq=False)
class _Batch:
    """Calls that were asked for together.

    Attributes:
      waiting: indices of the calls that no worker has.
      num_left: how many have not ended.
      ended: (index, result) of those that have, until somebody takes them.
    """

    method: str
    calls: Sequence[Call]
    waiting: deque[int]
    num_left: int
    tries: list[int]
    ended: deque[tuple[int, Any]] = field(default_factory=deque)

    @classmethod
    def of(cls, method: str, calls: Sequence[Call]) -> _Batch:
        count = len(calls)
        return cls(method=method, calls=calls, waiting=deque(range(count)), num_left=count, tries=[0] * count)

    def end(self, index: int, result: Any) -> None:
        self.num_left -= 1
        self.ended.append((index, result))


class WorkerProcess:
    """One worker process, and which call of which batch it is busy with.

    Args:
      packed: the workshop.
    """

    def __init__(self, packed: bytes) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                self.process = subprocess.Popen(
                    # -P: the files beside it must not pass for modules of the same name.
                    [sys.executable, "-P", _WORKER_FILE, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=worker_environment(),
                    stdin=subprocess.DEVNULL,
                    process_group=0,  # Ctrl-C is for the driver alone
                )
            except OSError as error:
                raise WorkFailed(f"A worker process could not be started: {error.strerror or error}.") from error
            self.connection = Connection(ours.detach())
        self.busy_with: tuple[_Batch, int] | None = None
        with contextlib.suppress(OSError):  # if it is dead already, that shows when it gets its first task
            self.connection.send_bytes(packed)

    def how_it_ended(self) -> str:
        status = self.process.returncode
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def stop(workers: Iterable[WorkerProcess]) -> None:
    """Hangs up on all of them, then waits: they have nothing to finish and leave at once."""
    workers = list(workers)
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + _GRACE_S
    for worker in workers:
        try:
            worker.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:  # stuck
            worker.process.kill()
            worker.process.wait()


class ProcessesEngine(Engine):
    """As many workers as this machine has cores, or as told."""

    def start(self) -> None:
        self._packed = pack(self.workshop)
        self._processes: list[WorkerProcess] = []
        for _ in range(self.workers or num_cores()):
            self._processes.append(WorkerProcess(self._packed))

    @property
    def num_workers(self) -> int:
        return len(self._processes)

    def as_completed(
        self, method: str, calls: Sequence[Call], *, until: Callable[[], int] | None = None
    ) -> Generator[tuple[int, Any]]:
        batch = _Batch.of(method, calls)
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
                    worker.connection.send(message)

    def _collect(self) -> None:
        """Gives results to their batches; dead workers are replaced and their calls put back in front, or given up.

        A batch may be asked for while another is under way, so that any worker's result may be any batch's.
        """
        busy = {worker.connection: place for place, worker in enumerate(self._processes) if worker.busy_with}
        for connection in wait(list(busy)):
            place = busy[connection]  # type: ignore[index]
            worker = self._processes[place]
            assert worker.busy_with is not None
            batch, index = worker.busy_with
            try:
                failed, result = worker.connection.recv()
            except (EOFError, OSError):
                stop([worker])
                self._processes[place] = WorkerProcess(self._packed)
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
