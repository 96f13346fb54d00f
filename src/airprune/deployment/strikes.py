"""Counts how often members broke the rules of a run: after three times they are set aside until it has ended."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Container

from airprune.text import plain

_log = logging.getLogger("airprune")
MOST_STRIKES = 3
# Between two logs of the same sentence, and how many sentences are remembered for that.
_REPEAT_S, _REMEMBERED = 60.0, 512
# Different sentences about one member that are logged within that time, and characters of one.
_MOST_DIFFERENT, _LONGEST = 20, 1_000
FORGET_S = 60.0
# What a member may ask for or tell beside its work, within a minute: models, certificates.
MOST_REQUESTS = 30


class Strikes:
    """The members of a run that broke its rules, by name.

    Attributes:
      aside: why members were set aside.
    """

    def __init__(self) -> None:
        self.aside: dict[str, str] = {}
        self._count: Counter[str] = Counter()

    def add(self, name: str, reason: str) -> bool:
        """Counts one; returns whether the member is set aside with it."""
        if name in self.aside:
            return False
        self._count[name] += 1
        if self._count[name] < MOST_STRIKES:
            return False
        self.set_aside(name, reason)
        return True

    def set_aside(self, name: str, reason: str) -> None:
        """Sets a member aside."""
        self.aside[name] = reason
        _log.warning("%s is set aside for this run: %s", name, plain(reason))

    def sentence(self, name: str) -> str:
        """Returns what a member that was set aside is sent."""
        return f"{name} is set aside until the run has ended: {self.aside[name]}"

    def clear(self) -> None:
        """Starts another run."""
        self.aside.clear()
        self._count.clear()


class Impostors:
    """Forgets, when none has tried for a minute, that other processes tried to be members that are connected.

    Args:
      troubles: why members are missing, by name.
      online: names of the members that are connected.
      changed: called when something was forgotten.
    """

    def __init__(self, troubles: dict[str, str], online: Container[str], changed: Callable[[], None]) -> None:
        self._troubles, self._online, self._changed = troubles, online, changed
        self._last_s: dict[str, float] = {}

    def note(self, name: str) -> None:
        """Notes a try, in a running event loop."""
        self._last_s[name] = time.monotonic()
        asyncio.get_running_loop().call_later(FORGET_S, self._forget, name)

    def _forget(self, name: str) -> None:
        if time.monotonic() - self._last_s.get(name, math.inf) < 0.95 * FORGET_S:  # there was another try
            return
        self._last_s.pop(name, None)
        if name in self._online:
            self._troubles.pop(name, None)
            self._changed()


class PerMinute:
    """Counts, for each of some names, what happens within a minute."""

    def __init__(self) -> None:
        self._since: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def add(self, name: str) -> int:
        """Returns how often it has happened within the minute, this time included."""
        now_s = time.monotonic()
        since_s, count = self._since.pop(name, (now_s, 0))
        if now_s - since_s >= _REPEAT_S:
            since_s, count = now_s, 0
        self._since[name] = since_s, count + 1
        while len(self._since) > _REMEMBERED:
            self._since.popitem(last=False)
        return count + 1


class OncePerMinute:
    """Logs what members cause: the same sentence once a minute, and few others, so that no member fills a log."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._different = PerMinute()

    def info(self, form: str, *words: str, of: str) -> None:
        """Logs the sentence with these words of others.

        Args:
          of: the member that causes it.
        """
        sentence = plain(form % tuple(plain(one) for one in words), _LONGEST)
        now_s = time.monotonic()
        last_s, num_more = self._last.pop(sentence, (-_REPEAT_S, 0))
        if now_s - last_s < _REPEAT_S:
            self._last[sentence] = last_s, num_more + 1
            return
        if (count := self._different.add(of)) > _MOST_DIFFERENT:
            if count == _MOST_DIFFERENT + 1:
                _log.info("What else %s causes to be logged is left out for a minute.", plain(of))
            return
        self._last[sentence] = now_s, 0
        while len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)
        _log.info("%s%s", sentence, f" ({num_more:,} times more in the minute before)" if num_more else "")
