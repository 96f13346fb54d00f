"""Samples of a device's own and of an operator: what cannot be used is named at once, in one sentence."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from airprune.deployment.identity import make_federation
from airprune.deployment.own_data import samples_of
from airprune.errors import UsageError

X, Y = np.zeros((4, 1, 28, 28), np.float32), np.arange(4)


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kits") / "lab"
    make_federation(folder, num_edges=1, devices_per_edge=1)
    return folder


def cut(path):
    """Half of a good file, as an interrupted copy leaves it."""
    np.savez(path, x=X, y=Y)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def one_array(path):
    with path.open("wb") as file:
        np.save(file, X)


def damaged(path):
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=X.shape), y=Y)
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(content)


FILES = {
    "cut": cut,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("x, y"),
    "one array": one_array,
    "without x": lambda path: np.savez(path, y=Y),
    "objects": lambda path: np.savez(path, x=np.array([None]), y=Y),
}


@pytest.mark.parametrize("kind", [*FILES, "damaged"])
@pytest.mark.parametrize("words", [("submit", "cloud", "deployed"), ("predict", "d0")])
def test_an_operator_reads_one_sentence_about_samples_that_cannot_be_read(kits, kind, words, tmp_path, command):
    path = tmp_path / "samples.npz"
    {**FILES, "damaged": damaged}[kind](path)
    name, node, *rest = words
    status, out, err = command("deploy", name, kits / node, *rest, "--data", path)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: --data {path} cannot be read: ") and err.count("\n") == 1


@pytest.mark.parametrize("kind", [kind for kind in FILES if kind != "objects"])  # what is in an array, is read in a run
def test_a_device_is_not_started_with_samples_that_cannot_be_read(kits, kind, tmp_path, command):
    path = tmp_path / "samples.npz"
    FILES[kind](path)
    status, _, err = command("deploy", "device", kits / "d0", "--data", path)
    assert status == 2 and re.match(rf"error: --data {path} (cannot be read|has no x)", err) and err.count("\n") == 1


def test_a_device_is_not_started_without_labels_or_with_a_function_that_is_not_there(kits, tmp_path, command):
    np.savez(tmp_path / "x.npz", x=X)
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder/x.npy", X)
    for source, words in (
        (tmp_path / "x.npz", "has no y."),
        (tmp_path / "folder", "cannot be read: "),
        ("no_such_package:samples", "cannot be imported: No module named 'no_such_package'."),
        ("json:samples", "cannot be imported: module 'json' has no attribute 'samples'."),
        (":samples", "cannot be imported: "),
    ):
        status, _, err = command("deploy", "device", kits / "d0", "--data", source)
        assert status == 2 and f"error: --data {source} {words}" in err and err.count("\n") == 1


def test_samples_that_do_not_fit_the_model_are_named_with_the_rule(tmp_path, monkeypatch):
    def failing():
        raise RuntimeError("the sensor is off")

    monkeypatch.setitem(sys.modules, "yard", SimpleNamespace(failing=failing))
    work = SimpleNamespace(input_shape=(1, 28, 28), num_classes=10)
    hole = X.copy()
    hole[2, 0, 3, 4] = np.nan
    for name, x, y, sentence in (
        ("shape", X[:, 0], Y, r"x must have samples of shape \(1, 28, 28\), got \(28, 28\)"),
        ("labels", X, Y[:3], r"y must have one label for each of 4 samples, got \(3,\)"),
        ("classes", X, Y + 7, r"y must be whole numbers below 10, got 7 … 10"),
        ("hole", hole, Y, r"x must be finite numbers of float32; some are not"),
    ):
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
        with pytest.raises(UsageError, match=sentence):
            samples_of(str(tmp_path / f"{name}.npz"), work, 0)
    with pytest.raises(UsageError, match="yard:failing has raised RuntimeError: the sensor is off"):
        samples_of("yard:failing", work, 0)
