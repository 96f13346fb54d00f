"""Worker processes on this machine, one thread each. A worker that dies is replaced and its chunk redone.

Workers are started as `python -m airprune.engines.worker_process` and talk over a socket pair, so a user's script needs no
`if __name__ == "__main__"`, and a worker whose driver dies reads the end of the stream and leaves.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from airprune.engines.base import Engine
from airprune.engines.work import Job, worker_environment
from airprune.errors import WorkFailed

MAX_TRIES = 3


class _Process:
    """One worker process and the task it is busy with."""

    def __init__(self, job: Job) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "airprune.engines.worker_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=worker_environment(),
                stdin=subprocess.DEVNULL,
            )
        self.connection = Connection(ours.detach())
        self.connection.send(job)
        self.task: int | None = None

    def stop(self) -> None:
        self.connection.close()
        try:
            self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ProcessesEngine(Engine):
    """As many workers as this machine has cores, or as told."""

    def start(self) -> None:
        count = self.workers or len(os.sched_getaffinity(0))
        self._processes: list[_Process] = []
        for _ in range(count):
            self._processes.append(_Process(self.job))

    def map(self, method: str, tasks: Sequence[Any]) -> Iterator[Any]:
        waiting = deque(range(len(tasks)))
        tries = [0] * len(tasks)
        results: dict[int, Any] = {}
        for wanted in range(len(tasks)):
            while wanted not in results:
                self._hand_out(method, tasks, waiting, tries)
                for index, result in self._collect(waiting, tries):
                    results[index] = result
            yield results.pop(wanted)

    def _hand_out(self, method: str, tasks: Sequence[Any], waiting: deque[int], tries: list[int]) -> None:
        for slot, worker in enumerate(self._processes):
            if worker.task is None and waiting:
                index = waiting.popleft()
                tries[index] += 1
                worker.task = index
                try:
                    worker.connection.send((method, tasks[index]))
                except OSError:
                    self._replace(slot, waiting, tries)

    def _collect(self, waiting: deque[int], tries: list[int]) -> Iterator[tuple[int, Any]]:
        """Results of the workers that have one; dead workers are replaced and their tasks put back in front."""
        busy = {worker.connection: slot for slot, worker in enumerate(self._processes) if worker.task is not None}
        for connection in wait(list(busy)):
            slot = busy[connection]  # type: ignore[index]
            worker = self._processes[slot]
            try:
                failed, result = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(slot, waiting, tries)
                continue
            index, worker.task = worker.task, None
            assert index is not None
            if failed:
                raise WorkFailed(f"A worker could not do its task:\n{result}")
            yield index, result

    def _replace(self, slot: int, waiting: deque[int], tries: list[int]) -> None:
        lost = self._processes[slot]
        lost.stop()
        index = lost.task
        if index is not None:
            if tries[index] >= MAX_TRIES:
                raise WorkFailed(
                    f"A worker process died {MAX_TRIES} times on the same devices (last exit status "
                    f"{lost.process.returncode}); often this is too little memory. The run can be resumed."
                )
            waiting.appendleft(index)
        self._processes[slot] = _Process(self.job)

    def close(self) -> None:
        for worker in getattr(self, "_processes", []):
            worker.stop()
        self._processes = []
