"""Environments of their own for versions of Flower, which airprune's own environment does not hold.

They are made from a package index once, below the cache folder, and used again until what they hold changes.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ["1.24.0", "1.41.0", "newest"]
_SOURCE = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "src")


def environment(version: str) -> Path:
    """Returns the Python of an environment with this Flower, torch, scikit-learn and airprune; skips if there is none.

    airprune comes with the extras `flower` and `deploy`, so that an environment shows that these install together.
    """
    wanted = ["torch==2.13.0", "scikit-learn", "pytest", "flwr" if version == "newest" else f"flwr=={version}"]
    about = "\n".join([sys.version, *wanted, (ROOT / "pyproject.toml").read_text()])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airprune/test-environments"
    folder = cache / f"flwr-{version}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of pytest share it
        if not (folder / "made").exists():
            _make(folder, wanted)
    return folder / "bin/python"


def _make(folder: Path, wanted: list[str]) -> None:
    for old in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*/"):
        shutil.rmtree(old)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=300)
    with tempfile.TemporaryDirectory() as built:  # a build leaves files in its source
        for name in _SOURCE:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(built) / name)
        install = [folder / "bin/python", "-m", "pip", "install", "-q", *wanted, f"{built}[flower,deploy]"]
        made = subprocess.run(install, capture_output=True, text=True, timeout=3600)
    if made.returncode:
        shutil.rmtree(folder)
        pytest.skip(f"{', '.join(wanted)} cannot be installed: {made.stderr.strip().splitlines()[-1]}")
    (folder / "made").touch()


def run_in(version: str, *words: str | Path, cwd: Path, timeout_s: float = 600) -> subprocess.CompletedProcess:
    """Runs Python of an environment, with `variables`."""
    command = [environment(version), *words]
    return subprocess.run(
        command, cwd=cwd, env=os.environ | variables(), capture_output=True, text=True, timeout=timeout_s
    )


def variables() -> dict[str, str]:
    """Returns variables with which Python has the airprune of this tree, and Flower no telemetry."""
    return {
        "PYTHONPATH": str(ROOT / "src"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }
