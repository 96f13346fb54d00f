"""Whole numbers of a few bits each, back to back in bytes, the highest bit first."""

from __future__ import annotations

import numpy as np

from airprune.components.component import Array


def num_bytes(num_bits: int) -> int:
    """Whole bytes that hold so many bits."""
    return -(-num_bits // 8)


def word(width: int) -> np.dtype:
    """The smallest machine word that holds a number."""
    return np.dtype(next(f"u{size}" for size in (1, 2, 4, 8) if width <= 8 * size))


def pack(numbers: Array, width: int) -> bytes:
    """`numbers`, each 0 ≤ number < 2^width ≤ 2^64, with the last byte padded by zeros.  [n] of integers"""
    whole = word(width)
    if width == 8 * whole.itemsize:
        return numbers.astype(whole.newbyteorder(">")).tobytes()
    words = numbers.astype(whole)
    bits = np.empty((words.size, width), dtype=np.uint8)
    for column in range(width):  # a few times faster than unpackbits on such short rows
        bits[:, column] = (words >> whole.type(width - 1 - column)) & whole.type(1)
    return np.packbits(bits).tobytes()


def unpack(data: bytes, width: int, count: int) -> Array:
    """The `count` numbers that `pack` was given.  [count] of `word(width)`"""
    whole = word(width)
    if width == 8 * whole.itemsize:
        return np.frombuffer(data, whole.newbyteorder(">"), count=count).astype(whole)
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count * width).reshape(count, width)
    words = np.zeros(count, dtype=whole)
    for column in range(width):
        words <<= whole.type(1)
        words |= bits[:, column]
    return words
