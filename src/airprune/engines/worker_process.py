"""The worker's side of the `processes` engine: one job, then tasks until the driver hangs up."""

from __future__ import annotations

import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from airprune.engines.work import Worker, single_thread


def serve(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides
    connection: Connection[Any, Any] = Connection(descriptor)
    try:
        single_thread()
        worker = Worker(connection.recv())
        while True:
            method, task = connection.recv()
            try:
                answer = (False, getattr(worker, method)(task))
            except Exception:
                answer = (True, traceback.format_exc())
            connection.send(answer)
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    serve(int(sys.argv[1]))
