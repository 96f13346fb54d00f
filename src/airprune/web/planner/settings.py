"""The settings of the planner page, and their spelling in an address.

The query of the page's own address is the whole state, and the same query asks the API: a link repeats the picture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from airprune.errors import InvalidValue, UnknownName
from airprune.planning.schemes import SCHEMES
from airprune.scenario.sections import NetworkSection, PlanSection, RadioSection
from airprune.settings.problems import unknown_key
from airprune.settings.section import Ratio, Section

MAX_DEVICES = 1_000_000
MAX_MOVES = 2_000
MAX_DEADLINE_MS = 1e6

_NETWORK, _RADIO, _PLAN = NetworkSection(), RadioSection(), PlanSection()
_NUMBER = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)

Metres = Annotated[float, Field(ge=0, le=100_000)]
Move = tuple[tuple[int, ...], float, float]


class PlannerSettings(Section):
    """One state of the page; the defaults are the paper's network."""

    owner: ClassVar[str] = "planner"

    scheme: Annotated[str, Field(max_length=60)] = Field(
        default="optimal", description="a scheme of `airprune schemes`"
    )
    deadline_ms: Annotated[float, Field(ge=0.001, le=MAX_DEADLINE_MS)] = Field(
        default=30.0, description="time for one edge round, compute plus upload"
    )
    bandwidth_mhz: Annotated[float, Field(ge=0.001, le=1e5)] = Field(
        default=_RADIO.bandwidth_hz / 1e6, description="uplink band of each edge"
    )
    transmit_power_dbm: Annotated[float, Field(ge=-50, le=80)] = Field(
        default=_RADIO.transmit_power_dbm, description="of every device"
    )
    inner_m: Metres = Field(default=_NETWORK.inner_m, description="nearest device to its edge")
    outer_m: Annotated[float, Field(ge=1, le=100_000)] = Field(
        default=_NETWORK.outer_m, description="farthest device from its edge"
    )
    num_edges: Annotated[int, Field(ge=1, le=10_000)] = Field(default=_NETWORK.num_edges, description="edge servers")
    devices_per_edge: Annotated[int, Field(ge=1, le=10_000_000)] = Field(default=5, description="of each edge")
    cpu_ghz: Annotated[float, Field(ge=0.001, le=1000)] = Field(
        default=_NETWORK.cpu_hz / 1e9, description="middle of the devices' clock rates"
    )
    cpu_spread: Annotated[float, Field(ge=0, le=0.95)] = Field(
        default=0.0, description="clock rates are uniform within this share of the middle"
    )
    max_pruning: Ratio = Field(default=_PLAN.max_pruning_ratio, description="largest ratio allowed")
    seed: Annotated[int, Field(ge=0, le=2**53)] = Field(default=0, description="of places and clock rates")
    fleet: str | None = Field(default=None, description="a table sent before, by its SHA-256; replaces the network")
    moved: Annotated[str, Field(max_length=60_000)] | None = Field(
        default=None,
        description="devices moved by hand: EDGE.DEVICE_EAST_NORTH, or ROW_EAST_NORTH of a table, joined by *; metres "
        "from the edge",
    )

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> PlannerSettings:
        """Settings as an address spells them; what is no number stays text, for `Section` to complain about."""
        for name in query:
            if name not in cls.model_fields:
                raise unknown_key(cls.owner, name, cls.model_fields)
        return cls(**{name: _value(cls.model_fields[name].annotation, text) for name, text in query.items()})

    @field_validator("scheme")
    @classmethod
    def _known_scheme(cls, name: str) -> str:
        if name not in SCHEMES:
            raise UnknownName("planner.scheme", name, SCHEMES)
        return name

    @field_validator("fleet")
    @classmethod
    def _is_digest(cls, text: str | None) -> str | None:
        if text is not None and not _DIGEST.fullmatch(text):
            raise InvalidValue("planner.fleet", "must be the 64 hexadecimal digits of a table", repr(text[:70]))
        return text

    @field_validator("moved")
    @classmethod
    def _can_be_read(cls, text: str | None) -> str | None:
        _moves(text)
        return text

    @model_validator(mode="after")
    def _agree(self) -> PlannerSettings:
        self.check_order("inner_m", "outer_m")
        if (total := self.num_edges * self.devices_per_edge) > MAX_DEVICES:
            rule = f"must make at most {MAX_DEVICES:,} devices in all"
            raise InvalidValue("planner.devices_per_edge", rule, f"{total:,}", "For more, use `airprune plan`.")
        return self

    @property
    def moves(self) -> list[Move]:
        """((edge, device) or (row,), metres east, metres north of the edge)."""
        return _moves(self.moved)


def _value(kind: Any, text: str) -> Any:
    if kind is int and _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if kind is float and _NUMBER.fullmatch(text) else text


def _moves(text: str | None) -> list[Move]:
    parts = text.split("*") if text else []
    if len(parts) > MAX_MOVES:
        raise InvalidValue("planner.moved", f"must move at most {MAX_MOVES:,} devices", f"{len(parts):,}")
    return [_move(part) for part in parts]


def _move(part: str) -> Move:
    key, *metres = part.split("_")
    numbers = key.split(".")
    if (
        len(metres) == 2
        and len(numbers) <= 2
        and all(re.fullmatch(r"[0-9]{1,9}", number, re.ASCII) for number in numbers)
        and all(_NUMBER.fullmatch(number) and abs(float(number)) <= 100_000 for number in metres)
    ):
        return tuple(map(int, numbers)), float(metres[0]), float(metres[1])
    rule = "must be EDGE.DEVICE_EAST_NORTH with metres up to 100,000"
    raise InvalidValue("planner.moved", rule, repr(part[:60]), "Example: moved=0.3_120.5_-40")
