"""Environments of their own for packages that airprune's own environment does not hold.

They are made from a package index once, below the cache folder, and used again until what they hold changes.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SOURCE = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "src")


def own_environment(name: str, wanted: Sequence[str], *, extras: str | None = None) -> Path:
    """Returns the Python of an environment with these packages; skips if they cannot be installed.

    Args:
      extras: of airprune, which is then installed as well; None: without airprune.
    """
    about = "\n".join([sys.version, *wanted, (ROOT / "pyproject.toml").read_text() if extras is not None else ""])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airprune/test-environments"
    folder = cache / f"{name}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of pytest share it
        if not (folder / "made").exists():
            _make(folder, list(wanted), extras)
    return folder / "bin/python"


def _make(folder: Path, wanted: list[str], extras: str | None) -> None:
    for old in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*/"):
        shutil.rmtree(old)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=300)
    with tempfile.TemporaryDirectory() as built:  # a build leaves files in its source
        install = [folder / "bin/python", "-m", "pip", "install", "-q", *wanted]
        if extras is not None:
            for name in _SOURCE:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, Path(built) / name)
            install.append(f"{built}[{extras}]")
        made = subprocess.run(install, capture_output=True, text=True, timeout=3600)
    if made.returncode:
        shutil.rmtree(folder)
        pytest.skip(f"{', '.join(wanted)} cannot be installed: {made.stderr.strip().splitlines()[-1]}")
    (folder / "made").touch()
