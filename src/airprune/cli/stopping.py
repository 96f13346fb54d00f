"""What a signal does to a command that works for hours."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM, which batch systems send, stops as Ctrl-C does: what is done is kept and noted.

    One is enough: those that follow do not interrupt that. Elsewhere than in the main thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
