"""Sections of a scenario: values of fixed types, checked strictly, with one sentence for an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from airprune.errors import InvalidValue
from airprune.settings.problems import first_problem

MAX_COUNT = 1_000_000  # of edges, devices, rounds: beyond it, a slip of the keyboard


def starts_at_home(path: str) -> bool:
    return path == "~" or path.startswith("~/")


def _absolute(path: str) -> str:
    return str((Path(path).expanduser() if starts_at_home(path) else Path(path)).absolute())


Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Decibel = Annotated[float, Field(ge=-300, le=300)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
PerEdge = Count | tuple[Count, ...]
Text = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
FilePath = Annotated[Text, AfterValidator(_absolute)]  # absolute, so that a copied scenario still finds its files


@dataclass(frozen=True)
class Label:
    """Marks a field on which no result depends, as `Annotated[Text, Label()]`: the scenario's hash excludes it."""


def is_label(field: FieldInfo) -> bool:
    """Returns whether a field is marked as a label."""
    return any(isinstance(mark, Label) for mark in field.metadata)


class Section(BaseModel):
    """Frozen values of fixed types. An integer passes as a float; nothing else is converted.

    Lists become tuples, numpy scalars plain numbers, and the word "none" None where a field is optional.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
    owner: ClassVar[str] = "Scenario"
    either: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of fields of which one is given: setting one unsets the other."""

    @classmethod
    def overlaid(cls, values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Returns plain values with some changed."""
        values = dict(values)
        for pair in cls.either:
            if sum(changes.get(one) not in (None, "none") for one in pair) == 1:
                values |= dict.fromkeys(pair)
        return values | dict(changes)

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise first_problem(type(self), self.owner, data, error) from None

    def check_order(self, low: str, high: str) -> None:
        """Refuses a range whose `high` end, if given, is below its `low` end."""
        least, most = getattr(self, low), getattr(self, high)
        if most is not None and most < least:
            raise InvalidValue(f"{self.owner}.{high}", f"must be ≥ {low} = {least:g}", f"{most:g}")

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = cls._optional()
        return {name: _as_plain(value, optional=name in optional) for name, value in data.items()}

    @classmethod
    def _optional(cls) -> set[str]:
        return {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}


def _as_plain(value: Any, *, optional: bool = False) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return tuple(entry.item() if isinstance(entry, np.generic) else entry for entry in value)
    if isinstance(value, float) and value == 0:
        return 0.0  # -0.0 equals 0.0 but would hash differently
    return None if optional and isinstance(value, str) and value == "none" else value
