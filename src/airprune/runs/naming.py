"""Names of run folders, made from the values that distinguish runs, portable on every file system."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airprune.errors import AirpruneError
from airprune.runs.layout import RunFolder, is_free
from airprune.settings.toml_text import literal, word

if TYPE_CHECKING:
    from airprune.scenario import Scenario

_LONGEST_NAME = 120
_DIGEST_DIGITS = 8


def value_text(value: Any) -> str:
    """Returns a value as one would type it."""
    return value if isinstance(value, str) else literal(value).replace(", ", ",").strip('"')


def name_of(values: Mapping[str, Any], otherwise: str = "") -> str:
    """Returns a folder's name, made from the values alone, or from the text `otherwise` where there are none.

    Values that letters, digits, dots and hyphens cannot distinguish get a hash.
    """
    by_key = {key: value_text(value) for key, value in sorted(values.items())}
    exact = "_".join(f"{key}-{text}" for key, text in by_key.items()) or otherwise
    name = re.sub(r"[^a-z0-9._-]+", "-", exact.lower()).lstrip(".-")[:_LONGEST_NAME]
    if name != exact or any("_" in text for text in by_key.values()):
        digest = hashlib.sha256(json.dumps(by_key or exact).encode()).hexdigest()
        name = f"{name.rstrip('-')}-{digest[:_DIGEST_DIGITS]}"
    return name


def default_folder(runs: Path, scenario: Scenario, overrides: Iterable[str]) -> Path:
    """Returns the default folder of a run: runs/NAME-seedN, with the overridden values in between.

    If another scenario is there, such as an earlier version of the same file, the scenario's hash is added.
    """
    pairs = (text.partition("=") for text in overrides)
    changes = {key.strip(): word(value.strip()) for key, _, value in pairs}
    named = {key: value for key, value in changes.items() if key == "method" or not (key == "seed" or is_free(key))}
    words = [scenario.name, *([name_of(named)] if named else []), f"seed{scenario.seed}"]
    folder = runs / "-".join(words)
    return runs / f"{folder.name}-{scenario.hash[:_DIGEST_DIGITS]}" if _holds_another(folder, scenario) else folder


def _holds_another(folder: Path, scenario: Scenario) -> bool:
    held = RunFolder(folder)
    try:
        return held.has_run and held.scenario().hash != scenario.hash
    except AirpruneError:
        return False  # opening it reports the error
