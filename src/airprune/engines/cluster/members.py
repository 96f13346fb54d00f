"""Admits workers of the cluster: those with our code and our files that give signs of life.

Others are named once. A worker with other code, or that cannot keep the files, is excluded; one that hangs is dropped,
so that its work is done elsewhere, and may come back.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from distributed import Client
from distributed.scheduler import heartbeat_interval

from airprune.engines.cluster import tasks
from airprune.engines.cluster.parcel import Parcel, parts_of, size_of
from airprune.engines.cluster.versions import versions

_log = logging.getLogger("airprune")
_LOOK_S = 1.0
_FORGET_S = 2.0
_SCHEDULER_S = 10.0  # for an answer of the scheduler, if workers have less
# Workers send heartbeats at an interval that grows with their number: so many of them may be missing.
_HEARTBEATS = 4
# Of the time between two looks so much counts at most: no worker is blamed while driver or scheduler stood still.
_LONGEST_GAP_S = 2.0


class Members:
    """Follows which workers join, leave and hang.

    Args:
      silence_s: how long a worker may give no sign of life, and the scheduler no answer.
      end: what more to do about a worker that hangs, by its name.

    Attributes:
      accepted: addresses of the workers that may take part.
      refused: why others may not.
      hung: what was logged about dropped workers, until one is accepted.
    """

    def __init__(
        self, client: Client, parcel: Parcel, *, silence_s: float, end: Callable[[str], None] | None = None
    ) -> None:
        self.client = client
        self.parcel = parcel
        self.source = parcel.folder
        self.wanted = versions()
        self.silence_s = silence_s
        self.accepted: set[str] = set()
        self.refused: dict[str, str] = {}
        self.hung: dict[str, str] = {}
        self._end = end
        self._silence = Silence()

    def refresh(self) -> None:
        """Greets newcomers, gives them the files they lack, forgets those that left or hang."""
        present = self._watch()
        newcomers = sorted(present - self.accepted - set(self.refused))
        answers = self._ask(newcomers)
        while lacking := sorted(address for address, answer in answers.items() if _lacks_files(answer)):
            receivers = sorted({urlsplit(address).hostname: address for address in lacking}.values())
            answers |= self._place(receivers)
            answers |= self._ask([address for address in lacking if _lacks_files(answers[address])])
            answers |= {address: _NotKept() for address in receivers if _lacks_files(answers[address])}
        for address, answer in answers.items():
            if answer is None:
                self.accepted.add(address)
                self.hung.clear()
            elif not isinstance(answer, OSError):  # which it would be if it has just died or was dropped
                self.refuse(address, _reason_in(answer))

    def refuse(self, address: str, why: str) -> None:
        """Excludes a worker from now on, and logs that once."""
        self.accepted.discard(address)
        if address not in self.refused:
            self.refused[address] = why
            _log.warning("Worker %s is excluded: it %s.", address, why)

    @property
    def restriction(self) -> list[str] | None:
        """Addresses where tasks may go; None, so that newcomers are used at once, unless a worker is excluded."""
        return sorted(self.accepted) if self.refused else None

    @property
    def reasons(self) -> str:
        """Reasons why present workers do not take part."""
        return "; ".join(f"{address} {why}" for address, why in sorted({**self.hung, **self.refused}.items()))

    def forget(self) -> None:
        """Frees what the run has left on the workers; one that does not answer is not waited for."""
        if self.accepted:
            call = self._run(tasks.forget, self.parcel, workers=sorted(self.accepted), on_error="ignore")
            concurrent.futures.wait([call], timeout=_FORGET_S)

    def _watch(self) -> set[str]:
        """Returns the workers present; one that hangs is named and dropped. A `TimeoutError` if the scheduler hangs."""
        scheduler: Any = self.client.scheduler
        workers: dict[str, Any] = self._from_scheduler(scheduler.identity(n_workers=-1))["workers"]
        limit_s = max(self.silence_s, _HEARTBEATS * heartbeat_interval(len(workers)))
        last_seen = {address: worker["last_seen"] for address, worker in workers.items()}
        silent = self._silence.observe(last_seen, time.monotonic(), limit_s=limit_s)
        present = set(workers).difference(silent)
        self.accepted &= present
        self.refused = {address: why for address, why in self.refused.items() if address in present}
        for address in silent:
            self._drop(address, str(workers[address]["name"]), f"has given no sign of life for {limit_s:g} s")
        return present

    def _drop(self, address: str, name: str, why: str) -> None:
        self.hung[address] = why
        _log.warning("Worker %s %s; its work is done elsewhere, and it may come back.", address, why)
        if self._end is not None:
            self._end(name)
        self._from_scheduler(self.client.run_on_scheduler(tasks.expel, address, asynchronous=True))

    def _ask(self, addresses: Sequence[str]) -> dict[str, Any]:
        return self._answers(tasks.greet, self.wanted, self.parcel, workers=addresses)

    def _place(self, receivers: Sequence[str]) -> dict[str, Any]:
        """Sends the files to these, which are on different machines; what those say that cannot keep them."""
        failed: dict[str, Any] = {}

        def send(step: Any, *arguments: Any) -> bool:
            """Sends to all receivers that have not failed; True if any is left."""
            left = [address for address in receivers if address not in failed]
            answers = self._answers(tasks.keep, step, self.parcel, *arguments, workers=left)
            failed.update((address, answer) for address, answer in answers.items() if answer is not None)
            return len(failed) < len(receivers)

        if send(Parcel.make_room, size_of(self.source)):
            for name, offset, piece in parts_of(self.source):
                if not send(Parcel.receive, name, offset, piece):
                    break
            else:
                send(Parcel.complete)
        return failed

    def _answers(self, function: Any, *arguments: Any, workers: Sequence[str]) -> dict[str, Any]:
        """Returns each worker's answer; an `OSError` for one that dies or hangs meanwhile."""
        if not workers:
            return {}
        answer_of = self._run(function, *arguments, workers=list(workers), on_error="return")
        while not answer_of.done():
            concurrent.futures.wait([answer_of], timeout=_LOOK_S)
            if not answer_of.done():
                self._watch()  # a worker that hangs is dropped, and then Dask says so
        answers: dict[str, Any] = answer_of.result()
        return answers

    def _from_scheduler(self, call: Awaitable[Any]) -> Any:
        """Returns the scheduler's answer; a `TimeoutError` if it hangs."""
        return self._start(call).result(timeout=max(self.silence_s, _SCHEDULER_S))

    def _run(self, function: Any, *arguments: Any, **options: Any) -> concurrent.futures.Future[Any]:
        return self._start(self.client.run(function, *arguments, **options, asynchronous=True))

    def _start(self, call: Awaitable[Any]) -> concurrent.futures.Future[Any]:
        """Starts a call in the client's own thread, so that this one can look around meanwhile."""

        async def awaited() -> Any:
            return await call

        loop: Any = self.client.loop
        return asyncio.run_coroutine_threadsafe(awaited(), loop.asyncio_loop)


