"""Makes a federation; renews and revokes its nodes.

FOLDER/authority/ca.pem, ca-key.pem   signs kits; the key is needed nowhere else
FOLDER/authority/issued/NAME.pem      each node's newest certificate
FOLDER/authority/denied.toml          certificates that were revoked or renewed
FOLDER/authority/members.toml         the members, as the cloud's kit has them
FOLDER/NAME/                          a node's kit, see `node`; the cloud's also has members.toml and denied.toml
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from airprune.authority import Certified, new_authority, role_extensions
from airprune.checks import whole_number
from airprune.deployment.identity import denied, members, node
from airprune.deployment.identity.members import CLOUD, Members, plan_members
from airprune.deployment.identity.peers import Peer, Role, peer_of, serial_of
from airprune.deployment.identity.tables import is_ip
from airprune.errors import UnknownName, UsageError
from airprune.files import replacing
from airprune.settings import toml_text

MAX_DAYS = 36_500
_AUTHORITY_DAYS = 3_650  # longer than its first kits, so that it can renew them


def make_federation(
    folder: Path,
    *,
    num_edges: int,
    devices_per_edge: int | Sequence[int],
    hosts: Mapping[str, str] | None = None,
    first_port: int = 8700,
    days: int = 365,
    standby_edges: int = 0,
    federation: str | None = None,
) -> list[Path]:
    """Writes an authority and a kit for each node into a new folder; nothing is left there if that fails.

    Args:
      devices_per_edge: one number for all edges, or one per edge.
      hosts: by name of the cloud and edges; without one, a node listens on loopback.
      first_port: the cloud's; edges have those that follow.
      federation: its name; random if not given.

    Returns:
      The kits: the cloud's, those of the edges, those of the devices.
    """
    folder = folder.resolve()
    _check_free(folder)
    days = whole_number("days", days, at_least=1, at_most=MAX_DAYS)
    found = plan_members(
        federation=secrets.token_hex(4) if federation is None else federation,
        num_edges=num_edges,
        devices_per_edge=devices_per_edge,
        hosts=hosts or {},
        first_port=first_port,
        standby_edges=standby_edges,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    arriving = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=".partial", dir=folder.parent))
    try:
        made = _write_federation(arriving, found, days)
        arriving.rename(folder)
    except BaseException:
        shutil.rmtree(arriving, ignore_errors=True)
        raise
    return [folder / name for name in made]


def revoke(folder: Path, name: str) -> str:
    """Puts a node's newest certificate on the deny lists of authority and cloud; returns its serial number."""
    if name == CLOUD:
        raise UsageError("The cloud cannot be revoked, since it is the one that refuses; make another federation.")
    with locked_authority(folder) as authority:
        serial = serial_of(issued_file(authority, name).read_bytes())
        deny_in(folder, serial, name)
        return serial


def renew(folder: Path, name: str, *, days: int = 365) -> Path:
    """Gives a node's kit a new key and certificate, and puts the old one on the deny lists; returns the kit.

    What fails while files are prepared changes nothing. From the first change on the old certificate is refused, so
    after an interruption it is enough to renew once more.
    """
    days = whole_number("days", days, at_least=1, at_most=MAX_DAYS)
    kit = folder / name
    with locked_authority(folder) as authority:
        issued = issued_file(authority, name)
        old = issued.read_bytes()
        if not kit.is_dir():
            raise UsageError(f"{kit} is missing; bring the kit back there, so that it can be renewed.")
        new = certified(load_signer(authority), peer_of(old), days)
        with (
            replacing(kit / node.CERTIFICATE) as certificate,
            replacing(kit / node.KEY) as key,
            replacing(issued) as copy,
        ):
            os.fchmod(key.fileno(), 0o600)
            for file, content in ((key, new.key_pem), (certificate, new.certificate_pem), (copy, new.certificate_pem)):
                file.write(content)
                file.flush()
            deny_in(folder, serial_of(old), name)
    return kit


def _check_free(folder: Path) -> None:
    if (folder / "authority").exists():
        raise UsageError(
            f"{folder} already holds a federation; add nodes to it with `airprune deploy add`, or choose another "
            "folder."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} already exists and is not an empty folder; choose another one.")
    if folder == Path.cwd():
        raise UsageError(f"{folder} is where you are, and cannot be made whole at once; choose a folder in it.")


