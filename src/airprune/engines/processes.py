"""Worker processes on this machine, one thread each. A worker that dies is replaced and its chunk redone.

Workers are started as `python worker_process.py` and talk over a socket pair, so a user's script needs no
`if __name__ == "__main__"`, and a worker whose driver dies sees the line go dead and leaves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cloudpickle

from airprune.engines.base import Call, Died, Engine
from airprune.engines.work import MAX_TRIES, Worker, worker_environment
from airprune.errors import WorkFailed

_GRACE_S = 1.0
_WORKER_FILE = str(Path(__file__).with_name("worker_process.py"))


class WorkerProcess:
    """One worker process and the task it is busy with.

    Args:
      start: pickled, what it is to be: the class of a worker, and its argument.
    """

    def __init__(self, start: bytes) -> None:
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
        self.task: int | None = None
        with contextlib.suppress(OSError):  # if it is dead already, that shows when it gets its first task
            self.connection.send_bytes(start)

    def how_it_ended(self) -> str:
        status = self.process.returncode
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def num_cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        self._start = cloudpickle.dumps((Worker, self.job))
        self._processes: list[WorkerProcess] = []
        for _ in range(self.workers or num_cores()):
            self._processes.append(WorkerProcess(self._start))

    def calls(self, method: str, calls: Sequence[Call]) -> Iterator[Any]:
        waiting = deque(range(len(calls)))
        tries = [0] * len(calls)
        results: dict[int, Any] = {}
        for wanted in range(len(calls)):
            while wanted not in results:
                self._hand_out(method, calls, waiting, tries)
                results.update(self._collect(waiting, tries))
            yield results.pop(wanted)

    def _hand_out(self, method: str, calls: Sequence[Call], waiting: deque[int], tries: list[int]) -> None:
        for worker in self._processes:
            if worker.task is None and waiting:
                index = waiting.popleft()
                tries[index] += 1
                worker.task = index
                with contextlib.suppress(OSError):  # if it is dead, that shows when results are collected
                    worker.connection.send((method, *calls[index]))

    def _collect(self, waiting: deque[int], tries: list[int]) -> Iterator[tuple[int, Any]]:
        """Results of the workers that have one; dead workers are replaced and their tasks put back in front."""
        busy = {worker.connection: slot for slot, worker in enumerate(self._processes) if worker.task is not None}
        for connection in wait(list(busy)):
            slot = busy[connection]  # type: ignore[index]
            worker = self._processes[slot]
            try:
                failed, result = worker.connection.recv()
            except (EOFError, OSError):
                yield from self._replace(slot, waiting, tries)
                continue
            index, worker.task = worker.task, None
            assert index is not None
            if failed:
                raise WorkFailed(result)
            yield index, result

    def _replace(self, slot: int, waiting: deque[int], tries: list[int]) -> Iterator[tuple[int, Died]]:
        """A new worker in the dead one's place, whose task is put back in front, or given up."""
        lost = self._processes[slot]
        stop([lost])
        self._processes[slot] = WorkerProcess(self._start)
        if lost.task is None:
            return
        if tries[lost.task] < MAX_TRIES:
            waiting.appendleft(lost.task)
        else:
            yield lost.task, Died(lost.how_it_ended())

    def close(self) -> None:
        stop(getattr(self, "_processes", []))
        self._processes = []
