"""The worker's side of the `processes` engine: a factory to open, then tasks until the driver hangs up.

Run as a file, so that it listens before torch is imported: it takes its orders at once, and leaves even while it starts
if the driver has ended.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any


def serve(descriptor: int) -> None:
    """Answers every task with (failed, result or what went wrong). A worker that cannot start fails the first."""
    threading.Thread(target=leave_with_the_driver, args=[descriptor], daemon=True).start()
    connection: Connection[Any, Any] = Connection(descriptor)
    try:
        worker, trouble = _worker(connection.recv_bytes())
        while True:
            method, *arguments = connection.recv()
            connection.send_bytes(_pickled((True, trouble) if worker is None else _answer(worker, method, arguments)))
    except (EOFError, OSError):
        return  # the driver has hung up


def _worker(packed: bytes) -> tuple[Any, str]:
    try:
        from airprune.engines.base import opened, unpack

        factory = unpack(packed)
        return opened(factory, factory.folder), ""
    except Exception as error:
        return None, _trouble_of(error)


def _answer(worker: Any, method: str, arguments: list[Any]) -> tuple[bool, Any]:
    try:
        return False, getattr(worker, method)(*arguments)
    except Exception as error:
        return True, _trouble_of(error)


def _pickled(answer: tuple[bool, Any]) -> Any:
    """Pickles an answer; an object of a class of the user's script by value, as the class came."""
    from multiprocessing.reduction import ForkingPickler

    try:
        return ForkingPickler.dumps(answer)
    except Exception:
        import cloudpickle

        return cloudpickle.dumps(answer)


def _trouble_of(error: Exception) -> str:
    from airprune.errors import trouble_of

    return trouble_of(error)


def leave_with_the_driver(descriptor: int) -> None:
    """Ends this process as soon as the other end is closed, be it in the midst of a long task."""
    line = select.poll()
    line.register(descriptor, 0)  # hang-ups are always reported
    line.poll()
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
