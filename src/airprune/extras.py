"""Packages that only some uses need, imported when they are."""

from __future__ import annotations

import importlib
from typing import Any

from airprune.errors import UsageError


def needed(module: str, *, purpose: str, package: str = "") -> Any:
    """The module; if it is not installed, one sentence that says which package to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise UsageError(
            f"{purpose} needs the package {module.partition('.')[0]}, which is not installed here; "
            f"pip install {package or module.partition('.')[0]}"
        ) from None
