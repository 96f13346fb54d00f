"""The cryptography of secure sums, all of it from the package `cryptography`.

X25519 agrees on a secret between two devices, HKDF-SHA256 derives a key for each purpose, ChaCha20 expands it to a
mask, ChaCha20-Poly1305 seals shares, SHA-256 commits to a seed, and ECDSA on P-256 signs keys.
"""

from __future__ import annotations

import hashlib
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from airprune.errors import WorkFailed
from airprune.extras import needed

Array = np.ndarray

PUBLIC_BYTES = 32
COMMITMENT_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16
_PRIMITIVES = "cryptography.hazmat.primitives"


@cache
def _primitives(name: str) -> ModuleType:
    found: ModuleType = needed(f"{_PRIMITIVES}.{name}", extra="deploy", what="Aggregation 'secure-sum'")
    return found


def public_key(secret: bytes) -> bytes:
    """Returns the public key of 32 random bytes."""
    key = _primitives("asymmetric.x25519").X25519PrivateKey.from_private_bytes(secret)
    return bytes(key.public_key().public_bytes_raw())


def agree(secret: bytes, public: bytes, purpose: bytes) -> bytes:
    """Returns the key that two devices share for a purpose: the same from either's secret and the other's public key.

    Raises WorkFailed for a public key that forces the result.
    """
    x25519, hashes, hkdf = _primitives("asymmetric.x25519"), _primitives("hashes"), _primitives("kdf.hkdf")
    try:
        peer = x25519.X25519PublicKey.from_public_bytes(public)
        shared = x25519.X25519PrivateKey.from_private_bytes(secret).exchange(peer)
    except ValueError:
        raise WorkFailed("A public key of a secure sum is not one: no secret can be agreed on with it.") from None
    return bytes(hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=purpose).derive(shared))


def mask(seed: bytes, count: int, dtype: np.dtype) -> Array:
    """Returns the key stream of a seed as machine words.  [count]"""
    ciphers = _primitives("ciphers")
    stream = ciphers.Cipher(_primitives("ciphers.algorithms").ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(count * dtype.itemsize)), dtype.newbyteorder("<")).astype(dtype)


def seal(key: bytes, data: bytes) -> bytes:
    """Returns the data encrypted and authenticated; a key seals one message only."""
    return bytes(_primitives("ciphers.aead").ChaCha20Poly1305(key).encrypt(bytes(12), data, None))


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Returns the data; raises WorkFailed if it was changed or is another device's."""
    invalid = needed("cryptography.exceptions", extra="deploy", what="Aggregation 'secure-sum'").InvalidTag
    try:
        return bytes(_primitives("ciphers.aead").ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None))
    except invalid:
        raise WorkFailed("A sealed share of a secure sum was changed on its way, or is for another device.") from None


def commitment(seed: bytes) -> bytes:
    """Returns what binds a device to its seed: of 32 random bytes, it says nothing."""
    return hashlib.sha256(b"airprune seed" + seed).digest()


def signing_key(secret: bytes) -> Any:
    """Returns the signing key that follows from 32 bytes, as a simulated device has it."""
    number = int.from_bytes(hashlib.sha256(b"airprune signature" + secret).digest()[:31]) + 1
    return _primitives("asymmetric.ec").derive_private_key(number, _primitives("asymmetric.ec").SECP256R1())


def sign(key: Any, data: bytes) -> bytes:
    """Returns the signature of data by a private key on P-256, as two numbers of 32 bytes."""
    signature = key.sign(data, _primitives("asymmetric.ec").ECDSA(_primitives("hashes").SHA256()))
    r, s = _primitives("asymmetric.utils").decode_dss_signature(signature)
    return bytes(r.to_bytes(SIGNATURE_BYTES // 2) + s.to_bytes(SIGNATURE_BYTES // 2))


def is_signed(key: Any, signature: bytes, data: bytes) -> bool:
    """Returns whether the holder of this public key has signed the data; False for a key on another curve."""
    ec, invalid = _primitives("asymmetric.ec"), needed("cryptography.exceptions", extra="deploy", what="Secure sums")
    if not isinstance(key, ec.EllipticCurvePublicKey) or len(signature) != SIGNATURE_BYTES:
        return False
    half = SIGNATURE_BYTES // 2
    numbers = int.from_bytes(signature[:half]), int.from_bytes(signature[half:])
    try:
        encoded = _primitives("asymmetric.utils").encode_dss_signature(*numbers)
        key.verify(encoded, data, ec.ECDSA(_primitives("hashes").SHA256()))
    except (invalid.InvalidSignature, ValueError):
        return False
    return True
