"""Temporary folders with private keys: a killed process leaves one, and the next process removes it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from airprune.engines.cluster.scratch import ScratchFolder

HOLDS_A_FOLDER = """
import sys, time
from airprune.engines.cluster.scratch import ScratchFolder
folder = ScratchFolder("cluster")
open(folder.name + "/key.pem", "w").close()
print(folder.name, flush=True)
time.sleep(600)
"""


def _is_old(folder: Path) -> None:
    an_hour_ago = time.time() - 3600
    os.utime(folder, (an_hour_ago, an_hour_ago))


def test_a_killed_process_leaves_its_folder_and_the_next_one_removes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / "airprune-clusters-of-mine"
    other.mkdir()
    _is_old(other)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_FOLDER], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        try:
            _is_old(left)
            with ScratchFolder("factory") as own:
                assert (left / "key.pem").exists()  # its process lives
        finally:
            process.kill()
    assert left.exists()
    with ScratchFolder("factory") as own:
        assert not left.exists() and Path(own).exists() and other.exists()
    assert sorted(tmp_path.iterdir()) == [other]


def test_a_folder_that_was_just_made_is_not_taken_for_an_abandoned_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    young = tmp_path / "airprune-cluster-new"
    young.mkdir()
    with ScratchFolder("workers"):
        assert young.exists()
    _is_old(young)
    with ScratchFolder("workers"):
        assert not young.exists()
