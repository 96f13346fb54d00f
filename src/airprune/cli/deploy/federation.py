"""`airprune deploy init | revoke | renew | shape`: a federation, its kits and their uplink shares.

A kit is a node's credentials bundle: its certificate, its key, and the addresses it connects to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from airprune.checks import quantity
from airprune.cli.console import say
from airprune.cli.options import named_values
from airprune.errors import InvalidValue, UsageError
from airprune.text import counted

Federation = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of the federation, made by `airprune deploy init`.")
]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Edge or device, e.g. e0 or d3.")]
Days = Annotated[int, typer.Option(metavar="DAYS", min=1, max=36_500, help="Validity of the certificates.")]


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder for authority and kits.")],
    edges: Annotated[int, typer.Option(metavar="N", min=1, help="Edges with devices: e0, e1, …")],
    devices_per_edge: Annotated[
        str, typer.Option(metavar="N", help="One number for all edges, or one for each, like 3,5.")
    ],
    standby: Annotated[
        int, typer.Option(metavar="N", min=0, help="Standby edges, which replace unreachable ones.")
    ] = 0,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HOST", help="Host of the cloud or an edge; may be repeated.  [default: this machine]"
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65_535, help="Port of the cloud; edges take the next ones.")
    ] = 8700,
    federation: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the federation.  [default: random]")
    ] = None,
    days: Days = 365,
) -> None:
    """Make a certificate authority, and a credentials bundle (kit) for each node.

    Example: `airprune deploy init lab --edges 2 --devices-per-edge 3 --host cloud=10.0.0.2 --host e0=10.0.0.3`
    """
    from airprune.deployment.identity import load_members, make_federation

    with writing(folder):
        kits = make_federation(
            folder,
            federation=federation,
            num_edges=edges,
            devices_per_edge=_sizes(devices_per_edge),
            hosts=named_values("--host", host or (), "NAME=HOST", "e0=192.168.1.10"),
            first_port=port,
            days=days,
            standby_edges=standby,
        )
    for kit in kits:
        typer.echo(str(kit))
    members = load_members(kits[0])
    say(f"Federation {members.federation}: {counted(len(kits), 'kit')}, valid for {days} days.")
    if host and (near := [name for name, address in members.addresses.items() if address.startswith("127.")]):
        say(f"note: only nodes on the same machine reach {', '.join(near)}; --host NAME=HOST sets another host.")
    say("Copy each kit, as a whole, to the machine of its node, and start the node with it.")
    say(f"Keep {folder / 'authority'} here: with ca-key.pem anyone can make more kits.")


def revoke(folder: Federation, node: NodeName) -> None:
    """Refuse an edge or a device from now on, until its kit is renewed; prints the serial number that is refused.

    Example: `airprune deploy revoke lab d3`
    """
    from airprune.deployment.identity import revoke as revoke_node

    with writing(folder):
        serial = revoke_node(folder, node)
    typer.echo(serial)
    say(f"{node} is revoked.")
    say_where_lists_go(folder, "denied.toml")


def renew(folder: Federation, node: NodeName, days: Days = 365) -> None:
    """Give a node a new key and certificate, and refuse the old one; prints the kit.

    Example: `airprune deploy renew lab d3`
    """
    from airprune.deployment.identity import renew as renew_node

    with writing(folder):
        kit = renew_node(folder, node, days=days)
    typer.echo(str(kit))
    say(f"{node} has a new kit: copy it to the machine of the node and restart the node with it.")
    say_where_lists_go(folder, "denied.toml")


def shape(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_PLAN", help="Run folder (its last round), or a file written by `airprune plan`."
        ),
    ],
    interface: Annotated[
        str, typer.Option(metavar="NAME", help="Network interface of the gateway towards the edge, e.g. eth0.")
    ],
    address: Annotated[
        list[str] | None, typer.Option(metavar="DEVICE=ADDRESS", help="IP address of a device; once for each.")
    ] = None,
    edge: Annotated[str | None, typer.Option(metavar="NAME", help="Only the devices of this edge.")] = None,
    capacity_mbps: Annotated[
        float | None,
        typer.Option(metavar="MBPS", help="Rate over the full bandwidth, unless the plan has a column `rate_bps`."),
    ] = None,
) -> None:
    """Print the `tc` commands that limit each device to its planned uplink share, as a shell script; runs none of them.

    Example: `airprune deploy shape plan.json --interface eth0 --capacity-mbps 100 --address d0=192.168.1.20`
    """
    from airprune.deployment.shaping import htb_commands, planned_rates_bps

    if capacity_mbps is not None:
        quantity("--capacity-mbps", capacity_mbps, above=0.0)
    rates = planned_rates_bps(plan, edge=edge, capacity_bps=None if capacity_mbps is None else 1e6 * capacity_mbps)
    addresses = named_values("--address", address or [], "DEVICE=ADDRESS", "d0=192.168.1.20")
    typer.echo("\n".join(htb_commands(interface, rates, addresses)))


def say_where_lists_go(folder: Path, *files: str) -> None:
    """Names the files that the cloud reads, if its kit is not here."""
    if not (folder / "cloud").is_dir():
        names = " and ".join(str(folder / "authority" / name) for name in files)
        say(f"The cloud's kit is elsewhere: copy {names} into it.")


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Makes one sentence of a failure to write."""
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
