"""Gives memory back to the system after a run: a node that stays would keep what its largest run has used."""

from __future__ import annotations

import contextlib
import ctypes


def give_back_memory() -> None:
    """Lets the C library return its free pages, where it can (glibc). It keeps most of them by itself, per thread."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
