"""The request of a page as a scenario: the same rules and the same sentences as on the command line."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from airprune.errors import UsageError
from airprune.methods.registration import import_words
from airprune.scenario import Scenario
from airprune.settings.toml_text import MAX_BYTES
from airprune.text import exact

Key = Annotated[str, Field(min_length=1, max_length=200)]
Value = Annotated[str, Field(max_length=20_000)]
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


class RunRequest(BaseModel):
    """A scenario: a preset and what differs from it, each value as one would type it after `key=`, or a TOML text."""

    model_config = ConfigDict(extra="forbid")

    preset: Annotated[str, Field(max_length=200)] | None = None
    overrides: Annotated[dict[Key, Value], Field(max_length=500)] = {}
    toml: Annotated[str, Field(max_length=MAX_BYTES)] | None = None

    def scenario(self) -> Scenario:
        scenario = self.base().with_overrides(f"{key}={value}" for key, value in self.overrides.items())
        scenario.check_names()
        return scenario

    def base(self) -> Scenario:
        """Before the overrides."""
        if (self.preset is None) == (self.toml is None):
            got = "neither" if self.preset is None else "both"
            raise UsageError(f"Either preset or toml must be given, got {got}. See /openapi.json.")
        return Scenario.preset(self.preset) if self.toml is None else Scenario.from_text(self.toml)  # type: ignore[arg-type]

    def command(self, out: Path) -> str:
        """Returns the command that does the same."""
        words = [f"{key}={value}" for key, value in self.overrides.items()]
        words += ["--out", str(out), *import_words()]
        return shlex.join(["airprune", "run", self.preset or "scenario.toml", *words])


def check(wanted: RunRequest, root: Path) -> dict[str, Any]:
    """{folder: a free name for it, command, differs: [key, value, what it was], toml}."""
    scenario = wanted.scenario()
    base = wanted.base() if wanted.toml is None else Scenario()
    folder = free_name(root, f"{scenario.name}-seed{scenario.seed}")
    return {
        "folder": folder,
        "command": wanted.command(root / folder),
        "differs": [[key, exact(here), exact(there)] for key, there, here in base.diff(scenario) if key != "name"],
        "toml": scenario.to_toml(),
    }


def free_name(root: Path, wish: str) -> str:
    """A name like `wish` that may be used in the runs folder and is not."""
    stem = _UNFIT.sub("-", wish)[:70].strip("._-") or "run"
    names = (stem if i == 1 else f"{stem}-{i}" for i in range(1, 1_000))
    return next((name for name in names if not os.path.lexists(root / name)), stem)
