"""Server-sent events: what is new about the list of runs, the chosen runs and the run at work.

    event: runs   {rows that changed, names that are gone, and the rest of the list}
    event: curve  {name, rows from place `row_from` on, edge rounds from place `edge_from` on}
    event: work   the run that this server has started

A curve is sent as a splice: what stands from a place on is replaced. Appended records, the cut of a resumed run and
thinning are all the same to the page. A line that starts with a colon every few seconds keeps the connection awake.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from airprune.web.answers import json_text
from airprune.web.runs.listing import listing
from airprune.web.runs.views import curve

TICK_S = 0.2
LIST_EVERY_S = 1.0
HEARTBEAT_S = 10.0


class SentEvents:
    """Remembers the events that one page has received, so that it is sent the rest."""

    def __init__(self, root: Path, names: Sequence[str], work: Callable[[], dict[str, Any]]) -> None:
        self.root = root
        self.names = names
        self._work = work
        self._rows: dict[str, Any] = {}
        self._about: dict[str, Any] = {}
        self._curves: dict[str, dict[str, Any]] = {}
        self._last_work: dict[str, Any] | None = None
        self._listed_at = 0.0

    def collect(self) -> list[str]:
        """Events since the last time; reads files, so it is called on a thread."""
        events = [event for name in self.names if (event := self._curve_event(name))]
        if (work := self._work()) != self._last_work:
            self._last_work = work
            events.append(_event("work", work))
        if time.monotonic() - self._listed_at >= LIST_EVERY_S or events:
            self._listed_at = time.monotonic()
            events += self._list_events()
        return events

    def _curve_event(self, name: str) -> str | None:
        now, before = curve(self.root, name), self._curves.get(name)
        if now == before:
            return None
        self._curves[name] = now
        if "gone" in now:
            return _event("curve", now)
        row_from = _num_equal(before["rows"], now["rows"]) if before and "rows" in before else 0
        edge_from = _num_equal(before["edges"], now["edges"]) if before and "edges" in before else 0
        told = {
            **now,
            "row_from": row_from,
            "rows": now["rows"][row_from:],
            "edge_from": edge_from,
            "edges": now["edges"][edge_from:],
        }
        return _event("curve", told)

    def _list_events(self) -> list[str]:
        latest = listing(self.root).latest()
        rows = {row["name"]: row for row in latest["runs"]}
        about = {key: value for key, value in latest.items() if key != "runs"}
        changed = [row for name, row in rows.items() if self._rows.get(name) != row]
        gone = [name for name in self._rows if name not in rows]
        if not (changed or gone or about != self._about):
            return []
        self._rows, self._about = rows, about
        return [_event("runs", {**about, "changed": changed, "gone": gone})]


def _num_equal(before: Sequence[Any], now: Sequence[Any]) -> int:
    """Number of items at the front that are the same."""
    pairs = zip(before, now, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json_text(data)}\n\n"  # JSON in ASCII has no line break


async def stream(news: SentEvents, is_stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Events until the client leaves, which cancels this, or the server stops."""
    yield "retry: 1000\n\n"
    quiet_since = time.monotonic()
    while not is_stopping():
        events = await run_in_threadpool(news.collect)
        if not events and time.monotonic() - quiet_since > HEARTBEAT_S:
            events = [": still here\n\n"]
        if events:
            quiet_since = time.monotonic()
            yield "".join(events)
        await asyncio.sleep(TICK_S)
