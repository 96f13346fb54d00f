"""Where datasets in IDX files come from: the first way that leads to the published contents wins.

    --data-dir  →  cache folder  →  system folder  →  public mirrors  →  distribution packages

Whatever the way, the uncompressed contents must have the published SHA-256. A wrong file in --data-dir
is an error, since the user pointed at it; anywhere else it is a reason to try the next way.
What comes from a mirror or a package is kept in --data-dir, or else in the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from airprune.data.dataset import Dataset
from airprune.data.entry import DatasetEntry, subset
from airprune.data.files import atomic_file
from airprune.data.idx import BadFile, parse_idx, verified_bytes, verified_file
from airprune.data.mirrors import NotAvailable, download
from airprune.data.packages import Package
from airprune.errors import UsageError, WorkFailed
from airprune.wording import printable

SYSTEM_FOLDER = Path("/usr/share/datasets")
_GZIP_EXTRA_BYTES = 1 << 16  # gzip of incompressible data is a little longer than the data

Blobs = dict[str, bytes]


@dataclass(frozen=True)
class IdxFile:
    """One published file; `sha256` and `num_bytes` are of the uncompressed contents."""

    name: str
    sha256: str
    num_bytes: int


def mnist_like_files(
    *, train_images: str, train_labels: str, test_images: str, test_labels: str
) -> tuple[IdxFile, IdxFile, IdxFile, IdxFile]:
    """The four files of a set published like MNIST, by their SHA-256: 60,000 + 10,000 images of 28 × 28."""
    return (
        IdxFile("train-images-idx3-ubyte", train_images, 47_040_016),
        IdxFile("train-labels-idx1-ubyte", train_labels, 60_008),
        IdxFile("t10k-images-idx3-ubyte", test_images, 7_840_016),
        IdxFile("t10k-labels-idx1-ubyte", test_labels, 10_008),
    )


@dataclass(frozen=True, kw_only=True)
class IdxSource:
    """A dataset of four IDX files and the ways to them.

    Attributes:
      files: train_x, train_y, test_x, test_y.
      mirrors: folders by HTTPS that hold each file as `<name>.gz`.
      packages: of software distributions.
      torchvision_name: of the folder that torchvision keeps the dataset in.
      system_folder: as a distribution installs it; None for the dataset's own under SYSTEM_FOLDER.
    """

    name: str
    files: tuple[IdxFile, IdxFile, IdxFile, IdxFile]
    num_classes: int
    mirrors: tuple[str, ...] = ()
    packages: tuple[Package, ...] = ()
    torchvision_name: str = ""
    system_folder: Path | None = None

    def find(self, data_dir: Path | None = None) -> Path | None:
        """The first local folder that has all files; their contents are not looked at."""
        for folders in self._local(data_dir).values():
            for folder in folders:
                if _paths(folder, self.files):
                    return folder
        return None

    def fetch(self, data_dir: Path | None = None) -> tuple[Path, str]:
        """Makes sure that verified files are on this machine: in `data_dir` if given. The folder, and the way."""
        blobs, way, folder = self._resolve(data_dir)
        if folder is None or (data_dir is not None and folder not in self._layouts(data_dir)):
            folder = self._keep(blobs, (data_dir or cache_folder()) / self.name)
        return folder, way

    def load(self, data_dir: Path | None = None) -> Dataset:
        """Images scaled to [0, 1] as [N, 1, H, W]. What had to be fetched is kept for the next time."""
        blobs, _, folder = self._resolve(data_dir)
        if folder is None:
            try:
                self._keep(blobs, (data_dir or cache_folder()) / self.name)
            except WorkFailed:
                if data_dir is not None:
                    raise
                # A read-only home makes the next load slower, not this one impossible.
        arrays = [self._parse(blobs[file.name], file) for file in self.files]
        train_x, train_y, test_x, test_y = arrays
        return Dataset(
            name=self.name,
            train_x=_images(train_x),
            train_y=train_y.astype(np.int64),
            test_x=_images(test_x),
            test_y=test_y.astype(np.int64),
            num_classes=self.num_classes,
        )

    def _resolve(self, data_dir: Path | None) -> tuple[Blobs, str, Path | None]:
        """Verified contents by file name, the way they came, and their folder if they were on this machine."""
        tried: list[str] = []
        for label, folders in self._local(data_dir).items():
            faults = []
            for folder in folders:
                try:
                    if paths := _paths(folder, self.files):
                        return self._read(paths), label, folder
                except BadFile as error:
                    faults.append(str(error))
            if faults and label == "--data-dir":
                raise UsageError(f"{faults[0]}; replace it or choose another --data-dir.")
            tried.append(f"{label}: {faults[0] if faults else printable(str(folders[0])) + ' lacks its files'}")
        for label, blobs_or_reason in self._remote():
            if isinstance(blobs_or_reason, dict):
                return blobs_or_reason, label, None
            tried.append(f"{label}: {blobs_or_reason}")
        raise WorkFailed(
            f"Dataset {self.name!r} must come from somewhere, got nothing by any way ({'; '.join(tried)}). "
            f"Run `airprune data fetch {self.name}` with a network, give --data-dir with its four IDX files, "
            "or use the dataset 'glyphs', which needs neither."
        )

    def _local(self, data_dir: Path | None) -> dict[str, tuple[Path, ...]]:
        system = (self.system_folder or SYSTEM_FOLDER / self.name,)
        places = {"cache": self._layouts(cache_folder()), "system folder": system}
        return places if data_dir is None else {"--data-dir": self._layouts(data_dir), **places}

    def _layouts(self, root: Path) -> tuple[Path, ...]:
        """Where under a data folder the files may lie; ours first."""
        return root / self.name, root, root / (self.torchvision_name or self.name) / "raw"

    def _remote(self) -> Iterator[tuple[str, Blobs | str]]:
        """Each way in turn, with what it gave: the verified files, or why not."""
        limits = {file.name: file.num_bytes + _GZIP_EXTRA_BYTES for file in self.files}
        for mirror in self.mirrors:
            try:
                content = {name: download(f"{mirror}/{name}.gz", max_bytes=limit) for name, limit in limits.items()}
                yield f"mirror {urlsplit(mirror).hostname}", self._verify(content)
            except (NotAvailable, BadFile) as error:
                yield f"mirror {urlsplit(mirror).hostname}", str(error)
        for package in self.packages:
            try:
                yield package.label, self._verify(package.read(limits))
            except (NotAvailable, BadFile) as error:
                yield package.label, str(error)

    def _read(self, paths: list[Path]) -> Blobs:
        blobs = {}
        for file, path in zip(self.files, paths, strict=True):
            try:
                blobs[file.name] = verified_file(path, sha256=file.sha256, num_bytes=file.num_bytes)
            except BadFile as error:
                raise BadFile(f"{printable(str(path))} {error}") from None
        return blobs

    def _verify(self, content: Blobs) -> Blobs:
        blobs = {}
        for file in self.files:
            try:
                blobs[file.name] = verified_bytes(content[file.name], sha256=file.sha256, num_bytes=file.num_bytes)
            except BadFile as error:
                raise BadFile(f"{file.name} {error}") from None
        return blobs

    def _keep(self, blobs: Blobs, folder: Path) -> Path:
        """Each file appears whole under its name, so two processes that fetch at once do not disturb each other."""
        for name, blob in blobs.items():
            with atomic_file(folder / name) as file:
                file.write(blob)
        return folder

    def _parse(self, blob: bytes, file: IdxFile) -> NDArray[np.uint8]:
        try:
            return parse_idx(blob)
        except BadFile as error:
            raise WorkFailed(f"{self.name}: {file.name} {error}.") from None


def idx_entry(source: IdxSource, *, summary: str) -> DatasetEntry:
    """The catalog's line for a source shaped like MNIST."""
    return DatasetEntry(
        name=source.name,
        summary=summary,
        num_train=60_000,
        num_test=10_000,
        max_train=60_000,
        max_test=10_000,
        num_classes=source.num_classes,
        feature_shape=(1, 28, 28),
        load=lambda options: subset(source.load(options.data_dir), options),
        find=source.find,
        fetch=source.fetch,
    )


def cache_folder() -> Path:
    """$AIRPRUNE_DATA, else $XDG_CACHE_HOME/airprune, else ~/.cache/airprune."""
    if own := os.environ.get("AIRPRUNE_DATA"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airprune"


def _paths(folder: Path, files: tuple[IdxFile, ...]) -> list[Path] | None:
    """Each file, plain or gzip, if the folder has all of them."""
    paths = []
    for file in files:
        try:
            path = next((p for p in (folder / file.name, folder / f"{file.name}.gz") if p.is_file()), None)
        except OSError:  # a folder that we may not enter
            path = None
        if path is None:
            return None
        paths.append(path)
    return paths


def _images(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    images = np.divide(pixels[:, None], np.float32(255), dtype=np.float32)
    images.flags.writeable = False
    return images
