"""What a process holds, and whether that grows: the rule by which a soak is judged."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a process holds while nobody asks anything of it.

    Attributes:
      at_s: since the start of the soak.
      memory_bytes: its proportional set size (PSS): pages that it shares count by their share.
      processes: itself and all that it has started, ended ones that were not collected included.
    """

    at_s: float
    memory_bytes: int
    descriptors: int
    threads: int
    processes: int


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much more of a thing is no growth: `fixed`, or `share` of the first reading if that is more."""

    fixed: float
    share: float = 0.0

    def of(self, first: float) -> float:
        return max(self.fixed, self.share * first)


# An allocator returns pages when it likes; threads of a pool come and go; descriptors and processes do not.
LIMITS = {
    "memory_bytes": Limit(fixed=6 * MIB, share=0.03),
    "descriptors": Limit(fixed=1.0),
    "threads": Limit(fixed=4.0),
    "processes": Limit(fixed=0.0),
}
# Over less time caches still fill, and an allocator's habits are all that is seen.
JUDGED_MEMORY_S = 300.0


def reading(pid: int, *, at_s: float, num_links: int = 0) -> Reading:
    """Returns what a process holds now.

    Args:
      num_links: connections that come and go with others, such as an edge's devices; their descriptors do not count.
    """
    return Reading(
        at_s=at_s,
        memory_bytes=memory_bytes(pid),
        descriptors=_entries(f"/proc/{pid}/fd") - num_links,
        threads=_entries(f"/proc/{pid}/task"),
        processes=1 + len(psutil.Process(pid).children(recursive=True)),
    )


def _entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def memory_bytes(pid: int) -> int:
    """PSS of what is not of files; where the kernel does not tell, RSS.

    A program's share of its libraries depends on who else has loaded them, so it changes with other programs.
    """
    for name, words in (("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")), ("status", ("VmRSS:",))):
        try:
            lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
        except (FileNotFoundError, PermissionError):
            continue
        if found := [int(line.split()[1]) for line in lines if line.startswith(words)]:
            return 1024 * sum(found)
    raise ProcessLookupError(pid)


def growth(readings: Sequence[Reading], what: str) -> float:
    """The median slope between all pairs of readings (Theil–Sen) times their span: one odd reading changes nothing."""
    points = [(reading.at_s, float(getattr(reading, what))) for reading in readings]
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in itertools.combinations(points, 2) if t > s]
    return statistics.median(slopes) * (points[-1][0] - points[0][0]) if slopes else 0.0


def lasting_growth(readings: Sequence[Reading]) -> float:
    """Memory's growth if it goes on: by the slope of all readings or of their second half, whichever is less.

    A leak has the same slope in both. An allocator's pools, which fill until each thread has met its largest work, have
    none in the second. Both slopes count for the whole span, so a steady leak is found from the same rate on.
    """
    half = readings[len(readings) // 2 :]
    half_span_s = half[-1].at_s - half[0].at_s
    whole = growth(readings, "memory_bytes")
    if half_span_s <= 0.0:
        return whole
    span_s = readings[-1].at_s - readings[0].at_s
    return min(whole, growth(half, "memory_bytes") * span_s / half_span_s)


def findings(who: str, readings: Sequence[Reading]) -> list[str]:
    """What grew beyond its limit from the first of these readings, taken after the warm-up, to the last."""
    span_s = readings[-1].at_s - readings[0].at_s
    found = []
    for what, limit in LIMITS.items():
        if what == "memory_bytes" and span_s < JUDGED_MEMORY_S:
            continue
        first = float(getattr(readings[0], what))
        grown = lasting_growth(readings) if what == "memory_bytes" else growth(readings, what)
        if grown > limit.of(first):
            found.append(f"{who}: {what} grew by {grown:g} in {span_s:.0f} s, allowed {limit.of(first):g}")
    return found


def table(who: str, readings: Sequence[Reading]) -> str:
    """One line: each thing at the first and the last reading, with its growth."""
    first, last = readings[0], readings[-1]
    memory, lasting = growth(readings, "memory_bytes") / MIB, lasting_growth(readings) / MIB
    words = [
        f"memory {first.memory_bytes / MIB:.1f} → {last.memory_bytes / MIB:.1f} MiB "
        f"(growth {memory:+.2f}, lasting {lasting:+.2f})"
    ]
    for what in ("descriptors", "threads", "processes"):
        words.append(f"{what} {getattr(first, what)} → {getattr(last, what)} (growth {growth(readings, what):+.1f})")
    return f"{who:8}{'; '.join(words)}"
