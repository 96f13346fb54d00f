"""A series of any length as a bounded number of points: every second one goes whenever there are too many."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Thinned(Generic[T]):
    """Keeps every `stride`-th item, and always the last one.

    Attributes:
      total: how many there were.
      stride: 1 as long as all are kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.stride = 1
        self._kept: list[T] = []
        self._last: T | None = None

    @property
    def keeps_next(self) -> bool:
        """True if the next item will stay, not only as the last one."""
        return self.total % self.stride == 0

    def append(self, item: T) -> None:
        if self.keeps_next:
            if len(self._kept) == self.limit:
                self._kept = self._kept[::2]
                self.stride *= 2
            if self.keeps_next:
                self._kept.append(item)
        self._last = item
        self.total += 1

    def items(self) -> list[T]:
        if self._last is None or (self.total - 1) % self.stride == 0:
            return list(self._kept)
        return [*self._kept, self._last]
