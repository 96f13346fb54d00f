"""Signals: a command stops in good order at Ctrl-C and SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

TYPE_CHECKING = False  # without typing, which takes time: until this is imported, Ctrl-C shows a traceback
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

STOPPED = 130  # the exit status of a command that was interrupted


def leave_at_ctrl_c() -> None:
    """Lets Ctrl-C end this process at once, save within `interruptible`: while it imports modules, and when it is done.

    As an exception it would show a traceback there, or get lost in a module that turns it into another. Where Ctrl-C is
    ignored, as in the background of a shell script, it stays so.
    """
    if _is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, b"stopped.\n")
    os._exit(STOPPED)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Makes Ctrl-C a KeyboardInterrupt meanwhile, as is usual in Python, so that work under way ends in good order."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)


@contextlib.contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """Makes SIGTERM, which batch systems send, stop as Ctrl-C does: what is done is kept and noted.

    One is enough: those that follow do not interrupt that. Elsewhere than in the main thread, and within another one,
    nothing is changed.
    """
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) is _stop:
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
