"""`airprune deploy add | remove | move | invite | enrol`: a federation that grows, also while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airprune.cli.console import say
from airprune.cli.deploy.federation import Days, Federation, NodeName, say_where_lists_go, writing
from airprune.errors import UnknownName, UsageError

AtEdge = Annotated[str, typer.Option("--edge", metavar="NAME", help="Home of the devices, e.g. e0.")]


def add(
    kind: Annotated[str, typer.Argument(metavar="device|edge", help="What to add.")],
    folder: Federation,
    edge: Annotated[str | None, typer.Option("--edge", metavar="NAME", help="Home of a device, e.g. e0.")] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="Number of devices.")] = 1,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the node.  [default: the next]")] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Host of an edge.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=1, max=65_535, help="Port of an edge.  [default: the next]")
    ] = None,
    days: Days = 365,
) -> None:
    """Add devices or an edge to a federation, which may be running; prints the new kits.

    A new edge is a standby edge until devices are added or moved to it. Jobs that run keep to the nodes that they began
    with.

    Example: `airprune deploy add device lab --edge e0`
    """
    from airprune.deployment.identity import add_devices, add_edge

    if kind not in ("device", "edge"):
        raise UnknownName("Kind of node", kind, ("device", "edge"))
    if kind == "device" and edge is None:
        raise UsageError("A device needs a home: give --edge, e.g. --edge e0.")
    with writing(folder):
        if edge is not None and kind == "device":
            kits = add_devices(folder, edge, count=count, name=name, days=days)
        else:
            kits = [add_edge(folder, host=host, port=port, name=name, days=days)]
    for kit in kits:
        typer.echo(str(kit))
    say("Copy each kit, as a whole, to the machine of its node, and start the node with it.")
    say_where_lists_go(folder, "members.toml")


def remove(folder: Federation, node: NodeName) -> None:
    """Take a node out of a federation, which may be running, and refuse it from now on.

    Example: `airprune deploy remove lab d3`
    """
    from airprune.deployment.identity import remove as remove_node

    with writing(folder):
        serial = remove_node(folder, node)
    typer.echo(serial)
    say(f"{node} is no longer a member; its kit may be deleted.")
    say_where_lists_go(folder, "members.toml", "denied.toml")


def move(
    folder: Federation,
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="E.g. d3.")],
    edge: Annotated[str, typer.Argument(metavar="EDGE", help="Its new home, e.g. e1.")],
) -> None:
    """Give a device another home edge; it connects there at once, or after the job that runs.

    Example: `airprune deploy move lab d3 e1`
    """
    from airprune.deployment.identity import move as move_device

    with writing(folder):
        move_device(folder, device, edge)
    say(f"{device} is at home at {edge}.")
    say_where_lists_go(folder, "members.toml")


def invite(
    folder: Federation,
    edge: AtEdge,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="Number of codes, each for one device.")] = 1,
    hours: Annotated[float, typer.Option(metavar="HOURS", help="Validity of the codes.")] = 24.0,
    days: Days = 365,
) -> None:
    """Print one-time codes with which devices get their certificates from a cloud that enrols; see `deploy enrol`.

    Example: `airprune deploy invite lab --edge e0 --count 20`
    """
    from airprune.deployment.identity.enrolment import invite as make_codes

    with writing(folder):
        codes = make_codes(folder, edge, count=count, hours=hours, days=days)
    for code in codes:
        typer.echo(code)


def enrol(
    code: Annotated[str, typer.Argument(metavar="CODE", help="One-time code of `airprune deploy invite`.")],
    at: Annotated[
        str, typer.Option("--at", metavar="HOST:PORT", help="The cloud, with the port of `deploy serve --enrol-port`.")
    ],
    kit: Annotated[Path, typer.Option("--kit", metavar="DIR", help="New folder for the kit of this device.")] = Path(
        "kit"
    ),
) -> None:
    """Make the kit of this device: its key is made here and never leaves it; the certificate comes from the cloud.

    Example: `airprune deploy enrol CODE --at cloud.example:8699 --kit kit`
    """
    from airprune.deployment.fleet.enrolment_server import enrol_at

    with writing(kit):
        node = enrol_at(at, code, kit)
    typer.echo(str(kit))
    say(f"This device is {node.peer.name} of {node.peer.federation}; start it with `airprune deploy device {kit}`.")
