"""Whole numbers of a few bits each, back to back in bytes, the highest bit first."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def num_bytes(num_bits: int) -> int:
    """Whole bytes that hold so many bits."""
    return -(-num_bits // 8)


def pack(numbers: Array, width: int) -> bytes:
    """`numbers`, each 0 ≤ number < 2^width, with the last byte padded by zeros.  [n] of unsigned integers"""
    if width == 0:
        return b""
    size = _word_bytes(width)
    words = numbers.astype(f">u{size}").view(np.uint8).reshape(-1, size)
    return np.packbits(np.unpackbits(words, axis=1)[:, 8 * size - width :]).tobytes()


def unpack(data: bytes, width: int, count: int) -> Array:
    """The `count` numbers that `pack` was given.  [count] of unsigned integers"""
    if width == 0:
        return np.zeros(count, dtype=np.uint8)
    size = _word_bytes(width)
    bits = np.zeros((count, 8 * size), dtype=np.uint8)
    bits[:, 8 * size - width :] = np.unpackbits(np.frombuffer(data, np.uint8), count=count * width).reshape(-1, width)
    return np.packbits(bits).view(f">u{size}").astype(f"u{size}")


def _word_bytes(width: int) -> int:
    """The smallest machine word that holds a number."""
    return next(size for size in (1, 2, 4, 8) if width <= 8 * size)
