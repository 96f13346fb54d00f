"""Worker processes of this machine, each with a line to it: when the driver hangs up, or dies, they leave."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

from airprune.engines.machine import worker_environment
from airprune.errors import WorkFailed, raise_if_exhausted

_GRACE_S = 2.0


@dataclass(eq=False)
class Child:
    """One process and this end of the line, whose closing is the sign to leave."""

    process: subprocess.Popen[bytes]
    line: Connection[Any, Any]

    @classmethod
    def start(cls, *arguments: str) -> Self:
        """Starts `python ARGUMENTS LINE`; LINE is its end, which it must watch (`leave_with_the_driver`)."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                process = subprocess.Popen(
                    [sys.executable, *arguments, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=worker_environment(),
                    stdin=subprocess.DEVNULL,
                    process_group=0,  # Ctrl-C is for the driver alone
                )
            except OSError as error:
                raise_if_exhausted(error)
                raise WorkFailed(f"A worker process could not be started: {error.strerror or error}.") from error
            return cls(process, Connection(ours.detach()))


def stop(children: Iterable[Child]) -> None:
    """Hangs up on all of them, then waits: they have nothing to finish and leave at once."""
    children = list(children)
    for child in children:
        child.line.close()
    deadline = time.monotonic() + _GRACE_S
    for child in children:
        try:
            child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:  # stuck
            child.process.kill()
            child.process.wait()
