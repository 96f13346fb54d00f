"""The workers of one machine: processes that are started anew when they die, and that wait for a lost scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import dask
from distributed import Nanny
from distributed.core import Status, rpc
from distributed.security import Security
from tornado.iostream import StreamClosedError

from airprune.engines.cluster.certificates import security_of
from airprune.engines.cluster.local import WITHOUT_PAGES
from airprune.engines.machine import causes
from airprune.errors import UsageError, WorkFailed

_GRACE_S = 2.0
_KNOCK_S = 3.0  # for one try to reach the scheduler
_PAUSE_S = 0.5
_START_S = 60.0  # for a worker process to start and join
_STUCK_S = 15.0
_HANG_UPS = (ConnectionResetError, ssl.SSLEOFError, StreamClosedError)


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Settings that all workers of the machine share.

    Attributes:
      scheduler: its address, or a scheduler file that names it.
      patience_s: how long to go on without a scheduler.
    """

    scheduler: str
    host: str | None
    tls: Path | None
    insecure: bool
    memory_limit: int
    patience_s: float
    folder: str

    def security(self, scheduler: str | None = None) -> Security | None:
        """Returns the TLS settings for workers of the scheduler at this address."""
        return None if self.tls is None else security_of(self.tls, "worker", scheduler=scheduler)

    def address(self) -> str:
        """Returns the scheduler's address, as of now; an `OSError` or `ValueError` while there is no such file."""
        if "://" in self.scheduler:
            address = self.scheduler
        else:
            address = str(json.loads(Path(self.scheduler).read_text())["address"])
        self.check(address)
        return address

    def check(self, address: str) -> None:
        if not _has_port(address):
            raise UsageError(f"The scheduler must be an address like tls://host:8786, got {address!r}.")
        if address.startswith("tls://"):
            if self.tls is None:
                raise UsageError(f"The scheduler at {address} wants certificates: give --tls FOLDER.")
        elif self.tls is not None:
            raise UsageError(f"--tls goes with an address like tls://host:8786, got {address}, which is not encrypted.")
        elif not self.insecure and not is_loopback(urlsplit(address).hostname or ""):
            raise UsageError(
                f"A worker of {address}, without TLS, lets any process that reaches it run code on this machine: "
                "use a tls:// address and --tls FOLDER, or --insecure to insist."
            )


class _SchedulerLost(Exception):
    pass


