"""Certificates for devices that show a one-time code; a device's key never leaves it.

A code is SECRET.FINGERPRINT: 80 random bits that the authority knows by their digest, and the digest of the authority's
certificate, by which a device that has nothing yet knows whom it talks to. It is for one device, at one edge, for some
hours. It is used up with the key that it was used for: the same request again gets the same certificate.

# FOLDER/authority/invitations.json: digest of the secret → what it is for
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from airprune.checks import quantity, whole_number
from airprune.deployment.identity import node
from airprune.deployment.identity.growth import members_of, new_names, with_devices, write_members
from airprune.deployment.identity.kits import certified_request, load_signer, locked_authority, node_text
from airprune.deployment.identity.members import MAX_NODES
from airprune.deployment.identity.peers import Peer, Role
from airprune.errors import UnknownName, UsageError, WorkFailed
from airprune.files import read_bytes, replacing

FILE = "invitations.json"
_SECRET_BYTES, _FINGERPRINT_BYTES = 10, 16
_MOST_BYTES = 2**24


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """Describes a code: the edge that it is for, and the device that has used it.

    Attributes:
      until_s: seconds since 1970.
      days: that the certificate is valid for.
      name, key: of the device that has used it, and the digest of its key; empty before.
    """

    edge: str
    until_s: float
    days: int
    name: str = ""
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Enrolled:
    """All that a device needs beside its key."""

    certificate: str
    authority: str
    node: str


def invite(folder: Path, edge: str, *, count: int = 1, hours: float = 24.0, days: int = 365) -> list[str]:
    """Returns new codes, each for one device at home at this edge."""
    count = whole_number("count", count, at_least=1, at_most=MAX_NODES)
    hours = float(quantity("hours", hours, above=0.0, at_most=8_760.0))
    with locked_authority(folder) as authority:
        known = members_of(folder).edges
        if edge not in known:
            raise UnknownName("edge", edge, known)
        mark = fingerprint((authority / "ca.pem").read_bytes())
        found = {digest: one for digest, one in _load(authority).items() if one.until_s > time.time() - 86_400}
        codes = []
        for _ in range(count):
            secret = _text(secrets.token_bytes(_SECRET_BYTES))
            found[_digest(secret)] = Invitation(edge=edge, until_s=time.time() + 3_600 * hours, days=days)
            codes.append(f"{secret}.{mark}")
        _save(authority, found)
    return codes


def enrol(folder: Path, secret: str, request_pem: bytes) -> Enrolled:
    """Makes the holder of a code a member, with a certificate for the key of its request; raises UsageError if not."""
    with locked_authority(folder) as authority:
        found = _load(authority)
        invitation = found.get(_digest(secret))
        if invitation is None:
            raise UsageError("This code is unknown, or was used long ago; get another from `airprune deploy invite`.")
        if invitation.until_s < time.time():
            raise UsageError("This code has expired; get another from `airprune deploy invite`.")
        key, signer, before = _key_digest(request_pem), load_signer(authority), members_of(folder)
        if invitation.key not in ("", key):
            raise UsageError(f"This code was used by {invitation.name} already; get another for this device.")
        name = invitation.name or new_names(authority, "d", 1)[0]
        peer, after = Peer(before.federation, Role.DEVICE, name), before
        issued = authority / "issued" / f"{name}.pem"
        if name not in before.all_devices:
            after = with_devices(before, invitation.edge, [name])
        if invitation.key and issued.is_file():
            certificate = issued.read_bytes()
        else:
            certificate = certified_request(signer, peer, request_pem, invitation.days)
            _save(authority, {**found, _digest(secret): replace(invitation, name=name, key=key)})
            with replacing(issued) as file:
                file.write(certificate)
        if after is not before:
            write_members(folder, after)
        number = after.all_devices.index(name)
        return Enrolled(
            certificate=certificate.decode(),
            authority=signer.certificate_pem.decode(),
            node=node_text(after, Role.DEVICE, name, number),
        )


def fingerprint(authority_pem: bytes) -> str:
    """Returns the text in codes by which an authority is known."""
    try:
        found = x509.load_pem_x509_certificate(authority_pem)
    except ValueError:
        raise UsageError("An authority must be a certificate in PEM.") from None
    return _text(found.fingerprint(hashes.SHA256())[:_FINGERPRINT_BYTES])


def split_code(code: str) -> tuple[str, str]:
    """Returns (secret, fingerprint)."""
    secret, dot, mark = code.strip().lower().partition(".")
    if not (dot and secret and mark):
        raise UsageError("A code must be SECRET.FINGERPRINT, as `airprune deploy invite` prints it.")
    return secret, mark


def key_in(kit: Path) -> ec.EllipticCurvePrivateKey:
    """Returns the key in a kit that is being made; makes one, for its owner only, if there is none."""
    path = kit / node.KEY
    kit.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        with replacing(path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(key_pem(key))
    found = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{path} must be a key on P-256; delete it, or choose another folder.")
    return found


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def signing_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Returns a request for a certificate in PEM; names are the authority's to say."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def write_kit(kit: Path, found: Enrolled) -> node.Node:
    """Writes what was received beside the key, the certificate last; returns the node."""
    parts = ((node.AUTHORITY, found.authority), (node.FILE, found.node), (node.CERTIFICATE, found.certificate))
    for name, text in parts:
        with replacing(kit / name) as file:
            file.write(text.encode())
    return node.load_node(kit)


def _key_digest(request_pem: bytes) -> str:
    try:
        key = x509.load_pem_x509_csr(request_pem).public_key()
    except ValueError:
        raise UsageError("A signing request must be in PEM, of a key on P-256 and signed by it.") from None
    public = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(public).hexdigest()


def _load(authority: Path) -> dict[str, Invitation]:
    path = authority / FILE
    if not path.exists():
        return {}
    try:
        found = json.loads(read_bytes(path, max_bytes=_MOST_BYTES))
        return {digest: Invitation(**values) for digest, values in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise WorkFailed(f"{path} cannot be read ({error}); delete it and invite again.") from None


def _save(authority: Path, found: dict[str, Invitation]) -> None:
    with replacing(authority / FILE) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(json.dumps({digest: asdict(one) for digest, one in found.items()}).encode())


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _text(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()
