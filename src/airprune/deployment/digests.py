"""Digests that identify payloads, models and orders of a deployment.

SHA-256, of which the first 16 bytes are kept: processors with instructions for it are twice as fast as with BLAKE2b.
"""

from __future__ import annotations

import hashlib

DIGEST_BYTES = 16

Bytes = bytes | bytearray | memoryview


class Hasher:
    """A digest of parts that come one after the other."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, part: Bytes) -> None:
        self._hash.update(part)

    def digest(self) -> bytes:
        return self._hash.digest()[:DIGEST_BYTES]


def digest_of(data: Bytes, *more: Bytes) -> bytes:
    """Returns the digest of the parts, one after the other."""
    hasher = Hasher()
    for part in (data, *more):
        hasher.update(part)
    return hasher.digest()
