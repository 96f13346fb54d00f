"""Divides a promise of on-time updates between stragglers and the channel.

With probability p a device is a straggler and computes S times as long (`events`). Its update is on time with

    P(T_n <= T_th) = (1 - p) P(link suffices after a_n w) + p P(link suffices after S a_n w)

`plan.on_time` = P is kept in one of two ways. Where stragglers are rarer than 1 - P, plans count on the usual compute
time and on a link that suffices with probability P / (1 - p): stragglers may miss. Else plans leave time for a
straggler, and count on a link that suffices with probability P.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airprune.scenario.sections import EventsSection


@dataclass(frozen=True, kw_only=True)
class Reserve:
    """Holds what plans count on.

    Attributes:
      slowdown: factor of compute time.
      link: probability with which a link suffices; None: its mean gain.
    """

    slowdown: float = 1.0
    link: float | None = None


def reserve_for(on_time: float | None, events: EventsSection, *, knows_fading: bool) -> Reserve:
    """Returns what plans count on to keep a promise; without one, on usual compute times and mean gains."""
    if on_time is None:
        return Reserve()
    usual = 1.0 - events.straggler_probability
    may_miss = usual >= on_time if knows_fading else usual > on_time  # a link that must suffice always would be needed
    if may_miss:
        return Reserve(link=on_time / usual)
    return Reserve(slowdown=events.straggler_slowdown, link=on_time)
