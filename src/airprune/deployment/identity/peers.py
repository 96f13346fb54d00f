"""Role and name of a node, as its certificate says them; never as a message does."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum

from cryptography import x509

from airprune.errors import WorkFailed
from airprune.text import shown

LABEL = r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"  # of a domain name, so that a server can be known by it
_URI = re.compile(rf"airprune://(?P<federation>{LABEL})/(?P<role>cloud|edge|device)/(?P<name>{LABEL})")


class Stranger(WorkFailed):
    """Raised for a peer that is not admitted; the sentence says why."""


class Unlisted(Stranger):
    """Raised for a peer that is not a member, and may be one that was just added."""


class Role(StrEnum):
    CLOUD = "cloud"
    EDGE = "edge"
    DEVICE = "device"

    @property
    def dials(self) -> Role | None:
        """Role of the parent."""
        return {Role.DEVICE: Role.EDGE, Role.EDGE: Role.CLOUD}.get(self)

    @property
    def listens(self) -> bool:
        return self is not Role.DEVICE


@dataclass(frozen=True)
class Peer:
    federation: str
    role: Role
    name: str

    @property
    def uri(self) -> str:
        return f"airprune://{self.federation}/{self.role}/{self.name}"

    @property
    def server_name(self) -> str:
        """DNS name that a dialler requires, wherever the node is."""
        return f"{self.name}.{self.federation}.airprune"


def peer_of(pem: bytes) -> Peer:
    """Reads the peer from the one URI among a certificate's alternative names."""
    try:
        extensions = _certificate(pem).extensions
        found = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = found.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    except ValueError as error:
        raise Stranger(f"A certificate's names must be readable, got {error}.") from None
    match = _URI.fullmatch(uris[0]) if len(uris) == 1 else None
    if match is None:
        rule = "A certificate must name its node by one URI like airprune://FEDERATION/device/d0"
        raise Stranger(f"{rule}, got {', '.join(map(shown, uris[:2])) or 'none'}.")
    return Peer(match["federation"], Role(match["role"]), match["name"])


def serial_of(pem: bytes) -> str:
    """Returns a certificate's serial number in hex; two certificates of one authority never share it."""
    return f"{_certificate(pem).serial_number:x}"


def expiry_of(pem: bytes) -> float:
    """Returns when a certificate expires, in seconds since 1970."""
    return _certificate(pem).not_valid_after_utc.timestamp()


def admit(pem: bytes, *, federation: str, role: Role, names: Container[str], denied: Container[str]) -> Peer:
    """Returns the holder of this certificate, which TLS has checked already; raises `Stranger` unless it may join."""
    peer = peer_of(pem)
    if peer.federation != federation:
        raise Stranger(f"{peer.uri} is of another federation; this one is {federation}.")
    if peer.role != role:
        raise Stranger(f"{peer.uri} has the role {peer.role}; only the role {role} joins here.")
    serial = serial_of(pem)
    if peer.name not in names:
        kind = Stranger if serial in denied else Unlisted
        raise kind(f"{peer.uri} is not a member that joins here.")
    if serial in denied:
        raise Stranger(f"The certificate {serial} of {peer.uri} was revoked or renewed; use the newest kit.")
    return peer


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise Stranger(f"A certificate must be in PEM, got {shown(pem)}.") from None
