"""An authority that lasts as long as a test, and gRPC's credentials from it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SERVER_NAME = "parent.test"
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def identity(name: str, *, authority: Identity | None = None) -> Identity:
    """Signed by the authority, or one itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    return Identity(key, builder.sign(authority.key if authority else key, hashes.SHA256()))


def server_credentials(server: Identity, authority: Identity) -> grpc.ServerCredentials:
    """Children must show a certificate of the same authority."""
    pairs = [(server.key_pem, server.certificate_pem)]
    return grpc.ssl_server_credentials(pairs, authority.certificate_pem, require_client_auth=True)


def channel_credentials(authority: Identity, child: Identity | None = None) -> grpc.ChannelCredentials:
    if child is None:
        return grpc.ssl_channel_credentials(authority.certificate_pem)
    return grpc.ssl_channel_credentials(authority.certificate_pem, child.key_pem, child.certificate_pem)
