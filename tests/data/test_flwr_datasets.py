"""Partitioners of flwr-datasets, in an environment of its own: the same samples on the same devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_devices_hold_the_samples_of_flwr_datasets_partitions(tmp_path):
    """A minute or two: the environment is made from a package index."""
    python = tmp_path / "env/bin/python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True, timeout=300)
    install = [python, "-m", "pip", "install", "-q", "flwr-datasets==0.6.1"]
    made = subprocess.run(install, capture_output=True, text=True, timeout=1800)
    if made.returncode:
        pytest.skip(f"flwr-datasets cannot be installed: {made.stderr.strip().splitlines()[-1]}")
    offline = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    script = [python, Path(__file__).with_name("flwr_partitions.py")]
    done = subprocess.run(script, env=offline, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 7
    for name, (ours, theirs) in found.items():
        assert ours == theirs, name
        places = [place for part in ours for place in part]
        assert len(ours) == 8 and len(places) > 300 and len(set(places)) == len(places), name
