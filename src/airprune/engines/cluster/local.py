"""A cluster of this machine's own: a scheduler in this process and worker processes that live as long as it does.

It speaks TLS on loopback with certificates made for the occasion, so that no other user of the machine can use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import dask
from distributed import LocalCluster, Worker

from airprune.engines.base import MAX_TRIES
from airprune.engines.children import Child, stop
from airprune.engines.cluster.certificates import make_certificates, security_of
from airprune.engines.cluster.scratch import ScratchFolder
from airprune.engines.machine import workers_here
from airprune.engines.worker_process import leave_with_the_driver

_GRACE_S = 2.0
# Dask starts a web server beside every scheduler and worker, dashboard or not: let it have nothing to show. And let
# workers not look at their own stack a hundred times a second for a profile that is not shown.
WITHOUT_PAGES: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
}
# A worker gets its next task when it is free, so that none waits at the end of a round with work lying at another.
ONE_AT_A_TIME: dict[str, float] = {"distributed.scheduler.worker-saturation": 1.0}


class OwnCluster:
    """Started by its constructor; `close` ends it."""

    def __init__(self, workers: int | None) -> None:
        self._folder = ScratchFolder("cluster")
        self.tls = Path(self._folder.name) / "tls"
        self._cluster: LocalCluster | None = None
        self._workers: list[Child] = []
        try:
            self._begin(workers_here(workers))
        except BaseException:
            self.close()
            raise

    def _begin(self, workers: int) -> None:
        make_certificates(self.tls, days=30)
        with dask.config.set({**WITHOUT_PAGES, **ONE_AT_A_TIME}):
            self._cluster = LocalCluster(
                n_workers=0,
                host="127.0.0.1",
                protocol="tls://",
                security=security_of(self.tls, "scheduler"),
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                scheduler_kwargs={"allowed_failures": MAX_TRIES - 1, "dashboard": False},
            )
        self.address: str = self._cluster.scheduler_address
        for _ in range(workers):
            self._workers.append(self._start())

    def _start(self) -> Child:
        """Starts a worker process, which runs this module."""
        return Child.start("-m", "airprune.engines.cluster.local", self.address, str(self.tls), self._folder.name)

    def replace_dead(self) -> None:
        for place, child in enumerate(self._workers):
            if child.process.poll() is not None:
                stop([child])
                self._workers[place] = self._start()

    def end(self, name: str) -> None:
        """Kills the worker of this name, which hangs; it is replaced as a dead one is."""
        for child in self._workers:
            if str(child.process.pid) == name:
                child.process.kill()

    @property
    def pids(self) -> list[int]:
        return [child.process.pid for child in self._workers]

    def close(self) -> None:
        stop(self._workers)
        self._workers = []
        if self._cluster is not None:
            with contextlib.suppress(TimeoutError):
                self._cluster.close(timeout=_GRACE_S)
        self._folder.cleanup()


async def _work(address: str, tls: str, folder: str) -> None:
    """Serves as a worker of the scheduler at this address until it leaves."""
    import airprune.engines.cluster.tasks  # noqa: F401  # now, not when the first task arrives

    dask.config.set(WITHOUT_PAGES)
    worker = Worker(
        address,
        nthreads=1,
        name=str(os.getpid()),  # by which the driver knows it
        host="127.0.0.1",
        security=security_of(tls, "worker", scheduler=address),
        local_directory=folder,
        dashboard=False,
        memory_limit=0,
        silence_logs=logging.CRITICAL,
    )
    await worker
    await worker.finished()


if __name__ == "__main__":
    threading.Thread(target=leave_with_the_driver, args=[int(sys.argv[4])], daemon=True).start()
    asyncio.run(_work(*sys.argv[1:4]))
