"""The nodes of a federation: which names are allowed, who is at home where, and the addresses of those who listen.

# members.toml, in the cloud's kit
federation = "lab"

[addresses]
cloud = "127.0.0.1:8700"
e0 = "192.168.1.10:8701"

[devices]
e0 = ["d0", "d1"]   # at home there; none: a standby edge
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from airprune.checks import whole_number
from airprune.deployment.identity.peers import LABEL, Role
from airprune.deployment.identity.tables import MAX_PORT, Address, address_of, is_host, read_table
from airprune.errors import InvalidValue
from airprune.settings.section import Section
from airprune.text import shown

FILE = "members.toml"
CLOUD = "cloud"
LOOPBACK = "127.0.0.1"
MAX_NODES = 10_000

Label = Annotated[str, Field(pattern=f"^{LABEL}$")]


class Members(Section):
    """Numbers of edges and devices are their places in `edges` and `all_devices`."""

    owner: ClassVar[str] = FILE

    federation: Label
    addresses: dict[Label, Address]
    devices: dict[Label, list[Label]]

    @model_validator(mode="after")
    def _names_fit(self) -> Members:
        listening = [CLOUD, *self.devices]
        if sorted(self.addresses) != sorted(listening):
            rule = f"must have the cloud and the edges that devices has, {', '.join(listening)}"
            raise InvalidValue(f"{FILE}: addresses", rule, ", ".join(self.addresses))
        name, times = Counter((*listening, *self.all_devices)).most_common(1)[0]
        if times > 1:
            raise InvalidValue(f"{FILE}: devices", "must have every name once", f"{name} {times} times")
        return self

    @property
    def edges(self) -> tuple[str, ...]:
        return tuple(self.devices)

    @property
    def standby(self) -> tuple[str, ...]:
        """Edges that wait for another's devices."""
        return tuple(edge for edge, devices in self.devices.items() if not devices)

    @property
    def all_devices(self) -> tuple[str, ...]:
        return tuple(device for devices in self.devices.values() for device in devices)

    @property
    def names(self) -> dict[Role, tuple[str, ...]]:
        return {Role.CLOUD: (CLOUD,), Role.EDGE: self.edges, Role.DEVICE: self.all_devices}

    def dialled_by(self, name: str) -> tuple[str, ...]:
        """Returns the nodes to dial: for an edge the cloud; for a device its home, standby edges, then the others."""
        if name == CLOUD:
            return ()
        if name in self.devices:
            return (CLOUD,)
        home = next(edge for edge, devices in self.devices.items() if name in devices)
        return tuple(dict.fromkeys((home, *self.standby, *self.edges)))


def plan_members(
    *,
    federation: str,
    num_edges: int,
    devices_per_edge: int | Sequence[int],
    hosts: Mapping[str, str],
    first_port: int,
    standby_edges: int,
) -> Members:
    """Edges e0, e1, … of which the last wait, and devices d0, d1, … in the order of their edges."""
    if not re.fullmatch(LABEL, federation):
        rule = "must be at most 32 lower-case letters, digits and inner hyphens"
        raise InvalidValue("federation", rule, shown(federation), "Example: lab-2")
    num_edges = whole_number("num_edges", num_edges, at_least=1, at_most=MAX_NODES)
    per_edge = [devices_per_edge] * num_edges if isinstance(devices_per_edge, int) else devices_per_edge
    sizes = [whole_number("devices_per_edge", size, at_least=1, at_most=MAX_NODES) for size in per_edge]
    if len(sizes) != num_edges:
        raise InvalidValue("devices_per_edge", f"must have one entry for each of {num_edges} edges", sizes)
    sizes += [0] * whole_number("standby_edges", standby_edges, at_most=MAX_NODES)
    if (total := 1 + len(sizes) + sum(sizes)) > MAX_NODES:
        raise InvalidValue("A federation", f"must have at most {MAX_NODES:,} nodes", f"{total:,}")
    whole_number(
        "first_port", first_port, at_least=1, at_most=MAX_PORT - len(sizes), way_out="Each edge takes one more."
    )
    listening = [CLOUD, *(f"e{number}" for number in range(len(sizes)))]
    for name, host in hosts.items():
        if name not in listening:
            rule = f"must be of the cloud or an edge ({', '.join(listening)})"
            raise InvalidValue("host", rule, shown(name), "Devices dial, and need none.")
        if not is_host(host):
            rule = "must be an IP address or a name, without a port"
            raise InvalidValue(f"host of {name}", rule, shown(host), f"Example: {name}=192.168.1.10")
    device = iter(range(total))
    return Members(
        federation=federation,
        addresses={
            name: address_of(hosts.get(name, LOOPBACK), port) for port, name in enumerate(listening, start=first_port)
        },
        devices={
            edge: [f"d{next(device)}" for _ in range(size)] for edge, size in zip(listening[1:], sizes, strict=True)
        },
    )


def load_members(folder: Path) -> Members:
    """Reads members.toml of the cloud's folder."""
    return Members(**read_table(folder / FILE))
