"""A private authority: keys on P-256, and certificates that it has signed."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CLOCKS_DIFFER = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Certified:
    """A certificate and its private key: an authority's, or those of a node that it has certified."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def write(self, folder: Path, name: str) -> None:
        """Writes new files `name`.pem and `name`-key.pem; the key is for its owner only."""
        (folder / f"{name}.pem").write_bytes(self.certificate_pem)
        path = folder / f"{name}-key.pem"
        path.touch(mode=0o600, exist_ok=False)  # before there is anything to read in it
        path.write_bytes(self.key_pem)

    def certify(self, name: str, *, days: int, extensions: Iterable[x509.ExtensionType] = ()) -> Certified:
        """Returns a new key and a certificate for it, valid no longer than the authority itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        return Certified(self.certify_key(key.public_key(), name, days=days, extensions=extensions), key)

    def certify_key(
        self, key: ec.EllipticCurvePublicKey, name: str, *, days: int, extensions: Iterable[x509.ExtensionType] = ()
    ) -> x509.Certificate:
        """Returns a certificate for the key of another, valid no longer than the authority itself."""
        until = min(_in_days(days), self.certificate.not_valid_after_utc)
        builder = _builder(name, self.certificate.subject, key, until).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        for extension in (issuer, *extensions):
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, hashes.SHA256())


def role_extensions(names: Sequence[x509.GeneralName], *, listens: bool) -> tuple[x509.ExtensionType, ...]:
    """Returns a certificate's uses: to name its owner, to call others, and to be called only if it listens."""
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if listens else [])]
    return x509.SubjectAlternativeName(names), x509.ExtendedKeyUsage(usages)


def new_authority(name: str, *, days: int) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, _name(name), key.public_key(), _in_days(days))
    signs_only = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Certified(builder.add_extension(signs_only, critical=True).sign(key, hashes.SHA256()), key)


def _in_days(days: int) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.now(datetime.UTC) - _CLOCKS_DIFFER)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
