"""`airprune deploy init | revoke | renew`: the kits of a federation's nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from airprune.cli.console import say
from airprune.errors import InvalidValue, UsageError
from airprune.text import counted

Federation = Annotated[Path, typer.Argument(metavar="FOLDER", help="Made by `airprune deploy init`.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="e0, d3, …")]
Days = Annotated[int, typer.Option(min=1, max=36_500, help="How long certificates are valid.")]


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for authority and kits.")],
    edges: Annotated[int, typer.Option(min=1, help="Edges with devices: e0, e1, …")],
    devices_per_edge: Annotated[
        str, typer.Option(metavar="N", help="One number for all edges, or one for each, like 3,5.")
    ],
    standby: Annotated[int, typer.Option(min=0, help="More edges, which take over from one that stays away.")] = 0,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST", help="Where the cloud or an edge runs; without it, on this machine."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The cloud's; edges have those that follow.")] = 8700,
    federation: Annotated[str | None, typer.Option(metavar="NAME", help="By default a random one.")] = None,
    days: Days = 365,
) -> None:
    """Make an authority, and for each node a kit: its certificate, its key, and whom to dial.

    Example: `airprune deploy init lab --edges 2 --devices-per-edge 3 --host cloud=10.0.0.2 --host e0=10.0.0.3`
    """
    from airprune.deployment.identity import load_members, make_federation

    with _told(folder):
        kits = make_federation(
            folder,
            federation=federation,
            num_edges=edges,
            devices_per_edge=_sizes(devices_per_edge),
            hosts=_hosts(host or ()),
            first_port=port,
            days=days,
            standby_edges=standby,
        )
    for kit in kits:
        typer.echo(str(kit))
    members = load_members(kits[0])
    say(f"Federation {members.federation}: {counted(len(kits), 'kit')}, valid for {days} days.")
    if host and (near := [name for name, address in members.addresses.items() if address.startswith("127.")]):
        say(f"note: only nodes on the same machine reach {', '.join(near)}; --host NAME=HOST says where else.")
    say("Copy each kit, as a whole, to the machine of its node, and start the node with it.")
    say(f"Keep {folder / 'authority'} here: everybody who has ca-key.pem can make more kits.")


def revoke(folder: Federation, node: NodeName) -> None:
    """Refuse an edge or a device from now on, until its kit is renewed; prints the serial number that is refused.

    Example: `airprune deploy revoke lab d3`
    """
    from airprune.deployment.identity import revoke as revoke_node

    with _told(folder):
        serial = revoke_node(folder, node)
    typer.echo(serial)
    say(f"{node} is revoked.")
    _say_where_the_list_goes(folder)


def renew(folder: Federation, node: NodeName, days: Days = 365) -> None:
    """Give a node a new key and certificate, and refuse the old one; prints the kit.

    Example: `airprune deploy renew lab d3`
    """
    from airprune.deployment.identity import renew as renew_node

    with _told(folder):
        kit = renew_node(folder, node, days=days)
    typer.echo(str(kit))
    say(f"{node} has a new kit: copy it to the machine of the node and restart the node with it.")
    _say_where_the_list_goes(folder)


def _say_where_the_list_goes(folder: Path) -> None:
    say(f"If the cloud's kit is elsewhere, copy {folder / 'authority' / 'denied.toml'} into it.")


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What the system refuses is one sentence."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror} ({error.filename}).") from error


def _sizes(text: str) -> int | Sequence[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidValue(
            "--devices-per-edge", "must be a number, or one for each edge", repr(text), "Example: 3,5"
        ) from None
    return sizes[0] if len(sizes) == 1 else sizes


def _hosts(words: Sequence[str]) -> dict[str, str]:
    hosts: dict[str, str] = {}
    for word in words:
        name, equals, place = word.partition("=")
        if not (name and equals and place):
            raise InvalidValue("--host", "must be NAME=HOST", repr(word), "Example: --host e0=192.168.1.10")
        if name in hosts:
            raise InvalidValue("--host", "must be given once for each node", f"{name} twice")
        hosts[name] = place
    return hosts
