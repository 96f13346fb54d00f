"""Reads and writes `deployment.json` of a run folder: what a restarted cloud must send again.

It has the run's id, the members that it began with, how many samples each device has, which nodes serve as edges, and
what the model's shape depends on.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from airprune import files
from airprune.errors import UsageError, WorkFailed
from airprune.runs.layout import RunFolder
from airprune.runs.lines import sentence_if_unwritable

_MAX_ABOUT_BYTES = 2**24


def about_file(folder: RunFolder) -> Path:
    return folder.path / "deployment.json"


def read_about(folder: RunFolder) -> dict[str, Any]:
    """Reads what a restarted cloud must send again; makes up a run id for a new run."""
    path = about_file(folder)
    if not (folder.has_run and path.exists()):
        if folder.has_run:
            raise UsageError(f"{folder.path} holds a simulation; choose another folder for a deployment.")
        return {"run": secrets.token_hex(4)}
    try:
        found = json.loads(files.read_bytes(path, max_bytes=_MAX_ABOUT_BYTES))
        if not isinstance(found["run"], str) or not all(type(n) is int and n > 0 for n in found["num_samples"]):
            raise ValueError("of another kind")
    except (OSError, ValueError, KeyError, TypeError) as error:
        way_out = "restore it, or start over with --out and another folder"
        raise WorkFailed(f"{path} cannot be read ({error}); {way_out}.") from None
    return dict(found)


def write_about(folder: RunFolder, about: dict[str, Any]) -> None:
    with (
        sentence_if_unwritable(folder.path),
        files.replacing(about_file(folder), partial="deployment.partial") as file,
    ):
        file.write(json.dumps(about).encode())
