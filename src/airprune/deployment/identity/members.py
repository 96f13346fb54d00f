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

from collections import Counter
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from airprune.deployment.identity.peers import LABEL, Role
from airprune.deployment.identity.tables import Address, read_table
from airprune.errors import InvalidValue
from airprune.settings.section import Section

FILE = "members.toml"
CLOUD = "cloud"

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
        """Whom a node dials: an edge the cloud; a device its home, then standby edges, then the others."""
        if name == CLOUD:
            return ()
        if name in self.devices:
            return (CLOUD,)
        home = next(edge for edge, devices in self.devices.items() if name in devices)
        return tuple(dict.fromkeys((home, *self.standby, *self.edges)))


def load_members(folder: Path) -> Members:
    """Of the cloud's kit."""
    return Members(**read_table(folder / FILE))


def names(folder: Path) -> dict[Role, tuple[str, ...]]:
    """All allowed names by role, in the order of their numbers; `folder` is the cloud's kit."""
    return load_members(folder).names
