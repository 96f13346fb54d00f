"""Signs the keys of one exchange with a device's certificate, so that no edge can put its own in their place."""

from __future__ import annotations

import datetime
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from airprune.deployment.digests import digest_of
from airprune.deployment.identity import Node, Role
from airprune.deployment.identity.peers import Stranger, admit
from airprune.deployment.round_machine import RoundKey
from airprune.errors import WorkFailed
from airprune.methods.secure.exchange import SIGNED_BYTES
from airprune.methods.secure.keys import is_signed, sign

SESSION_BYTES = 16
_MOST_PEM_BYTES = 8_192


def statement(key: RoundKey, session: bytes, number: int, num_devices: int, keys: bytes) -> bytes:
    """Returns what a device signs: its keys, and the one exchange that they are for."""
    place = f"airprune secure sum\n{key.run}\n{key.global_round}\n{key.edge_round}\n{number}\n{num_devices}\n"
    return place.encode() + session + keys[:SIGNED_BYTES]


def signed_keys(node: Node, key: RoundKey, session: bytes, number: int, num_devices: int, keys: bytes) -> bytes:
    """Returns a device's keys with its signature."""
    own = serialization.load_pem_private_key(node.key, password=None)
    return keys + sign(own, statement(key, session, number, num_devices, keys))


def check_signature(public: Any, key: RoundKey, session: bytes, number: int, num_devices: int, keys: bytes) -> None:
    """Raises WorkFailed unless the owner of a certificate has signed these keys for this exchange."""
    if not is_signed(public, keys[SIGNED_BYTES:], statement(key, session, number, num_devices, keys)):
        raise WorkFailed("Keys of a secure sum must be signed for it by the certificate of their device.")


def public_key_of(pem: bytes) -> Any:
    """Returns the public key of a certificate that TLS has checked."""
    return x509.load_pem_x509_certificate(pem).public_key()


class Vouchers:
    """The certificates of other devices, as an edge passes them on: each once, and then its digest.

    A digest that is not known is no certificate.

    Args:
      node: whose authority and federation they must be of.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._known: dict[bytes, tuple[str, Any]] = {}

    def take(self, certificate: bytes) -> tuple[str, Any]:
        """Returns the name and the public key of a device; raises WorkFailed for any other certificate."""
        known = self._known.get(certificate if len(certificate) == SESSION_BYTES else digest_of(certificate))
        if known is None:
            known = self._known[digest_of(certificate)] = self._checked(certificate)
        return known

    def _checked(self, pem: bytes) -> tuple[str, Any]:
        try:
            if len(pem) > _MOST_PEM_BYTES:
                raise ValueError("too long")
            certificate = x509.load_pem_x509_certificate(pem)
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(self.node.authority))
            now = datetime.datetime.now(datetime.UTC)
            if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
                raise ValueError("not valid now")
            peer = admit(pem, federation=self.node.peer.federation, role=Role.DEVICE, names=_Any(), denied=())
        except (ValueError, TypeError, InvalidSignature, Stranger):
            raise WorkFailed("Keys of a secure sum must come with a device's certificate of this federation.") from None
        return peer.name, certificate.public_key()


class _Any:
    """Has every name: which devices are in a run only the cloud knows."""

    def __contains__(self, name: object) -> bool:
        return True
