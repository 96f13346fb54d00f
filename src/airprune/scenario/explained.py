"""Writes a scenario as TOML with the unit and the meaning of every setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from airprune.components.choice import ChoiceSection
from airprune.scenario.scenario import Scenario
from airprune.settings import toml_text
from airprune.settings.section import Section

# By how a key ends.
UNITS = {
    "noise_density_dbm_per_hz": "dBm/Hz",
    "bits_per_weight": "bit",
    "cycles_per_weight": "cycles",
    "flops_per_cycle": "FLOP",
    "flops_per_sample": "FLOP",
    "seconds_per_sample": "s",
    "_dbm": "dBm",
    "_db": "dB",
    "_hz": "Hz",
    "_hz_max": "Hz",
    "_m": "m",
    "_s": "s",
    "_ratio": "0 … 1",
    "_accuracy": "0 … 1",
    "_bps": "bit/s",
    "_j": "J",
    "_w": "W",
    "_probability": "0 … 1",
}


def unit_of(key: str) -> str:
    """Returns the unit of a key's value, by the end of its name; empty if it has none."""
    return next((unit for ending, unit in UNITS.items() if key.endswith(ending)), "")


def explained(scenario: Scenario, about: str) -> str:
    """Returns all values as TOML with their meanings as comments, below the line `about`; it reads back unchanged."""
    return f"# {about}\n" + toml_text.written(scenario.to_dict(), dict(_comments(scenario, ())))


def _comments(section: Section, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the comments of the section, its values, and the sections in it."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield (*path, name), _first_sentence(type(value))
            yield from _comments(value, (*path, name))
        else:
            yield (*path, name), _meaning(name, field)
    if isinstance(section, ChoiceSection):
        for name, options in (section.model_extra or {}).items():
            yield from _comments(options, (*path, name))


def _meaning(name: str, field: FieldInfo) -> str:
    """Returns the meaning with the unit first: `Hz: uplink bandwidth B of each edge`."""
    choices = ", ".join(_choices(field.annotation))
    parts = [unit_of(name), field.description or "", choices and f"one of {choices}"]
    head, *rest = [part for part in parts if part] or [""]
    return f"{head}: {'; '.join(rest)}" if rest and head == unit_of(name) else "; ".join([head, *rest])


def _choices(kind: Any) -> list[str]:
    """Returns the words that a field accepts, if it accepts no others."""
    return [str(word) for word in get_args(kind)] if get_origin(kind) is Literal else []


def _first_sentence(kind: type[Section]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())
