"""TLS for a cluster: a private authority, and a certificate for each role that it has signed.

    ca.pem, ca-key.pem                  the authority; its key signs, and is needed nowhere else
    scheduler.pem, scheduler-key.pem    likewise worker, client

Dask checks on both sides that the other's certificate is signed by the authority: whoever has none is turned away.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed.security import Security

from airprune.errors import UsageError

ROLES = ("scheduler", "worker", "client")
_DAYS = 365


def make_certificates(folder: Path, *, days: int = _DAYS) -> None:
    """Writes a new authority and a key and certificate per role; refuses to replace an old authority."""
    if (folder / "ca.pem").exists():
        raise UsageError(f"{folder} already holds certificates; remove them first, or choose another folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("airprune cluster authority")
    authority = _signed(authority_name, authority_key, authority_name, authority_key, days, is_authority=True)
    _write(folder, "ca", authority, authority_key)
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder, role, _signed(_name(f"airprune {role}"), key, authority_name, authority_key, days), key)


def security_of(folder: Path | str, role: str) -> Security:
    """How a process of this role proves itself and checks others."""
    folder = Path(folder)
    files = {"ca": folder / "ca.pem", "certificate": folder / f"{role}.pem", "key": folder / f"{role}-key.pem"}
    for path in files.values():
        if not path.is_file():
            raise UsageError(f"{path} is missing; make certificates with `airprune cluster certificates FOLDER`.")
    certificate, key = str(files["certificate"]), str(files["key"])
    # A scheduler also calls workers, and workers call each other: every process answers as its one role.
    own = {f"tls_{name}_cert": certificate for name in ROLES} | {f"tls_{name}_key": key for name in ROLES}
    return Security(tls_ca_file=str(files["ca"]), require_encryption=True, **own)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: int,
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )


def _write(folder: Path, role: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    (folder / f"{role}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{role}-key.pem"
    path.touch(mode=0o600, exist_ok=False)  # before there is anything to read in it
    path.write_bytes(private)
