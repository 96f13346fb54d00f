"""Certificates renewed before they expire, over the connection that a node has: new key, request, certificate.

The node makes a new key and signs its request with the present one; the cloud, if it has the authority, answers with a
certificate, and both go into one file of the node's state, `identity.pem`, which then holds in place of those of its
kit. A kit that is newer, as after `airprune deploy renew`, holds again.
"""

from __future__ import annotations

import datetime
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from airprune.deployment.identity.enrolment import key_pem, signing_request
from airprune.deployment.identity.kits import certified_request, load_signer, locked_authority
from airprune.deployment.identity.node import Node, check_certificate
from airprune.deployment.identity.peers import Peer, peer_of, serial_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import AirpruneError, UsageError, WorkFailed
from airprune.files import read_bytes, replacing

FILE = "identity.pem"
RENEW_BEFORE_DAYS = 30.0
_AGAIN_S = 3_600.0
_MOST_BYTES = 2**16
_LIFETIMES = 3  # a short-lived certificate is renewed in the last third of its time


def with_renewed(node: Node, state: Path) -> Node:
    """Returns the node with the certificate of its state, if there is one and it is newer than its kit's."""
    path = state / FILE
    if not path.is_file():
        return node
    try:
        content = read_bytes(path, max_bytes=_MOST_BYTES)
        key, mark, rest = content.partition(b"-----BEGIN CERTIFICATE-----")
        certificate = mark + rest
        check_certificate(state, node.authority, certificate, key)
        is_newer = _start(certificate) >= _start(node.certificate) and peer_of(certificate) == node.peer
    except (AirpruneError, OSError, ValueError):
        return node
    return replace(node, certificate=certificate, key=key) if is_newer else node


def _start(certificate: bytes) -> datetime.datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_before_utc


def is_due(certificate: bytes, before_days: float) -> bool:
    """True if a certificate expires within these days, or is in the last third of its time if that is later."""
    own = x509.load_pem_x509_certificate(certificate)
    lifetime = own.not_valid_after_utc - own.not_valid_before_utc
    before = datetime.timedelta(days=before_days)
    if before_days == RENEW_BEFORE_DAYS:
        before = min(before, lifetime / _LIFETIMES)
    return own.not_valid_after_utc - datetime.datetime.now(datetime.UTC) < before


@dataclass(eq=False)
class Renewal:
    """Renews the certificate of one node.

    Attributes:
      node: as it is now.
      state: its folder.
    """

    node: Node
    state: Path
    before_days: float = RENEW_BEFORE_DAYS
    _key: ec.EllipticCurvePrivateKey | None = None
    _asked_s: float = -_AGAIN_S

    def request(self) -> pb.CertificateRequest | None:
        """Returns the request to send, if it is due; an unanswered one is repeated after an hour."""
        now_s = time.monotonic()
        if now_s - self._asked_s < _AGAIN_S or not is_due(self.node.certificate, self.before_days):
            return None
        self._asked_s = now_s
        self._key = ec.generate_private_key(ec.SECP256R1())
        request = signing_request(self._key)
        present = serialization.load_pem_private_key(self.node.key, password=None)
        assert isinstance(present, ec.EllipticCurvePrivateKey)
        proof = present.sign(request, ec.ECDSA(hashes.SHA256()))
        return pb.CertificateRequest(request=request, certificate=self.node.certificate, proof=proof)

    def take(self, answer: pb.Certificate) -> bool:
        """Takes the answer into use, for connections to come; raises if it is no certificate of this node."""
        if self._key is None:
            return False
        if answer.trouble:
            raise WorkFailed(f"The certificate was not renewed: {answer.trouble}")
        key, self._key = key_pem(self._key), None
        check_certificate(self.state, self.node.authority, answer.certificate, key)
        if peer_of(answer.certificate) != self.node.peer:
            raise WorkFailed("The certificate was not renewed: the answer is of another node.")
        with replacing(self.state / FILE) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(key + answer.certificate)
        self.node = replace(self.node, certificate=answer.certificate, key=key)
        return True


@dataclass(frozen=True)
class Signer:
    """Answers requests with the federation's authority.

    Attributes:
      folder: of the federation.
      days: that certificates are valid for.
    """

    folder: Path
    days: int = 365

    def answer(self, request: pb.CertificateRequest, name: str, denied: frozenset[str]) -> pb.Certificate:
        """Returns a certificate for the node of this name, which has shown its present one and its key; or why not."""
        try:
            return pb.Certificate(name=request.name, certificate=self._signed(request, name, denied))
        except (AirpruneError, OSError) as error:
            return pb.Certificate(name=request.name, trouble=str(error))

    def _signed(self, request: pb.CertificateRequest, name: str, denied: frozenset[str]) -> bytes:
        with locked_authority(self.folder) as authority:
            signer = load_signer(authority)
            peer = self._proven(request, signer.certificate)
            if peer.name != name:
                raise UsageError(f"A request in the name of {peer.name} came from {name}.")
            if serial_of(request.certificate) in denied:
                raise UsageError(f"The certificate of {name} was revoked.")
            certificate = certified_request(signer, peer, request.request, self.days)
            with replacing(authority / "issued" / f"{name}.pem") as file:
                file.write(certificate)
        return certificate

    def _proven(self, request: pb.CertificateRequest, authority: x509.Certificate) -> Peer:
        """Returns the node that has signed the request with the key of its certificate."""
        try:
            present = x509.load_pem_x509_certificate(request.certificate)
            present.verify_directly_issued_by(authority)
            key = present.public_key()
            assert isinstance(key, ec.EllipticCurvePublicKey)
            key.verify(request.proof, request.request, ec.ECDSA(hashes.SHA256()))
        except (ValueError, TypeError, InvalidSignature, AssertionError):
            raise UsageError("A request must be signed with the key of a certificate of this federation.") from None
        if present.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
            raise UsageError("The present certificate has expired.")
        return peer_of(request.certificate)
