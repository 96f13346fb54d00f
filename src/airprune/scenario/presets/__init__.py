"""Reads the scenarios that come with the package: one TOML file each, described by its first line."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from airprune.errors import UnknownName


def presets() -> dict[str, str]:
    """Returns the description of every preset by name."""
    return {name: _text(file).splitlines()[0].lstrip("# ") for name, file in _files().items()}


def preset_text(name: str) -> str:
    known = _files()
    if not isinstance(name, str) or name not in known:
        raise UnknownName("preset", name, known)
    return _text(known[name])


def _files() -> dict[str, Traversable]:
    found = files("airprune.scenario.presets").iterdir()
    named = {file.name.removesuffix(".toml"): file for file in found if file.name.endswith(".toml")}
    return {name: named[name] for name in sorted(named)}


def _text(file: Traversable) -> str:
    return file.read_text(encoding="utf-8")
