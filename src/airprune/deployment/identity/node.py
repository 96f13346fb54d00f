"""A node's credentials bundle ("kit"): a folder with all that one node needs to be itself.

ca.pem                     whom to trust
node.pem, node-key.pem     who it is, and the proof; the key is for its owner only
node.toml                  where it listens and whom it dials; addresses may be edited
"""

from __future__ import annotations

import datetime
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from pydantic import Field

from airprune.deployment.identity.members import Label
from airprune.deployment.identity.peers import Peer, Role, Stranger, peer_of
from airprune.deployment.identity.tables import Address, checked_address, read_file, read_table
from airprune.errors import InvalidValue, UsageError
from airprune.files import replacing
from airprune.settings import toml_text
from airprune.settings.section import Section

if TYPE_CHECKING:
    import grpc

FILE = "node.toml"
PARENTS = "parents.toml"
CERTIFICATE, KEY, AUTHORITY = "node.pem", "node-key.pem", "ca.pem"


@dataclass(frozen=True)
class Parent:
    """A node to dial."""

    name: str
    role: Role
    address: str  # host:port
    federation: str

    @property
    def server_name(self) -> str:
        """DNS name that the dialler requires, whatever the address."""
        return Peer(self.federation, self.role, self.name).server_name


@dataclass(frozen=True, kw_only=True)
class Node:
    """Describes a node as its kit does.

    Attributes:
      index: number of the device or edge in the network.
      listen: host:port; None for devices.
      parents: whom to dial, home first.
      certificate, key, authority: in PEM.
    """

    peer: Peer
    folder: Path
    index: int
    listen: str | None
    parents: tuple[Parent, ...]
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    authority: bytes = field(repr=False)


class NodeFile(Section):
    """node.toml; `parents` are addresses by name."""

    owner: ClassVar[str] = FILE

    federation: Label
    role: str
    name: Label
    index: int = Field(ge=0)
    listen: Address | None = None
    parents: dict[Label, Address] = Field(default_factory=dict)


def load_node(folder: Path) -> Node:
    """Reads a node's kit; raises with one sentence for any file that is missing, broken, expired, or open to others."""
    table = NodeFile(**read_table(folder / FILE))
    authority, certificate = read_file(folder / AUTHORITY), read_file(folder / CERTIFICATE)
    key = _private(folder / KEY)
    try:
        peer = peer_of(certificate)
    except Stranger as error:
        raise UsageError(f"{folder / CERTIFICATE} is of no node: {error}") from None
    if (table.federation, table.role, table.name) != (peer.federation, peer.role, peer.name):
        said = f"airprune://{table.federation}/{table.role}/{table.name}"
        raise InvalidValue(str(folder / FILE), f"must be of the certificate's node, {peer.uri}", said)
    _check_places(table, peer.role, folder / FILE)
    check_certificate(folder, authority, certificate, key)
    role = peer.role.dials
    return Node(
        peer=peer,
        folder=folder,
        index=table.index,
        listen=table.listen,
        parents=tuple(
            Parent(name, role, address, peer.federation) for name, address in table.parents.items() if role is not None
        ),
        certificate=certificate,
        key=key,
        authority=authority,
    )


def save_parents(state: Path, parents: Sequence[Parent]) -> None:
    """Keeps the edges that a device may dial, as the fleet has them now, in the folder of its state."""
    with replacing(state / PARENTS) as file:
        file.write(toml_text.written({"parents": {parent.name: parent.address for parent in parents}}).encode())


def saved_parents(state: Path, node: Node) -> tuple[Parent, ...]:
    """Returns the edges to dial: those that were kept last, then those of the kit; home first."""
    if not (state / PARENTS).exists():
        return node.parents
    federation = node.peer.federation
    try:
        kept = read_table(state / PARENTS)["parents"].items()
        found = {name: Parent(name, Role.EDGE, checked_address(address), federation) for name, address in kept}
    except (UsageError, KeyError, AttributeError, TypeError):
        return node.parents
    found |= {parent.name: parent for parent in node.parents}  # in their places: addresses of the kit hold
    return tuple(found.values())


def _private(path: Path) -> bytes:
    content = read_file(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InvalidValue(str(path), "must be for its owner only", f"mode {mode:03o}", f"Do: chmod 600 {path}")
    return content


def _check_places(table: NodeFile, role: Role, path: Path) -> None:
    if role.listens != (table.listen is not None):
        rule = f"must {'be given' if role.listens else 'not be given'} for the role {role}"
        raise InvalidValue(f"{path}: listen", rule, table.listen or "nothing")
    if (role.dials is None) != (not table.parents):
        rule = "must be empty" if role.dials is None else f"must name at least one {role.dials}"
        raise InvalidValue(f"{path}: parents", rule, ", ".join(table.parents) or "nothing")


def check_certificate(folder: Path, authority: bytes, certificate: bytes, key: bytes) -> None:
    """Raises UsageError unless the certificate is valid now, of this authority and of this key."""
    own = x509.load_pem_x509_certificate(certificate)
    try:
        own.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        raise UsageError(
            f"{folder / CERTIFICATE} is not signed by {AUTHORITY} beside it; copy the whole kit."
        ) from None
    try:
        public = serialization.load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError):
        raise UsageError(f"{folder / KEY} is no private key; copy the whole kit.") from None
    renew = f"renew it with `airprune deploy renew FOLDER {peer_of(certificate).name}`"
    if public != own.public_key():
        raise UsageError(f"{folder / KEY} is not the key of {CERTIFICATE} beside it; copy the whole kit, or {renew}.")
    now = datetime.datetime.now(datetime.UTC)
    if now > own.not_valid_after_utc:
        raise UsageError(f"{folder / CERTIFICATE} expired on {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; {renew}.")
    if now < own.not_valid_before_utc:
        since = f"{own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise UsageError(f"{folder / CERTIFICATE} is valid from {since} on; is the clock of this machine right?")


def server_credentials(node: Node) -> grpc.ServerCredentials:
    """Returns what a node listens with: a peer without a certificate gets no further than the TLS handshake.

    For a renewed certificate a node listens anew: gRPC's credentials that can be exchanged abort the process under a
    flood of connections.
    """
    import grpc

    return grpc.ssl_server_credentials(
        [(node.key, node.certificate)], root_certificates=node.authority, require_client_auth=True
    )


def channel_credentials(node: Node) -> grpc.ChannelCredentials:
    """Returns what a node dials with; also give the option grpc.ssl_target_name_override = `Parent.server_name`."""
    import grpc

    return grpc.ssl_channel_credentials(
        root_certificates=node.authority, private_key=node.key, certificate_chain=node.certificate
    )
