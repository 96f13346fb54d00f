"""Work of no use, to see what engines make of it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airprune.engines.base import Group, Task, WorkerFactory
from airprune.errors import WorkFailed

REGISTERED: list[str] = []


def setup_payload() -> None:
    REGISTERED.append("setup_payload")


class NeedsLuggage:
    """Cannot be unpickled where nothing is registered."""

    def __reduce__(self):
        return _with_luggage, ()


def _with_luggage() -> str:
    return REGISTERED[0]


@dataclass(frozen=True, kw_only=True)
class Toys(WorkerFactory):
    needs: object = None
    folder: Path | None = None
    setup_payload: bytes | None = None

    def open(self, folder: Path | None) -> ToyMaker:
        return ToyMaker(self.needs, folder)


class ToyMaker:
    def __init__(self, needs: object, folder: Path | None) -> None:
        self.needs, self.folder = needs, folder

    def scaled(self, factor: float, number: float) -> float:
        return factor * number

    def total(self, factor: float, numbers: Numbers) -> list[float]:
        """A list, which `merge` may use up."""
        if set(numbers.values) & set(numbers.deadly):
            os.kill(os.getpid(), signal.SIGKILL)
        return [factor * sum(numbers.values)]

    def total_of(self, factor: float, task: Freezing) -> list[Any]:
        """The last one waits until every worker has done some, then stops the workers beside its own, once.

        Its part is large, so that the parts are merged where it is, and the others fetched.
        """
        time.sleep(0.2)
        (task.flag.parent / f"worker-{os.getpid()}").touch()
        if task.is_last and task.flag.exists():
            while len(list(task.flag.parent.glob("worker-*"))) < len(task.pids):
                time.sleep(0.1)
            time.sleep(1.0)
            task.flag.unlink()
            for pid in set(task.pids) - {os.getpid()}:
                os.kill(pid, signal.SIGSTOP)
        return [factor * sum(task.values), bytes(10**7 if task.is_last else 1)]

    def first_finds_no_space(self, flag: Path, task: object) -> object:
        """The first worker that sees the flag takes it away and has a full disk."""
        with contextlib.suppress(FileNotFoundError):
            flag.unlink()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/file")
        return task

    def what_was_there(self, shared: None, task: None) -> tuple[object, list[str]]:
        files = [] if self.folder is None else sorted(path.name for path in self.folder.iterdir())
        return self.needs, files


@dataclass(frozen=True)
class Numbers(Task):
    """To be added; `log` notes in the driver when they are handed out."""

    values: tuple[float, ...]
    deadly: tuple[float, ...] = ()
    log: list[float] | None = field(default=None, compare=False)

    def loaded(self) -> Numbers:
        if self.log is not None:
            self.log.append(self.values[0])
        return Numbers(self.values, self.deadly)

    def parts(self) -> list[Numbers]:
        return [Numbers((value,), self.deadly) for value in self.values]

    def without(self, parts: Sequence[Numbers]) -> Numbers:
        gone = {value for part in parts for value in part.values}
        return Numbers(tuple(value for value in self.values if value not in gone), self.deadly)


@dataclass(frozen=True)
class Freezing(Task):
    """To be added, by workers with these process ids."""

    values: tuple[float, ...]
    flag: Path
    pids: tuple[int, ...]
    is_last: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Sum(Group):
    """Adds up; `shared` is added once more at the end."""

    method: str = "total"
    may_lose: bool = True
    arrivals: list[tuple[float, ...]] = field(default_factory=list)

    def arrived(self, task: Numbers, part: list[float]) -> list[float]:
        self.arrivals.append(task.values)
        return part

    @staticmethod
    def merge(parts: Iterable[list[float]]) -> list[float]:
        parts = iter(parts)
        first = next(parts)
        for part in parts:
            first[0] += part[0]
        return first

    def finish(self, part: list[float]) -> float:
        return part[0] + self.shared

    def lost(self, parts: Sequence[Numbers], how: str) -> list[float] | None:
        if not self.may_lose:
            raise WorkFailed(f"no use without them, {how}")
        return [1000.0 * len(parts)] if parts else None