class Silence:
    """Adds up the time in which a worker was looked at and nothing new had been heard of it."""

    def __init__(self) -> None:
        self._last_seen: dict[str, float] = {}
        self._silent_s: dict[str, float] = {}
        self._looked: float | None = None

    def observe(self, last_seen: Mapping[str, float], now_s: float, *, limit_s: float) -> list[str]:
        """Returns the workers that have been silent for longer than the limit.

        Args:
          last_seen: of every worker that is there, the time of its last heartbeat by whatever clock.
          now_s: by the driver's clock.
        """
        gap_s = 0.0 if self._looked is None else min(now_s - self._looked, _LONGEST_GAP_S)
        self._looked = now_s
        self._silent_s = {
            address: self._silent_s[address] + gap_s if self._last_seen.get(address) == seen else 0.0
            for address, seen in last_seen.items()
        }
        self._last_seen = dict(last_seen)
        return sorted(address for address, silent_s in self._silent_s.items() if silent_s > limit_s)


class _NotKept(Exception):
    def __str__(self) -> str:
        return "the run's files were sent without success"


def _lacks_files(answer: Any) -> bool:
    return isinstance(answer, tasks.Refusal) and answer.missing


def _reason_in(answer: Any) -> str:
    """Returns why a worker that gave this answer is excluded."""
    if isinstance(answer, tasks.Refusal):
        return answer.sentence
    if isinstance(answer, ImportError):
        return f"has no airprune ({answer})"
    return f"does not answer as it should ({type(answer).__name__}: {answer})"
