"""`airprune deploy shape`: the commands that hold devices to their shares on a gateway."""

from __future__ import annotations

from typing import Annotated

import typer

from airprune.checks import quantity
from airprune.deployment.shaping import htb_commands, planned_rates_bps
from airprune.errors import InvalidValue


def shape(
    plan: Annotated[
        str,
        typer.Argument(metavar="RUN_OR_PLAN", help="A run folder (its last round), or what `airprune plan` wrote."),
    ],
    interface: Annotated[str, typer.Option(help="Of the gateway, towards the edge, e.g. eth0.")],
    address: Annotated[
        list[str] | None, typer.Option(metavar="DEVICE=ADDRESS", help="A device's IP address; once for each device.")
    ] = None,
    edge: Annotated[str | None, typer.Option(help="Only the devices of this edge.")] = None,
    capacity_mbps: Annotated[
        float | None, typer.Option(help="What the whole band carries, unless the plan has a column `rate_bps`.")
    ] = None,
    printed: Annotated[bool, typer.Option("--print", help="Print the commands; they are never run from here.")] = True,
) -> None:
    """Write the `tc` commands that hold every device to its planned share of the uplink, as a shell script.

    Example: `airprune deploy shape plan.json --print --interface eth0 --capacity-mbps 100 --address d0=192.168.1.20`
    """
    if capacity_mbps is not None:
        quantity("--capacity-mbps", capacity_mbps, above=0.0)
    rates = planned_rates_bps(plan, edge=edge, capacity_bps=None if capacity_mbps is None else 1e6 * capacity_mbps)
    typer.echo("\n".join(htb_commands(interface, rates, _by_device(address or []))))


def _by_device(pairs: list[str]) -> dict[str, str]:
    addresses: dict[str, str] = {}
    for pair in pairs:
        device, equals, address = pair.partition("=")
        if not (device and equals) or device in addresses:
            raise InvalidValue("--address", "must be DEVICE=ADDRESS, once for each", pair, "Example: d0=192.168.1.20")
        addresses[device] = address
    return addresses
