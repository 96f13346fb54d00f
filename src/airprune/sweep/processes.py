"""Whole runs in worker processes on this machine. A run whose worker dies goes on in another from its checkpoint."""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from airprune.engines.processes import WorkerProcess, num_cores, stop
from airprune.engines.work import MAX_TRIES
from airprune.sweep.runs import SweptRun
from airprune.sweep.whole_run import Outcome, WholeRun, WholeRuns, given_up, in_one_line

_START = pickle.dumps((WholeRuns, None))


def outcomes(runs: Sequence[SweptRun], out: Path, *, workers: int | None) -> Generator[Outcome]:
    """As runs end. Closing it ends the workers; what they had begun can be resumed."""
    pool: list[WorkerProcess] = []
    try:
        for _ in range(min(workers or num_cores(), len(runs))):
            pool.append(WorkerProcess(_START))
        yield from _Progress(runs, out, pool).outcomes()
    finally:
        stop(pool)


class _Progress:
    """Who does which run, and how often each was tried."""

    def __init__(self, runs: Sequence[SweptRun], out: Path, pool: list[WorkerProcess]) -> None:
        self.runs, self.out, self.pool = runs, out, pool
        self.waiting = deque(range(len(runs)))
        self.tries = Counter[int]()

    def outcomes(self) -> Iterator[Outcome]:
        while self.waiting or any(worker.task is not None for worker in self.pool):
            self._hand_out()
            busy = {worker.connection: worker for worker in self.pool if worker.task is not None}
            for connection in wait(list(busy)):
                yield from self._collect(busy[connection])  # type: ignore[index]

    def _hand_out(self) -> None:
        for worker in self.pool:
            if worker.task is None and self.waiting:
                worker.task = self.waiting.popleft()
                self.tries[worker.task] += 1
                with contextlib.suppress(OSError):  # if it is dead, that shows when answers are collected
                    worker.connection.send(("finish", WholeRun.of(self.runs[worker.task], self.out)))

    def _collect(self, worker: WorkerProcess) -> Iterator[Outcome]:
        """The answer of a worker. The run of a dead one is put back in front, for a new one, or given up."""
        task, worker.task = worker.task, None
        assert task is not None
        try:
            failed, answer = worker.connection.recv()
        except (EOFError, OSError):
            self.pool.remove(worker)
            stop([worker])
            if self.tries[task] < MAX_TRIES:
                self.waiting.appendleft(task)
            if self.waiting:
                self.pool.append(WorkerProcess(_START))
            if task not in self.waiting:
                yield Outcome(self.runs[task], given_up(worker.how_it_ended()))
        else:
            yield Outcome(self.runs[task], in_one_line(answer) if failed else answer)
