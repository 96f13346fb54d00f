"""`airprune cluster …` as real processes, and what they say."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from support.processes import PATIENCE_S, start_airprune


@contextlib.contextmanager
def service(*arguments: object, **options) -> Iterator[subprocess.Popen]:
    """`airprune cluster …`, which stays until it is told to leave."""
    process = start_airprune("cluster", *arguments, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE_S)


def hear(process: subprocess.Popen, words: str) -> str:
    """The next line on stderr with these words."""
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"it left without saying {words!r}")


def worker_processes(process: subprocess.Popen) -> list[int]:
    """Of those that are there: one may end while they are looked at."""
    found = []
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"spawn_main" in Path(f"/proc/{child.pid}/cmdline").read_bytes():
                found.append(child.pid)
    return found
