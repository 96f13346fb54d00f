"""Prepares the machine for worker processes: one thread, a calm allocator, modules where the driver finds them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from airprune.errors import InvalidValue

# A full, broken or forbidden disk and too many open files: trouble that the same task need not have elsewhere.
_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE}
_OF_THE_MACHINE |= {errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM}

# More than one worker per core is of no use, but harmless as long as they fit into memory.
_MAX_WORKERS_PER_CORE = 4
_ALWAYS_ALLOWED_WORKERS = 32


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and what led to it, innermost last."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def machine_trouble(error: BaseException) -> str | None:
    """Returns what is wrong with this machine's files, if that is why something failed."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno in _OF_THE_MACHINE:
            return os_trouble(cause)
    return None


def os_trouble(error: OSError) -> str:
    """Returns the system's words for the error and the file it is about."""
    said = error.strerror or str(error) or type(error).__name__
    return said if error.filename is None else f"{said} ({error.filename})"


def num_cores() -> int:
    """Returns the number of cores that this process may use, where the system knows it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_here(workers: int | None, *, field: str = "Scenario.engine.workers") -> int:
    """Returns how many worker processes to start on this machine: as many as asked for, by default one per core.

    Refuses more than any machine has a use for: they would fill the memory before one of them works.
    """
    cores = num_cores()
    most = max(_MAX_WORKERS_PER_CORE * cores, _ALWAYS_ALLOWED_WORKERS)
    if workers is not None and workers > most:
        of_this_machine = f"with the {cores} core{'' if cores == 1 else 's'} of this machine"
        raise InvalidValue(field, f"must be ≤ {most} {of_this_machine}", workers, "Leave it out for one per core.")
    return workers or cores


def single_thread() -> Callable[[], None]:
    """Sets one thread per process: two processes of one thread beat one of two, and bits do not depend on cores.

    Of torch, if whatever is to be computed has imported it. It holds for the calling thread alone. Returns how to undo
    it.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return lambda: None
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    return lambda: torch.set_num_threads(before)


def keep_large_buffers() -> None:
    """Lets the C library reuse the megabyte buffers of activations instead of returning them after every step.

    Saves the page faults of fresh memory, about a tenth of the training time; without glibc it does nothing.
    """
    mmap_threshold, trim_threshold = -3, -1
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 * 2**20)
        libc.mallopt(trim_threshold, 256 * 2**20)
    except (OSError, AttributeError):
        pass


def worker_environment() -> dict[str, str]:
    """Returns the environment of worker processes: one thread each, and modules where this process finds them.

    One arena as well: Dask works on a thread beside the first, and glibc gives such threads heaps that it returns to
    the system after every step, whatever `keep_large_buffers` asks for.
    """
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
    modules = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return {**os.environ, **single, "PYTHONPATH": modules}


_cancelled: ContextVar[Callable[[], bool]] = ContextVar("cancelled")


def cancelled() -> bool:
    """True if the present task is no longer waited for; for long tasks, in a worker."""
    is_cancelled = _cancelled.get(None)
    return is_cancelled is not None and is_cancelled()


@contextlib.contextmanager
def cancelled_by(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Lets the present task find out that it is cancelled; for engines whose workers outlive one."""
    token = _cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _cancelled.reset(token)
