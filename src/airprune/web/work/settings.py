"""Settings of the work page, by their names in an address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from airprune.errors import InvalidValue, UnknownName
from airprune.settings.problems import unknown_key
from airprune.settings.section import Section
from airprune.web.work.boards import KINDS, LAYER_NAMES

MAX_DEVICES = 40
MAX_STEPS = 500

_COUNT = re.compile(r"[0-9]{1,3}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{0,12})?", re.ASCII)


class WorkSettings(Section):
    """One state of the page: devices of one edge."""

    owner: ClassVar[str] = "work"

    boards: Annotated[str, Field(max_length=400)] = Field(
        default="raspberry-pi-3b+*2,raspberry-pi-4*2,raspberry-pi-5*1",
        description="kinds of devices and how many of each: NAME*COUNT, joined by commas",
    )
    cpu_ghz: Annotated[float, Field(ge=0.1, le=10)] = Field(
        default=1.0, description="frequency of the kind cpu, at 8 FLOP per cycle"
    )
    deadline_ms: Annotated[float, Field(ge=0.01, le=1e6)] = Field(
        default=500.0, description="time for one edge round, compute plus upload"
    )
    bandwidth_mhz: Annotated[float, Field(ge=0.01, le=1e4)] = Field(default=20.0, description="uplink of the edge")
    bits_per_hz: Annotated[float, Field(ge=0.01, le=15)] = Field(
        default=5.0, description="bit/s that a device sends per Hz"
    )
    samples: Annotated[int, Field(ge=1, le=10_000)] = Field(default=200, description="training samples of a device")
    batch: Annotated[int, Field(ge=1, le=10_000)] = Field(default=32, description="samples of a local step")
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] = Field(default=14, description="local steps that are tried")
    first_trained: Annotated[int, Field(ge=0, lt=len(LAYER_NAMES))] = Field(
        default=0, description="lowest layer that is trained in the tried work; 0: all"
    )

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> WorkSettings:
        """Settings as an address spells them; what is no number stays text, for `Section` to complain about."""
        for name in query:
            if name not in cls.model_fields:
                raise unknown_key(cls.owner, name, cls.model_fields)
        return cls(**{name: _value(cls.model_fields[name].annotation, text) for name, text in query.items()})

    @field_validator("boards")
    @classmethod
    def _known(cls, text: str) -> str:
        _counts(text)
        return text

    @property
    def kinds(self) -> list[str]:
        """Returns the kind of each device, in the order of the list."""
        return [name for name, count in _counts(self.boards).items() for _ in range(count)]


def _value(kind: Any, text: str) -> Any:
    if kind is int and re.fullmatch(r"[0-9]{1,12}", text, re.ASCII):
        return int(text)
    return float(text) if kind is float and _NUMBER.fullmatch(text) else text


def _counts(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = part.partition("*")
        if name not in KINDS:
            raise UnknownName("work.boards", name[:60], KINDS)
        if name in found or not _COUNT.fullmatch(count):
            rule = "must be NAME*COUNT, each name once, joined by commas"
            raise InvalidValue("work.boards", rule, repr(part[:60]), "Example: raspberry-pi-4*2")
        found[name] = int(count)
    if not 1 <= sum(found.values()) <= MAX_DEVICES:
        raise InvalidValue("work.boards", f"must have 1 to {MAX_DEVICES} devices", sum(found.values()))
    return found
