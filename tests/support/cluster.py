"""A real scheduler and real workers on loopback, each a process of its own, forked from one that has imported Dask."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from airprune.engines.machine import worker_environment
from support.processes import PATIENCE_S
from support.warm import Forked

SCHEDULER = """
import asyncio, sys
from distributed import Scheduler
async def main():
    async with Scheduler(host="127.0.0.1", port=int(sys.argv[1]), scheduler_file=sys.argv[2], dashboard=False,
                         allowed_failures=2) as scheduler:
        await scheduler.finished()
asyncio.run(main())
"""
WORKER = """
import asyncio, sys
{before}
from distributed import Worker
from airprune.engines.cluster import tasks
async def main():
    async with Worker(scheduler_file=sys.argv[1], host="127.0.0.1", nthreads=1, dashboard=False, memory_limit=0,
                      local_directory=sys.argv[2], death_timeout=30) as worker:
        await worker.finished()
asyncio.run(main())
"""
OTHER_VERSION = """
import importlib.metadata
true = importlib.metadata.version
importlib.metadata.version = lambda name: "0.0.7" if name == "torch" else true(name)
"""


class Cluster:
    """`scheduler_file` names it; processes are killed by `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scheduler_file = str(folder / "scheduler.json")
        self.workers: list[subprocess.Popen] = []
        self.scheduler: subprocess.Popen | None = None
        self.start_scheduler()

    def start_scheduler(self, port: int = 0) -> None:
        Path(self.scheduler_file).unlink(missing_ok=True)
        self.scheduler = self._start(SCHEDULER, str(port), self.scheduler_file)
        deadline = time.monotonic() + PATIENCE_S
        while not Path(self.scheduler_file).exists():
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)

    def add_worker(self, before: str = "", *, is_cold: bool = False) -> subprocess.Popen:
        """`before` is run before the imports, which a worker that does not start cold has behind it."""
        script, start = WORKER.format(before=before), subprocess.Popen if is_cold else Forked
        worker = self._start(script, self.scheduler_file, str(self.folder / "space"), start=start)
        self.workers.append(worker)
        return worker

    def _start(self, script: str, *arguments: str, start: type[subprocess.Popen] = Forked) -> subprocess.Popen:
        log = (self.folder / f"log-{os.urandom(3).hex()}").open("wb")
        with log:
            return start([sys.executable, "-c", script, *arguments], env=worker_environment(), stdout=log, stderr=log)

    def close(self) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()
