"""CIFAR-10: binary, Python and sheet form give the same files; a pickle never runs; only published bytes pass."""

import gzip
import hashlib
import io
import json
import os
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from airprune.data import cifar10
from airprune.data.cifar10 import SOURCE, batch
from airprune.data.entry import LoadOptions
from airprune.data.idx import BadFile
from airprune.data.mirrors import NotAvailable
from airprune.data.published import PublishedFile
from airprune.errors import UsageError

RNG = np.random.default_rng(0)
NAMES = [file.name.removesuffix(".bin") for file in SOURCE.files]
PLANES = [RNG.integers(0, 256, (6, 3072), dtype=np.uint8) for _ in NAMES]
LABELS = [np.arange(6, dtype=np.uint8) % 10 for _ in NAMES]
BLOBS = {f"{name}.bin": batch(y, x) for name, y, x in zip(NAMES, LABELS, PLANES, strict=True)}


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Six images per file instead of 10,000, and an empty cache."""
    monkeypatch.setenv("AIRPRUNE_DATA", str(tmp_path / "cache"))
    files = tuple(PublishedFile(n, hashlib.sha256(b).hexdigest(), len(b)) for n, b in BLOBS.items())
    return replace(SOURCE, files=files, mirrors=(), packages=(), system_folder=tmp_path / "none")


def python_form(protocol: int = 2, **changes) -> dict[str, bytes]:
    def content(y, x):
        return pickle.dumps({b"data": x, b"labels": y.tolist(), b"batch_label": b"one", **changes}, protocol)

    return {name: content(y, x) for name, y, x in zip(NAMES, LABELS, PLANES, strict=True)}


def sheets() -> dict[str, bytes]:
    """As the npm package has them: a picture per batch, one image per row, and labels in JSON."""
    found = {}
    for name, x in zip(NAMES, PLANES, strict=True):
        file = io.BytesIO()
        Image.fromarray(x.reshape(6, 3, 1024).transpose(0, 2, 1)).save(file, "PNG")
        found[f"{name}.png"] = file.getvalue()
    train = np.concatenate(LABELS[:5]).tolist()
    return found | {
        "train_lables.json": json.dumps(train).encode(),
        "test_lables.json": json.dumps(LABELS[5].tolist()).encode(),
    }


class Sheets:
    label = "a package"

    def __init__(self, **changes: bytes) -> None:
        self.found = {**sheets(), **changes}

    def read(self, max_bytes):
        return {name: self.found[name] for name in max_bytes}


def put(folder, contents, *, packed: bool = False):
    folder.mkdir(parents=True)
    for name, blob in contents.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(blob) if packed else blob)
    return folder


def check(dataset) -> None:
    np.testing.assert_allclose(dataset.test_x.reshape(6, 3072) * 255, PLANES[5], atol=1e-4)  # float32
    np.testing.assert_array_equal(dataset.train_y, np.concatenate(LABELS[:5]))
    assert dataset.feature_shape == (3, 32, 32) and dataset.num_train == 30


@pytest.mark.parametrize("layout", ["cifar-10", ".", "cifar-10-batches-bin"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_binary_form_is_found_where_it_is_usually_put(source, tmp_path, layout, packed):
    put(tmp_path / "data" / layout, BLOBS, packed=packed)
    check(source.load(tmp_path / "data"))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_the_python_form_gives_the_same_files(source, tmp_path, protocol):
    put(tmp_path / "data" / "cifar-10-batches-py", python_form(protocol))
    check(source.load(tmp_path / "data"))


def test_sheets_of_pixels_give_the_same_files_which_are_kept(source, tmp_path):
    source = replace(source, packages=(Sheets(),))
    check(source.load())
    assert {path.name: path.read_bytes() for path in (tmp_path / "cache/cifar-10").iterdir()} == BLOBS


def test_the_published_archive_gives_the_same_files(source, monkeypatch):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, blob in {**BLOBS, "readme.html": b"hello"}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    monkeypatch.setattr(cifar10, "download", lambda url, max_bytes: file.getvalue())
    check(replace(source, mirrors=("https://example.org/cifar.tar.gz",)).load())
    monkeypatch.setattr(cifar10, "download", lambda url, max_bytes: file.getvalue()[:200])
    with pytest.raises(NotAvailable, match="archive"):
        source.mirrored("https://example.org/cifar.tar.gz")


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({b"labels": Hostile()}, "cannot be read as arrays"),
        ({b"data": "text"}, "cannot be read"),
        ({b"data": np.zeros((6, 3072))}, "must hold bytes"),
        ({b"labels": [0]}, "one label for each of 6 images, got 1"),
        ({b"data": PLANES[0][::-1]}, "must have SHA-256"),
    ],
)
def test_pickles_run_nothing_and_must_hold_the_published_bytes(source, tmp_path, monkeypatch, change, sentence):
    monkeypatch.chdir(tmp_path)
    contents = python_form()
    contents[NAMES[0]] = pickle.dumps({b"data": PLANES[0], b"labels": LABELS[0].tolist(), **change}, 2)
    put(tmp_path / "data" / "cifar-10-batches-py", contents)
    with pytest.raises(UsageError, match=sentence):
        source.load(tmp_path / "data")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"data_batch_1.png": b"no picture"},
        {"test_lables.json": b"[1, 2"},
        {"test_batch.png": sheets()["data_batch_1.png"][:-40]},
    ],
)
def test_damaged_sheets_are_passed_over(source, changes):
    with pytest.raises((NotAvailable, BadFile)):
        source.verify(source.packaged(Sheets(**changes)))


def test_a_smaller_subset_is_part_of_a_larger_one(source, tmp_path):
    put(tmp_path / "data", BLOBS)
    few, more = (source.load_some(LoadOptions(data_dir=tmp_path / "data", train_samples=n, seed=4)) for n in (5, 20))
    np.testing.assert_array_equal(few.train_x, more.train_x[:5])


@pytest.mark.slow
def test_the_real_set_has_the_means_that_everybody_quotes_and_trains_in_the_lines_of_the_docs():
    import airprune as ap
    from airprune.data import load_dataset

    data = load_dataset("cifar-10", test_samples=1)
    np.testing.assert_allclose(data.train_x.mean(axis=(0, 2, 3)), [0.4914, 0.4822, 0.4465], atol=5e-5)
    np.testing.assert_allclose(data.train_x.std(axis=(0, 2, 3)), [0.2470, 0.2435, 0.2616], atol=5e-5)
    assert np.bincount(data.train_y).tolist() == [5_000] * 10
    changes = {"data.train_samples": 1_000, "data.test_samples": 500, "rounds.global_rounds": 3}
    *_, last = ap.run(ap.Scenario.preset("cifar").with_values(changes))
    assert last["test_accuracy"] > 0.15 and 0.0 < last["mean_pruning_ratio"] < 0.9  # chance is 0.1
