"""Defines what a reader of files gets and returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airprune.data.samples import Columns, Samples


@dataclass(frozen=True, kw_only=True)
class FileRequest:
    """The file or folder to read, and what is wanted of it; as `read_files`."""

    path: Path
    targets: str
    columns: Columns
    sample_shape: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class FileParts:
    """The samples of a file or folder.

    Attributes:
      test: None if the format has no test part here.
      class_names: of the classes 0, 1, … where a reader has numbered them; empty otherwise.
    """

    train: Samples
    test: Samples | None = None
    class_names: tuple[str, ...] = ()
