"""The worker's side of the `processes` engine: one job, then tasks until the driver hangs up."""

from __future__ import annotations

import os
import pickle
import select
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from airprune.engines.work import Worker, single_thread


def serve(descriptor: int) -> None:
    """Answers every task with (failed, result or traceback). A job that cannot be taken up fails the first task."""
    threading.Thread(target=_leave_with_the_driver, args=[descriptor], daemon=True).start()
    connection: Connection[Any, Any] = Connection(descriptor)
    single_thread()
    try:
        job = connection.recv_bytes()
    except (EOFError, OSError):
        return
    worker, trouble = _worker(job)
    while True:
        try:
            method, task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, trouble) if worker is None else (False, getattr(worker, method)(task))
        except Exception:
            answer = (True, traceback.format_exc())
        try:
            connection.send(answer)
        except OSError:
            return


def _worker(job: bytes) -> tuple[Worker | None, str]:
    try:
        return Worker(pickle.loads(job)), ""
    except Exception:
        return None, traceback.format_exc()


def _leave_with_the_driver(descriptor: int) -> None:
    """Ends this process as soon as nobody is at the other end, be it in the midst of a long task."""
    line = select.poll()
    line.register(descriptor, 0)  # hang-ups are always reported
    line.poll()
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
