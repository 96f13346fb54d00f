"""Environments of their own for versions of Flower, which airprune's own environment does not hold."""

import os
import subprocess
from pathlib import Path

from support.own_environment import ROOT, own_environment

VERSIONS = ["1.24.0", "1.41.0", "newest"]


def environment(version: str) -> Path:
    """Returns the Python of an environment with this Flower, torch, scikit-learn and airprune; skips if there is none.

    airprune comes with the extras `flower` and `deploy`, so that an environment shows that these install together.
    """
    flower = "flwr" if version == "newest" else f"flwr=={version}"
    wanted = ["torch==2.13.0", "scikit-learn", "pytest", flower]
    return own_environment(f"flwr-{version}", wanted, extras="flower,deploy")


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