class Crew:
    """The workers of this machine, each in its place."""

    def __init__(self, settings: WorkerSettings, size: int, report: Callable[[str], None]) -> None:
        self.settings = settings
        self.size = size
        self.report = report
        self.present = 0
        self.waiting = False

    async def work(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, or until there has been no scheduler for too long."""
        watch = asyncio.create_task(stop.wait())
        places = [asyncio.create_task(self._place()) for _ in range(self.size)]
        await asyncio.wait([watch, *places], return_when=asyncio.FIRST_COMPLETED)
        for task in (watch, *places):
            task.cancel()
        ends = await asyncio.gather(watch, *places, return_exceptions=True)
        troubles = [end for end in ends if isinstance(end, Exception)]
        if stop.is_set():
            return
        if isinstance(troubles[0], _SchedulerLost):
            self.report(f"There has been no scheduler for {self.settings.patience_s:g} s; the workers leave.")
            return
        raise troubles[0]

    async def _place(self) -> None:
        """Runs one worker after the other; the next begins when a scheduler answers again."""
        joined, last_seen = False, time.monotonic()
        while True:
            address = await self._reach(last_seen, joined)
            nanny = self._nanny(address)
            try:
                await nanny
                joined = True
                await self._stay(nanny, address)
                last_seen = time.monotonic()
            except (OSError, TimeoutError, RuntimeError, ValueError) as error:
                if time.monotonic() - last_seen > self.settings.patience_s:
                    raise WorkFailed(f"A worker could not join {address}: {last_words(error)}.") from error
                await asyncio.sleep(_PAUSE_S)
            finally:
                await _close(nanny)

    async def _stay(self, nanny: Nanny, address: str) -> None:
        """Waits until the nanny has left, or cannot replace its worker, having given up or no scheduler to join."""
        self._count(+1)
        working = time.monotonic()
        finished = asyncio.ensure_future(nanny.finished())
        try:
            while not (await asyncio.wait([finished], timeout=_PAUSE_S))[0]:
                status = None if nanny.process is None else nanny.process.status
                if status == Status.running:
                    working = time.monotonic()
                    continue
                given_up = status != Status.starting and time.monotonic() - working > _STUCK_S
                if given_up or not await _answers(address, self.settings.security(address)):
                    return
        finally:
            finished.cancel()
            self._count(-1)

    def _nanny(self, address: str) -> Nanny:
        with dask.config.set({"distributed.nanny.pre-spawn-environ": {}, **WITHOUT_PAGES}):
            return Nanny(
                address,
                nthreads=1,
                host=self.settings.host or _address_towards(address),
                security=self.settings.security(address),
                local_directory=self.settings.folder,
                memory_limit=self.settings.memory_limit,
                death_timeout=max(_START_S, self.settings.patience_s),
                preload=["airprune.engines.cluster.tasks"],
                dashboard=False,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )

    async def _reach(self, last_seen: float, joined: bool) -> str:
        """Returns the address of a scheduler that answers."""
        while True:
            try:
                address = self.settings.address()
                await _knock(address, self.settings.security(address))
                return address
            except (OSError, TimeoutError, ValueError, KeyError) as error:
                trouble = _refusal(error, self.settings)
                if trouble is not None:
                    raise trouble from error
                if time.monotonic() - last_seen > self.settings.patience_s:
                    if joined:
                        raise _SchedulerLost from error
                    raise self._unanswered(error) from error
                self._say_waiting(error)
            await asyncio.sleep(_PAUSE_S)

    def _unanswered(self, error: Exception) -> WorkFailed:
        hint = ""
        if any(isinstance(cause, _HANG_UPS) for cause in causes(error)):
            hint = " If it speaks TLS, use its tls:// address and --tls FOLDER."
            if self.settings.tls is not None:
                hint = f" Is {self.settings.tls}/worker.pem signed by its authority?"
        return WorkFailed(f"No scheduler answers at {self.settings.scheduler} ({last_words(error)}).{hint}")

    def _say_waiting(self, error: Exception) -> None:
        if not self.waiting:
            self.waiting = True
            self.report(
                f"Waiting up to {self.settings.patience_s:g} s for the scheduler at {self.settings.scheduler} "
                f"({last_words(error)})."
            )

    def _count(self, change: int) -> None:
        self.present += change
        if change > 0 and self.present == self.size:
            self.waiting = False
            self.report(f"{self.size} worker{'s have' if self.size > 1 else ' has'} joined {self.settings.scheduler}.")


async def _knock(address: str, security: Security | None) -> None:
    """Raises unless a scheduler answers that accepts our certificate and whose certificate we accept."""
    arguments = {} if security is None else security.get_connection_args("worker")
    async with rpc(address, connection_args=arguments, timeout=_KNOCK_S) as scheduler:
        await asyncio.wait_for(scheduler.identity(n_workers=0), _KNOCK_S)


async def _answers(address: str, security: Security | None) -> bool:
    try:
        await _knock(address, security)
    except (OSError, TimeoutError):
        return False
    return True


def _refusal(error: Exception, settings: WorkerSettings) -> WorkFailed | None:
    """Returns what is wrong with the certificates, if that is why the scheduler is unreachable: waiting is no use."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return WorkFailed(
                f"The scheduler's certificate is refused ({cause.verify_message}); "
                f"it must be a scheduler's, valid and signed by the authority in {settings.tls}/ca.pem."
            )
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return WorkFailed(f"The scheduler at {settings.scheduler} does not speak TLS.")
        if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
            return WorkFailed(
                f"The scheduler refuses the certificate in {settings.tls}/worker.pem "
                f"({cause.reason.lower().replace('_', ' ')}); it must be valid and signed by the scheduler's authority."
            )
    return None


async def _close(nanny: Nanny) -> None:
    """Closes a nanny in whatever state it is; what may be left of it is killed at the end."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2 * _GRACE_S):
            nanny.close_gracefully()  # or it would replace a worker that dies now
            process = nanny.process
            if process is not None and process.status == Status.starting and process.process is not None:
                await process.process.kill()  # it would be waited for
            await nanny.close(timeout=_GRACE_S)


def _address_towards(scheduler: str) -> str:
    """This machine's address on the way to the scheduler; Dask's own choice would be all of them."""
    place = urlsplit(scheduler)
    family, kind, protocol, _, target = socket.getaddrinfo(place.hostname, place.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # sends nothing
        return str(probe.getsockname()[0])


def is_loopback(host: str) -> bool:
    """True if only this machine reaches this name or address."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(place[4][0]).split("%")[0]).is_loopback for place in found)


def _has_port(address: str) -> bool:
    try:
        return urlsplit(address).port is not None
    except ValueError:
        return False


def last_words(error: BaseException) -> str:
    """Returns the innermost cause, in one line."""
    *_, cause = causes(error)
    words = str(getattr(cause, "strerror", None) or cause) or type(cause).__name__
    return words.splitlines()[0][:200]
