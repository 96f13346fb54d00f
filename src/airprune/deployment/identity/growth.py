"""Adds, removes and moves the nodes of a federation, also while it runs: the cloud reads its members again.

The members are in FOLDER/authority/members.toml and, if the cloud's kit is still there, in FOLDER/cloud/members.toml.
Names are never used twice, so that the certificate of a node that was removed is never another's.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from airprune.authority import Certified
from airprune.checks import whole_number
from airprune.deployment.identity import members as members_file
from airprune.deployment.identity import node
from airprune.deployment.identity.kits import (
    MAX_DAYS,
    certified,
    deny_in,
    issued_file,
    load_signer,
    locked_authority,
    node_text,
)
from airprune.deployment.identity.members import CLOUD, LOOPBACK, MAX_NODES, Members, load_members
from airprune.deployment.identity.peers import LABEL, Peer, Role, serial_of
from airprune.deployment.identity.tables import MAX_PORT, address_of, is_host
from airprune.errors import InvalidValue, UnknownName, UsageError
from airprune.files import replacing
from airprune.settings import toml_text
from airprune.text import shown


def members_of(folder: Path) -> Members:
    """Reads the members of a federation at the desk."""
    place = folder / "authority"
    return load_members(place if (place / members_file.FILE).is_file() else folder / CLOUD)


def add_devices(folder: Path, edge: str, *, count: int = 1, name: str | None = None, days: int = 365) -> list[Path]:
    """Makes kits for new devices at home at an edge; returns them. Names go on from the last, unless one is given."""
    count = whole_number("count", count, at_least=1, at_most=MAX_NODES)
    if name is not None and count > 1:
        raise UsageError(f"One name is for one device, got {name} and {count} devices; leave one of the two out.")
    with locked_authority(folder) as authority:
        names = [new_name(authority, "d", name)] if name else new_names(authority, "d", count)
        found = with_devices(members_of(folder), edge, names)
        return _made(folder, authority, found, Role.DEVICE, names, days)


def add_edge(
    folder: Path, *, host: str = LOOPBACK, port: int | None = None, name: str | None = None, days: int = 365
) -> Path:
    """Makes a kit for a new edge, which is a standby edge until devices are added or moved to it; returns it."""
    if not is_host(host):
        raise InvalidValue("host", "must be an IP address or a name, without a port", shown(host))
    with locked_authority(folder) as authority:
        found = members_of(folder)
        own = new_name(authority, "e", name)
        last = max(int(address.rpartition(":")[2]) for address in found.addresses.values())
        port = whole_number("port", last + 1 if port is None else port, at_least=1, at_most=MAX_PORT)
        found = Members(
            federation=found.federation,
            addresses={**found.addresses, own: address_of(host, port)},
            devices={**found.devices, own: []},
        )
        return _made(folder, authority, found, Role.EDGE, [own], days)[0]


def remove(folder: Path, name: str) -> str:
    """Takes a node out of the federation and refuses its certificate from now on; returns its serial number."""
    with locked_authority(folder) as authority:
        found = members_of(folder)
        serial = serial_of(issued_file(authority, name).read_bytes())
        if name == CLOUD:
            raise UsageError("The cloud cannot be removed; make another federation.")
        if found.devices.get(name):
            devices = ", ".join(found.devices[name][:8])
            raise UsageError(f"{name} is the home of {devices}; move them first with `airprune deploy move`.")
        if name not in (*found.edges, *found.all_devices):
            raise UnknownName("node", name, [*found.edges, *found.all_devices])
        addresses = {one: address for one, address in found.addresses.items() if one != name}
        homes = {edge: [d for d in devices if d != name] for edge, devices in found.devices.items() if edge != name}
        deny_in(folder, serial, name)
        write_members(folder, Members(federation=found.federation, addresses=addresses, devices=homes))
        return serial


def move(folder: Path, device: str, edge: str) -> None:
    """Gives a device another home; one that is in a run moves with the next."""
    with locked_authority(folder):
        found = members_of(folder)
        if device not in found.all_devices:
            raise UnknownName("device", device, found.all_devices)
        if device in found.devices.get(edge, ()):
            return  # where it is at home already; its place in the order of devices stays
        homes = {home: [d for d in devices if d != device] for home, devices in found.devices.items()}
        left = Members(federation=found.federation, addresses=found.addresses, devices=homes)
        write_members(folder, with_devices(left, edge, [device]))


def with_devices(found: Members, edge: str, names: list[str]) -> Members:
    """Returns the members with more devices at an edge."""
    if edge not in found.devices:
        raise UnknownName("edge", edge, found.edges)
    if (total := 1 + len(found.edges) + len(found.all_devices) + len(names)) > MAX_NODES:
        raise InvalidValue("A federation", f"must have at most {MAX_NODES:,} nodes", f"{total:,}")
    devices = {**found.devices, edge: [*found.devices[edge], *names]}
    return Members(federation=found.federation, addresses=found.addresses, devices=devices)


def new_name(authority: Path, letter: str, name: str | None = None) -> str:
    """Returns the name, which no node may have had, or the next of the kind d0, d1, …"""
    if name is None:
        return new_names(authority, letter, 1)[0]
    if not re.fullmatch(LABEL, name):
        raise InvalidValue("name", "must be at most 32 lower-case letters, digits and inner hyphens", shown(name))
    if name in _names_so_far(authority):
        raise InvalidValue("name", "must be one that no node of the federation has had", name)
    return name


def new_names(authority: Path, letter: str, count: int) -> list[str]:
    """Returns the next names of the kind d0, d1, …"""
    numbers = [int(name[1:]) for name in _names_so_far(authority) if re.fullmatch(rf"{letter}\d{{1,9}}", name)]
    first = max(numbers, default=-1) + 1
    return [f"{letter}{number}" for number in range(first, first + count)]


def _names_so_far(authority: Path) -> set[str]:
    return {path.stem for path in (authority / "issued").glob("*.pem")} | {CLOUD, "authority"}


def write_members(folder: Path, found: Members) -> None:
    """Replaces the members at the desk, and in the cloud's kit if it is there."""
    content = toml_text.written(found.model_dump()).encode()
    for place in (folder / "authority", folder / CLOUD):
        if place.is_dir():
            with replacing(place / members_file.FILE) as file:
                file.write(content)


