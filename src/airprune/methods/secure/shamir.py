"""Shamir's secret sharing: a secret of 32 bytes in n shares, of which any t give it back and t − 1 say nothing.

The secret is f(0) of a random polynomial of degree t − 1 over the whole numbers modulo a prime, share i is f(i).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from random import Random

from airprune.errors import WorkFailed

# The least prime above 2^256.
PRIME = 2**256 + 297
SECRET_BYTES, SHARE_BYTES = 32, 33
# Of random numbers below the prime: 128 bits more than it has leave no bias.
_WIDE_BYTES = 48
# Choices of shares that are tried where some are false.
_MOST_TRIES = 2_000


def split(secret: bytes, threshold: int, num_shares: int, random: Callable[[int], bytes]) -> list[int]:
    """Returns the shares f(1), …, f(n).

    Args:
      random: returns so many random bytes.
    """
    wide = random(_WIDE_BYTES * (threshold - 1))
    numbers = [wide[start : start + _WIDE_BYTES] for start in range(0, len(wide), _WIDE_BYTES)]
    coefficients = [int.from_bytes(number) % PRIME for number in numbers] + [int.from_bytes(secret)]
    shares = []
    for x in range(1, num_shares + 1):
        value = 0
        for coefficient in coefficients:  # the constant comes last
            value = (value * x + coefficient) % PRIME
        shares.append(value)
    return shares


def weights_at_zero(points: Sequence[int]) -> dict[int, int]:
    """Returns Lagrange's weights with which f(0) = Σ weight · f(x), for t different x."""
    return dict(_weights_at(0, tuple(points)))


@lru_cache(maxsize=512)
def _weights_at(place: int, points: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Returns each x with its weight in f(place) = Σ weight · f(x)."""
    weights = []
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above = above * (other - place) % PRIME
                below = below * (other - x) % PRIME
        weights.append((x, above * pow(below, -1, PRIME) % PRIME))
    return tuple(weights)


def combine(shares: Mapping[int, int], weights: Mapping[int, int]) -> bytes:
    """Returns the secret, given f(x) and the weights of just as many x as the threshold says."""
    secret = sum(weight * shares[x] for x, weight in weights.items()) % PRIME
    if secret >= 2 ** (8 * SECRET_BYTES):
        raise WorkFailed("Shares of a secure sum do not belong together: no secret has them.")
    return secret.to_bytes(SECRET_BYTES)


def recovered(
    shares: Mapping[int, int], threshold: int, is_right: Callable[[bytes], bool]
) -> tuple[bytes, tuple[int, ...]] | None:
    """Returns the secret that `is_right` knows again and the x of false shares; None if no choice of shares has it.

    Args:
      shares: f(x) by x, the more trusted ones first.
    """
    for points in _choices(tuple(shares), threshold):
        value = sum(weight * shares[x] for x, weight in _weights_at(0, points)) % PRIME
        if value < 2 ** (8 * SECRET_BYTES) and is_right(secret := value.to_bytes(SECRET_BYTES)):
            others = (x for x in shares if x not in points)
            return secret, tuple(
                x for x in others if sum(w * shares[y] for y, w in _weights_at(x, points)) % PRIME != shares[x] % PRIME
            )
    return None


def _choices(points: tuple[int, ...], threshold: int) -> Iterator[tuple[int, ...]]:
    """Yields the first t points, and then all other choices of t, or random ones if they are too many."""
    yield points[:threshold]
    if len(points) > threshold:
        if math.comb(len(points), threshold) <= _MOST_TRIES:
            yield from combinations(points, threshold)
        else:
            rng = Random(threshold)
            yield from (tuple(rng.sample(points, threshold)) for _ in range(_MOST_TRIES))
