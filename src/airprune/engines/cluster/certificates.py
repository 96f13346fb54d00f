"""TLS for a cluster: a private authority, and a certificate for each role that it has signed.

    ca.pem, ca-key.pem                  the authority; its key signs, and is needed nowhere else
    scheduler.pem, scheduler-key.pem    likewise worker, client

Dask checks on both sides that the other's certificate is signed by the authority, and refuses peers without one. It
does not check the role that it has reached. Here a call to a scheduler requires a scheduler's certificate, and one to a
worker a worker's; that of a client serves to call only.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from distributed.security import Security

from airprune.authority import new_authority, role_extensions
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
        extensions = role_extensions([x509.DNSName(_name(role))], listens=role != "client")
        authority.certify(f"airprune {role}", days=days, extensions=extensions).write(folder, role)


def _name(role: str) -> str:
    """Returns the DNS name of a role in certificates; no machine has it."""
    return f"{role}.cluster.airprune.internal"


def security_of(folder: Path | str, role: str, *, scheduler: str | None = None) -> Security:
    """Returns the TLS settings by which a process of this role proves itself and checks others.

    Args:
      scheduler: for workers, which call each other as well: the address at which they want a scheduler.
    """
    folder = Path(folder)
    files = {"ca": folder / "ca.pem", "certificate": folder / f"{role}.pem", "key": folder / f"{role}-key.pem"}
    for path in files.values():
        if not path.is_file():
            raise UsageError(f"{path} is missing; make certificates with `airprune cluster certificates FOLDER`.")
    certificate, key = str(files["certificate"]), str(files["key"])
    # A scheduler also calls workers, and workers call each other: every process answers as its one role.
    own = {f"tls_{name}_cert": certificate for name in ROLES} | {f"tls_{name}_key": key for name in ROLES}
    kind = _RoleSecurity if _has_role(files["certificate"], role) else Security
    security = kind(tls_ca_file=str(files["ca"]), require_encryption=True, **own)
    if isinstance(security, _RoleSecurity):
        security.scheduler = scheduler
    return security


def _has_role(path: Path, role: str) -> bool:
    """True if `make_certificates` has made it; those of other authorities may serve a cluster, too."""
    with contextlib.suppress(ValueError, x509.ExtensionNotFound):
        names = x509.load_pem_x509_certificate(path.read_bytes()).extensions
        found = names.get_extension_for_class(x509.SubjectAlternativeName).value
        return _name(role) in found.get_values_for_type(x509.DNSName)
    return False


class _RoleSecurity(Security):
    """Checks, beyond Dask's checks, that the called process has the role that is called."""

    scheduler: str | None = None

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """Returns the settings of a role's calls: clients call the scheduler, the scheduler workers, workers both."""
        arguments: dict[str, Any] = super().get_connection_args(role)
        files = self.get_tls_config_for_role(role)
        context = _RoleContext(ssl.PROTOCOL_TLS_CLIENT)  # checks that the certificate has the name asked for
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(files["ca_file"])
        context.load_cert_chain(files["cert"], files["key"])
        context.called = "worker" if role == "scheduler" else "scheduler"
        if role == "worker" and self.scheduler is not None:
            context.schedulers = _places(self.scheduler)
        return {**arguments, "ssl_context": context}


class _RoleContext(ssl.SSLContext):
    """Asks for the name of a role instead of that of the host.

    Attributes:
      called: the role to be called.
      schedulers: addresses and ports of the scheduler if others are called as well, who must be workers.
    """

    called = "scheduler"
    schedulers: frozenset[tuple[str, int]] | None = None

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        called = self.called
        if self.schedulers is not None and sock.getpeername()[:2] not in self.schedulers:
            called = "worker"
        return super().wrap_socket(sock, *arguments, **{**options, "server_hostname": _name(called)})

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return super().wrap_bio(*arguments, **{**options, "server_hostname": _name(self.called)})


def _places(address: str) -> frozenset[tuple[str, int]]:
    """Returns the (IP address, port) pairs of a server, which may have several."""
    place = urlsplit(address)
    found = socket.getaddrinfo(place.hostname, place.port, type=socket.SOCK_STREAM)
    return frozenset((str(entry[4][0]), int(entry[4][1])) for entry in found)
