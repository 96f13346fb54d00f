"""TLS for a cluster: a private authority, and a certificate for each role that it has signed.

    ca.pem, ca-key.pem                  the authority; its key signs, and is needed nowhere else
    scheduler.pem, scheduler-key.pem    likewise worker, client

Dask checks on both sides that the other's certificate is signed by the authority: whoever has none is turned away.
"""

from __future__ import annotations

from pathlib import Path

from distributed.security import Security

from airprune.authority import new_authority
from airprune.errors import UsageError

ROLES = ("scheduler", "worker", "client")
_DAYS = 365


def make_certificates(folder: Path, *, days: int = _DAYS) -> None:
    """Writes a new authority and a key and certificate per role; refuses to replace an old authority."""
    if (folder / "ca.pem").exists():
        raise UsageError(f"{folder} already holds certificates; remove them first, or choose another folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = new_authority("airprune cluster authority", days=days)
    authority.write(folder, "ca")
    for role in ROLES:
        authority.certify(f"airprune {role}", days=days).write(folder, role)


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