def _write_federation(folder: Path, found: Members, days: int) -> list[str]:
    authority = new_authority(f"airprune federation {found.federation}", days=days + _AUTHORITY_DAYS)
    place = folder / "authority"
    (place / "issued").mkdir(mode=0o700, parents=True)
    place.chmod(0o700)
    authority.write(place, "ca")
    made = []
    for role, names in found.names.items():
        for index, name in enumerate(names):
            kit = folder / name
            kit.mkdir(mode=0o700)
            own = certified(authority, Peer(found.federation, role, name), days)
            own.write(kit, "node")
            (kit / node.AUTHORITY).write_bytes(authority.certificate_pem)
            (kit / node.FILE).write_text(node_text(found, role, name, index))
            (place / "issued" / f"{name}.pem").write_bytes(own.certificate_pem)
            made.append(name)
    for holder in (CLOUD, "authority"):
        (folder / holder / members.FILE).write_text(toml_text.written(found.model_dump()))
    return made


def node_text(found: Members, role: Role, name: str, index: int) -> str:
    """Returns node.toml of a node."""
    values: dict[str, object] = {"federation": found.federation, "role": str(role), "name": name, "index": index}
    if role.listens:
        host, _, port = found.addresses[name].rpartition(":")
        # A name may stand for another address inside the machine than outside.
        values["listen"] = f"{host if is_ip(host.strip('[]')) else '0.0.0.0'}:{port}"
    if parents := found.dialled_by(name):
        values["parents"] = {parent: found.addresses[parent] for parent in parents}
    return toml_text.written(values)


def certified(authority: Certified, peer: Peer, days: int) -> Certified:
    """Returns a new key and certificate of a node."""
    return authority.certify(_title(peer), days=days, extensions=_extensions(peer))


def certified_request(authority: Certified, peer: Peer, request_pem: bytes, days: int) -> bytes:
    """Returns a certificate, in PEM, for the key of a signing request; role and name are the peer's, whatever it says.

    Raises UsageError if the request is not one, or not signed by its own key.
    """
    try:
        request = x509.load_pem_x509_csr(request_pem)
        key = request.public_key()
        fits = request.is_signature_valid and isinstance(key, ec.EllipticCurvePublicKey)
    except (ValueError, UnsupportedAlgorithm):
        fits = False
    if not fits or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError("A signing request must be in PEM, of a key on P-256 and signed by it.")
    signed = authority.certify_key(key, _title(peer), days=days, extensions=_extensions(peer))
    return signed.public_bytes(serialization.Encoding.PEM)


def _title(peer: Peer) -> str:
    return f"airprune {peer.role} {peer.name}"


def _extensions(peer: Peer) -> tuple[x509.ExtensionType, ...]:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(peer.uri)]
    if peer.role.listens:
        names.append(x509.DNSName(peer.server_name))
    return role_extensions(names, listens=peer.role.listens)


@contextlib.contextmanager
def locked_authority(folder: Path) -> Iterator[Path]:
    """Yields the authority's folder; no other process changes the federation meanwhile."""
    authority = folder / "authority"
    if not (authority / "ca.pem").is_file():
        raise UsageError(f"{folder} holds no federation: authority/ca.pem is missing; see `airprune deploy init`.")
    descriptor = os.open(authority, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield authority
    finally:
        os.close(descriptor)


def issued_file(authority: Path, name: str) -> Path:
    """Returns the file of a node's newest certificate; raises UnknownName if there is none."""
    known = sorted((path.stem for path in (authority / "issued").glob("*.pem")), key=lambda name: (len(name), name))
    if name not in known:
        raise UnknownName("node", name, known)
    return authority / "issued" / f"{name}.pem"


def load_signer(authority: Path) -> Certified:
    """Reads the authority's certificate and key."""
    path = authority / "ca-key.pem"
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; bring it back there, since only it can sign.") from None
    except (ValueError, TypeError):
        raise UsageError(f"{authority} holds a broken ca.pem or ca-key.pem; restore them from a copy.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise UsageError(f"{path} is not the key of ca.pem beside it; restore both from one copy.")
    if certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        raise UsageError(f"{authority} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; make a new federation.")
    return Certified(certificate, key)


def check_authority(folder: Path, of: node.Node) -> None:
    """Raises UsageError unless this folder holds the authority of the node, with its key."""
    with locked_authority(folder) as authority:
        if load_signer(authority).certificate_pem != of.authority:
            raise UsageError(f"{authority} is not the authority of {of.folder}; give the folder that it was made in.")


def deny_in(folder: Path, serial: str, name: str) -> None:
    """Adds to the authority's list, and to the cloud's if its kit is still here; to neither if one cannot be read."""
    lists = [place / denied.FILE for place in (folder / "authority", folder / CLOUD) if place.is_dir()]
    for path in lists:
        denied.load_denied(path)
    for path in lists:
        denied.deny(path, serial, name)
