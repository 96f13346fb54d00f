"""Finds data sets of published files: the first source with the published contents is used.

    --data-dir  →  cache folder  →  system folder  →  public mirrors  →  distribution packages

The uncompressed contents must have the published SHA-256 in any case. A wrong file in --data-dir is an error, since the
user named it; anywhere else the next source is tried. Files from a mirror or a package are kept in --data-dir, or else
in the cache.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from airprune.data.dataset import Dataset
from airprune.data.entry import LoadOptions
from airprune.data.idx import BadFile, verified_bytes, verified_file
from airprune.data.mirrors import NotAvailable, download
from airprune.data.packages import Package
from airprune.errors import UsageError, WorkFailed
from airprune.files import atomic_file
from airprune.text import printable

SYSTEM_FOLDER = Path("/usr/share/datasets")
_GZIP_EXTRA_BYTES = 1 << 16  # gzip of incompressible data is a little longer than the data

Blobs = dict[str, bytes]


@dataclass(frozen=True)
class PublishedFile:
    """One published file; `sha256` and `num_bytes` are of the uncompressed contents."""

    name: str
    sha256: str
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class FileSource(ABC):
    """A data set of published files and their sources.

    Attributes:
      mirrors: HTTPS addresses, read by `mirrored`.
      packages: of software distributions.
      system_folder: as a distribution installs it; None for the data set's own under SYSTEM_FOLDER.
    """

    name: str
    files: tuple[PublishedFile, ...]
    num_classes: int
    mirrors: tuple[str, ...] = ()
    packages: tuple[Package, ...] = ()
    system_folder: Path | None = None

    @property
    @abstractmethod
    def words(self) -> str:
        """Describes the files that a user may put into --data-dir."""

    @abstractmethod
    def layouts(self, root: Path) -> tuple[Path, ...]:
        """Returns the folders under a data folder that may hold the files; ours first."""

    @abstractmethod
    def dataset(self, blobs: Blobs, options: LoadOptions) -> Dataset:
        """Builds the data set from the verified files."""

    def local(self, folder: Path) -> Callable[[], Blobs] | None:
        """Returns a function that reads the files of a folder; None if it lacks some."""
        paths = present(folder, [file.name for file in self.files])
        return None if paths is None else lambda: self._read(paths)

    def mirrored(self, mirror: str) -> Blobs:
        """Downloads the files from a mirror that holds each as `<name>.gz`."""
        return {name: download(f"{mirror}/{name}.gz", max_bytes=limit) for name, limit in self._limits.items()}

    def packaged(self, package: Package) -> Blobs:
        return package.read(self._limits)

    def find(self, data_dir: Path | None = None) -> Path | None:
        """Returns the first local folder that has all files; their contents are not read."""
        for folders in self._local(data_dir).values():
            for folder in folders:
                if self.local(folder):
                    return folder
        return None

    def fetch(self, data_dir: Path | None = None) -> tuple[Path, str]:
        """Fetches verified files to this machine, to `data_dir` if given; returns (the folder, the source)."""
        blobs, way, folder = self._resolve(data_dir)
        if folder is None or (data_dir is not None and folder not in self.layouts(data_dir)):
            folder = self._keep(blobs, (data_dir or cache_folder()) / self.name)
        return folder, way

    def load(self, data_dir: Path | None = None) -> Dataset:
        """Returns all samples."""
        return self.load_some(LoadOptions(data_dir=data_dir))

    def load_some(self, options: LoadOptions) -> Dataset:
        """Returns images scaled to [0, 1]. Fetched files are kept for the next time."""
        return self.dataset(self.contents(options.data_dir), options)

    def contents(self, data_dir: Path | None = None) -> Blobs:
        """Returns the verified files. Fetched ones are kept for the next time."""
        blobs, _, folder = self._resolve(data_dir)
        if folder is None:
            try:
                self._keep(blobs, (data_dir or cache_folder()) / self.name)
            except WorkFailed:
                if data_dir is not None:
                    raise
                # A read-only home makes the next load slower, not this one impossible.
        return blobs

    def verify(self, content: Blobs) -> Blobs:
        """Returns the uncompressed contents, or raises BadFile if they are not the published ones."""
        blobs = {}
        for file in self.files:
            try:
                blobs[file.name] = verified_bytes(content[file.name], sha256=file.sha256, num_bytes=file.num_bytes)
            except BadFile as error:
                raise BadFile(f"{file.name} {error}") from None
        return blobs

    @property
    def _limits(self) -> dict[str, int]:
        return {file.name: file.num_bytes + _GZIP_EXTRA_BYTES for file in self.files}

    def _resolve(self, data_dir: Path | None) -> tuple[Blobs, str, Path | None]:
        """Returns (verified contents by file name, their source, their folder if it is on this machine)."""
        tried: list[str] = []
        for label, folders in self._local(data_dir).items():
            faults = []
            for folder in folders:
                try:
                    if read := self.local(folder):
                        return read(), label, folder
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
            f"Data set {self.name!r} must have a source, got none ({'; '.join(tried)}). "
            f"Run `airprune data fetch {self.name}` with a network, give --data-dir with {self.words}, "
            "or use the data set 'glyphs', which needs neither."
        )

    def _local(self, data_dir: Path | None) -> dict[str, tuple[Path, ...]]:
        system = (self.system_folder or SYSTEM_FOLDER / self.name,)
        places = {"cache": self.layouts(cache_folder()), "system folder": system}
        return places if data_dir is None else {"--data-dir": self.layouts(data_dir), **places}

    def _remote(self) -> Iterator[tuple[str, Blobs | str]]:
        """Yields each remote source with its verified files, or the reason why not."""
        for mirror in self.mirrors:
            label = f"mirror {urlsplit(mirror).hostname}"
            try:
                yield label, self.verify(self.mirrored(mirror))
            except (NotAvailable, BadFile) as error:
                yield label, str(error)
        for package in self.packages:
            try:
                yield package.label, self.verify(self.packaged(package))
            except (NotAvailable, BadFile) as error:
                yield package.label, str(error)

    def _read(self, paths: Sequence[Path]) -> Blobs:
        blobs = {}
        for file, path in zip(self.files, paths, strict=True):
            try:
                blobs[file.name] = verified_file(path, sha256=file.sha256, num_bytes=file.num_bytes)
            except BadFile as error:
                raise BadFile(f"{printable(str(path))} {error}") from None
        return blobs

    def _keep(self, blobs: Blobs, folder: Path) -> Path:
        """Writes each file atomically, so that two processes may fetch at once."""
        for name, blob in blobs.items():
            with atomic_file(folder / name) as file:
                file.write(blob)
        return folder


def cache_folder() -> Path:
    """Returns $AIRPRUNE_DATA, else $XDG_CACHE_HOME/airprune, else ~/.cache/airprune."""
    if own := os.environ.get("AIRPRUNE_DATA"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airprune"


def present(folder: Path, names: Sequence[str]) -> list[Path] | None:
    """Returns the path of each file, plain or gzip, if the folder has all of them."""
    paths = []
    for name in names:
        try:
            path = next((p for p in (folder / name, folder / f"{name}.gz") if _is_there(p)), None)
        except OSError:  # a folder that we may not enter
            path = None
        if path is None:
            return None
        paths.append(path)
    return paths


def _is_there(path: Path) -> bool:
    """True also for a link or a pipe, which is refused with a sentence rather than overlooked."""
    return not stat.S_ISDIR(path.lstat().st_mode) if os.path.lexists(path) else False


def unit_images(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scales bytes to [0, 1]; the result is read-only."""
    images = np.divide(pixels, np.float32(255), dtype=np.float32)
    images.flags.writeable = False
    return images
