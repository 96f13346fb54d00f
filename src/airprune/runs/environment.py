"""Versions, commit and machine, which a result may depend on besides its scenario."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import airprune
from airprune.rounds.records import RECORDS_VERSION


def environment() -> dict[str, Any]:
    """Returns these facts by name, as a run folder records them."""
    return {
        "airprune": airprune.__version__,
        "records_version": RECORDS_VERSION,
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": _version("torch"),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
    }


def _version(package: str) -> str | None:
    """Returns the installed version without importing the package."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _commit() -> str | None:
    source = Path(airprune.__file__).parent
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "-C", str(source), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        return done.stdout.strip()
    return None
