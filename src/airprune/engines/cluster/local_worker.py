"""A worker process of the own cluster; arguments: scheduler, certificates, folder for its files, lifeline."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading

import dask
from distributed import Worker

import airprune.engines.cluster.tasks  # noqa: F401  # now, not when the first task arrives
from airprune.engines.cluster.certificates import security_of
from airprune.engines.cluster.local import WITHOUT_PAGES
from airprune.engines.worker_process import leave_with_the_driver


async def work(address: str, tls: str, folder: str) -> None:
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
    asyncio.run(work(*sys.argv[1:4]))
