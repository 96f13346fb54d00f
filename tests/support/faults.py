"""Faults as machines have them, for tests: disks that fill up, limits that are reached, files torn and edited, Ctrl-C.

small_disk     a tmpfs of so many bytes, where mounting is allowed; more room later
limited        a limit of this process (descriptors, size of a file), set back afterwards
torn           every beginning of a file
edited         a file with a byte changed, lost or added, at every place
interrupted    Ctrl-C at the n-th call of a function of airprune
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = f"{os.sep}src{os.sep}airprune{os.sep}"


@dataclass(frozen=True)
class SmallDisk:
    path: Path

    def resize(self, num_bytes: int) -> None:
        _mount("-o", f"remount,size={num_bytes}", self.path)


@contextlib.contextmanager
def small_disk(path: Path, num_bytes: int) -> Iterator[SmallDisk]:
    """A file system of its own at `path`, full after so many bytes, rounded up to pages."""
    path.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={num_bytes}", "airprune-test", path)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


@functools.cache
def can_mount() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder) / "disk", 4096):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


@contextlib.contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    """`limited(resource.RLIMIT_NOFILE, 20)` of this process."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def limit_for(spare: int) -> int:
    """The limit of open files with which this process can open so many more: a limit goes by their numbers."""
    used = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
    used = {number for number in used if Path(f"/proc/self/fd/{number}").exists()}  # not that of the folder just read
    limit = 0
    while limit in used or spare:
        spare -= limit not in used
        limit += 1
    return limit


def torn(content: bytes, sizes: Iterable[int] | None = None) -> Iterator[bytes]:
    """What a write cut short, or a lost end, leaves: every beginning but the whole, or those of these sizes."""
    return (content[:size] for size in (range(len(content)) if sizes is None else sizes))


def edited(content: bytes, places: Iterable[int] | None = None) -> Iterator[bytes]:
    """Another file each: a byte changed in three ways, lost, or doubled, at every place or at these."""
    for place in range(len(content)) if places is None else places:
        before, here, after = content[:place], content[place : place + 1], content[place + 1 :]
        for other in (bytes([here[0] ^ 1]), bytes([here[0] ^ 128]), b"\0", b"", here + here):
            if (spoilt := before + other + after) != content:
                yield spoilt


def places_in(content: bytes, *, every: int) -> list[int]:
    """Where lines and fields begin and end, and every n-th byte between."""
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    near = {place + step for place in (0, *ends, len(content) - 1) for step in (-2, -1, 0, 1, 2)}
    return sorted({place for place in near if 0 <= place < len(content)} | set(range(0, len(content), every)))


@contextlib.contextmanager
def interrupted(at_call: int) -> Iterator[list[int]]:
    """Ctrl-C when a function of airprune is called for the n-th time; yields the number of calls so far, as a list."""
    calls = [0]

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and PACKAGE in frame.f_code.co_filename:
            calls[0] += 1
            if calls[0] == at_call:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(watch)
    try:
        yield calls
    finally:
        sys.setprofile(None)
