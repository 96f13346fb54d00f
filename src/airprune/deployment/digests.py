"""Digests that identify payloads, models and orders of a deployment.

SHA-256, of which the first 16 bytes are kept: processors with instructions for it are twice as fast as with BLAKE2b.
"""

from __future__ import annotations

import hashlib

DIGEST_BYTES = 16

Bytes = bytes | bytearray | memoryview


def digest_of(data: Bytes, *more: Bytes) -> bytes:
    """Returns the digest of the parts, one after the other."""
    whole = hashlib.sha256(data)
    for part in more:
        whole.update(part)
    return whole.digest()[:DIGEST_BYTES]
