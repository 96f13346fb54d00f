"""Packages that only some uses need, imported when they are."""

from __future__ import annotations

import importlib
from typing import Any

from airprune.errors import UsageError


def needed(module: str, *, extra: str, purpose: str) -> Any:
    """The module; if it is not installed, one sentence that says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise UsageError(
            f"{purpose} needs the package {module.partition('.')[0]}, which is not installed: "
            f"pip install 'airprune[{extra}]' (in a checkout: pip install -c constraints.txt '.[{extra}]')."
        ) from None
