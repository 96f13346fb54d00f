"""The wheel, tried where nothing else is installed."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_one_wheel_plans_without_torch_on_every_python_here_and_trains_with_the_extra():
    """Several minutes: environments are made from a package index."""
    done = subprocess.run(["scripts/wheel", "--train"], cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^dist/airprune-\S+-cp311-abi3-\S+\.whl ", done.stdout, re.MULTILINE)
    assert re.search(r"^wheel, python3\.11: works, \d+ MB$", done.stdout, re.MULTILINE)
    assert re.search(r"^pip install '\.\[train\]', python3\.\d+: trains, \d+ MB$", done.stdout, re.MULTILINE)


def test_every_toml_file_of_the_package_goes_into_the_wheel():
    package = ROOT / "src/airprune"
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["airprune"]
    packed = {file for pattern in patterns for file in package.glob(pattern)}
    kept = set(package.rglob("*.toml"))
    assert len(kept) > 8 and kept <= packed


def test_the_kernel_keeps_to_the_stable_interface():
    """What makes one wheel serve every newer Python."""
    source = (ROOT / "src/airprune/models/kernels/native/paper_cnn.c").read_text()
    assert source.index("#define Py_LIMITED_API 0x030B0000") < source.index("#include <Python.h>")
    built = (ROOT / "src/airprune/models/kernels/native").glob("_paper_cnn.*.so")
    assert all(".abi3." in path.name for path in built)