def _made(folder: Path, authority: Path, found: Members, role: Role, names: list[str], days: int) -> list[Path]:
    """Writes the kits of new nodes, then the members with them; a failure leaves the members as they were."""
    days = whole_number("days", days, at_least=1, at_most=MAX_DAYS)
    signer, kits = load_signer(authority), []
    for name in names:
        kits.append(_write_kit(folder, authority, signer, found, Peer(found.federation, role, name), days))
    write_members(folder, found)
    return kits


def _write_kit(folder: Path, authority: Path, signer: Certified, found: Members, peer: Peer, days: int) -> Path:
    own = certified(signer, peer, days)
    kit = folder / peer.name
    if kit.exists():
        raise UsageError(f"{kit} already exists; move it away, or choose another name.")
    arriving = Path(tempfile.mkdtemp(prefix=f".{peer.name}-", suffix=".partial", dir=folder))
    try:
        own.write(arriving, "node")
        (arriving / node.AUTHORITY).write_bytes(signer.certificate_pem)
        (arriving / node.FILE).write_text(node_text(found, peer.role, peer.name, _number(found, peer)))
        with replacing(authority / "issued" / f"{peer.name}.pem") as file:
            file.write(own.certificate_pem)
        arriving.rename(kit)
    except BaseException:
        shutil.rmtree(arriving, ignore_errors=True)
        raise
    return kit


def _number(found: Members, peer: Peer) -> int:
    return found.names[peer.role].index(peer.name)
