"""The services of a cluster: its scheduler, and the workers of one machine. Each lasts until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import multiprocessing
import os
import resource
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import dask
from dask.utils import parse_bytes
from distributed import Scheduler
from distributed.security import Security

from airprune.engines.base import MAX_TRIES
from airprune.engines.cluster.certificates import security_of
from airprune.engines.cluster.connection import quiet
from airprune.engines.cluster.crew import Crew, WorkerSettings, is_loopback, last_words
from airprune.engines.cluster.local import ONE_AT_A_TIME, WITHOUT_PAGES
from airprune.engines.cluster.scratch import ScratchFolder
from airprune.engines.machine import causes, worker_environment, workers_here
from airprune.errors import UsageError, WorkFailed


def serve_scheduler(
    *,
    host: str,
    port: int,
    tls: Path | None,
    scheduler_file: Path | None = None,
    dashboard: bool = False,
    insecure: bool = False,
    announce: Callable[[str, str | None], None],
) -> None:
    """Runs a scheduler until SIGINT or SIGTERM; `announce` gets its address and the dashboard's, if there is one."""
    if tls is None and not insecure and not is_loopback(host):
        raise UsageError(
            f"A scheduler on {host!r} without TLS lets any process that reaches it run code on the cluster: "
            "give --tls FOLDER (made by `airprune cluster certificates FOLDER`), or --insecure to insist."
        )
    if dashboard and importlib.util.find_spec("bokeh") is None:
        raise UsageError("--dashboard needs the package bokeh: pip install bokeh.")
    security = None if tls is None else security_of(tls, "scheduler")
    if scheduler_file is not None:
        try:
            scheduler_file.touch()
        except OSError as error:
            raise UsageError(f"--scheduler-file {scheduler_file} cannot be written: {error.strerror}.") from error
    quiet()
    _many_connections()
    asyncio.run(_scheduler(host, port, security, scheduler_file, dashboard, announce))


async def _scheduler(
    host: str,
    port: int,
    security: Security | None,
    scheduler_file: Path | None,
    dashboard: bool,
    announce: Callable[[str, str | None], None],
) -> None:
    stop = _stop_event()
    with warnings.catch_warnings(), dask.config.set(ONE_AT_A_TIME | ({} if dashboard else WITHOUT_PAGES)):
        warnings.filterwarnings("ignore", message="Port 8787 is already in use")
        try:
            scheduler = Scheduler(
                host=host,
                port=port,
                protocol="tcp://" if security is None else "tls://",
                security=security,
                scheduler_file=None if scheduler_file is None else str(scheduler_file),
                dashboard=dashboard,
                dashboard_address="127.0.0.1:8787" if dashboard else "127.0.0.1:0",
                allowed_failures=MAX_TRIES - 1,
            )
            await scheduler
        except (OSError, RuntimeError, ValueError) as error:
            raise _cannot_listen(error, host, port) from error
    try:
        page = f"http://127.0.0.1:{scheduler.services['dashboard'].port}/status" if dashboard else None
        announce(scheduler.address, page)
        await stop.wait()
    finally:
        await scheduler.close(reason="stopped")
        if scheduler_file is not None:
            scheduler_file.unlink(missing_ok=True)


def _cannot_listen(error: Exception, host: str, port: int) -> UsageError | WorkFailed:
    if any(isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE for cause in causes(error)):
        return WorkFailed(f"--port must be free, got {port}, in use. Use --port 0 for any free one.")
    return UsageError(f"--host must be an address of this machine, got {host!r}: {last_words(error)}.")


def _many_connections() -> None:
    """Lets this process hold as many connections as the system permits: several per worker."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def serve_workers(
    scheduler: str,
    *,
    workers: int | None = None,
    host: str | None = None,
    tls: Path | None = None,
    insecure: bool = False,
    memory_limit: str = "0",
    patience_s: float = 60.0,
    report: Callable[[str], None],
) -> None:
    """Runs worker processes until SIGINT or SIGTERM, or until there has been no scheduler for `patience_s`.

    Each is watched by a Nanny, which starts it anew if it dies. `report` gets a sentence when they join and leave.
    """
    num_workers = workers_here(workers, field="--workers")
    with ScratchFolder("workers") as folder:
        settings = WorkerSettings(
            scheduler=scheduler,
            host=host,
            tls=tls,
            insecure=insecure,
            memory_limit=_bytes(memory_limit),
            patience_s=patience_s,
            folder=folder,
        )
        settings.security()  # its files are there
        if "://" in scheduler:
            settings.check(scheduler)
        elif not Path(scheduler).exists() and not scheduler.endswith(".json"):
            raise UsageError(
                f"The scheduler must be an address like tls://host:8786 or a scheduler file, got {scheduler!r}."
            )
        quiet()
        os.environ.update(worker_environment(), DASK_LOGGING__DISTRIBUTED="critical")
        try:
            with _children_deaf_to_ctrl_c():
                asyncio.run(_workers(Crew(settings, num_workers, report)))
        finally:
            for child in multiprocessing.active_children():
                child.kill()
                child.join()


async def _workers(crew: Crew) -> None:
    await crew.work(_stop_event())


@contextlib.contextmanager
def _children_deaf_to_ctrl_c() -> Iterator[None]:
    """Keeps Ctrl-C from workers: a terminal sends it to them as well, but only this process shall act on it.

    Processes inherit the signals that the thread which starts them blocks. One idle thread stays open to them.
    """
    resource_tracker.ensure_running()  # it would open the mask again
    done = threading.Event()
    threading.Thread(target=done.wait, daemon=True).start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        done.set()


def _stop_event() -> asyncio.Event:
    """Returns an event that is set by Ctrl-C, by SIGTERM, and when the terminal closes, unless under `nohup`."""
    stop = asyncio.Event()
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *([] if nohup else [signal.SIGHUP])):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _bytes(text: str) -> int:
    try:
        return int(parse_bytes(text))
    except ValueError as error:
        raise UsageError(f"--memory-limit must be a size like 2GB, or 0 for none, got {text!r}.") from error
