"""Which workers give no sign of life. Pure: what the scheduler has last heard of them goes in, with the time of day."""

from __future__ import annotations

from collections.abc import Mapping

# Of the time between two looks so much counts at most: nobody is blamed while the driver or the scheduler stood still.
_LONGEST_GAP_S = 2.0


class Silence:
    """Adds up the time in which a worker was looked at and nothing new had been heard of it."""

    def __init__(self) -> None:
        self._last_seen: dict[str, float] = {}
        self._silent_s: dict[str, float] = {}
        self._looked: float | None = None

    def observe(self, last_seen: Mapping[str, float], now_s: float, *, limit_s: float) -> list[str]:
        """The workers that have been silent for longer than the limit.

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
