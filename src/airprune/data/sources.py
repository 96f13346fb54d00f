"""Reads data sets in four IDX files, as MNIST is published; see `published` for their sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airprune.data.dataset import Dataset
from airprune.data.entry import DatasetEntry, LoadOptions, places
from airprune.data.idx import BadFile, parse_idx
from airprune.data.published import Blobs, FileSource, PublishedFile, unit_images
from airprune.errors import WorkFailed


def mnist_like_files(
    *, train_images: str, train_labels: str, test_images: str, test_labels: str
) -> tuple[PublishedFile, ...]:
    """Returns the four files of a set published like MNIST, by their SHA-256: 60,000 + 10,000 images of 28 × 28."""
    return (
        PublishedFile("train-images-idx3-ubyte", train_images, 47_040_016),
        PublishedFile("train-labels-idx1-ubyte", train_labels, 60_008),
        PublishedFile("t10k-images-idx3-ubyte", test_images, 7_840_016),
        PublishedFile("t10k-labels-idx1-ubyte", test_labels, 10_008),
    )


@dataclass(frozen=True, kw_only=True)
class IdxSource(FileSource):
    """The source of four IDX files: train_x, train_y, test_x, test_y.

    Attributes:
      torchvision_name: name of the folder in which torchvision keeps the data set.
    """

    torchvision_name: str = ""

    @property
    def words(self) -> str:
        return "its four IDX files"

    def layouts(self, root: Path) -> tuple[Path, ...]:
        return root / self.name, root, root / (self.torchvision_name or self.name) / "raw"

    def dataset(self, blobs: Blobs, options: LoadOptions) -> Dataset:
        """Returns images as [N, 1, H, W]; the subset is taken of bytes, a quarter of the memory of floats."""
        train_x, train_y, test_x, test_y = (self._parse(blobs[file.name], file) for file in self.files)
        train, test = places(options, len(train_y), len(test_y))
        return Dataset(
            name=self.name,
            train_x=unit_images(train_x[train, None]),
            train_y=train_y[train].astype(np.int64),
            test_x=unit_images(test_x[test, None]),
            test_y=test_y[test].astype(np.int64),
            num_classes=self.num_classes,
        )

    def _parse(self, blob: bytes, file: PublishedFile) -> NDArray[np.uint8]:
        try:
            return parse_idx(blob)
        except BadFile as error:
            raise WorkFailed(f"{self.name}: {file.name} {error}.") from None


def idx_entry(source: IdxSource, *, summary: str) -> DatasetEntry:
    """Returns the catalog's entry for a source shaped like MNIST."""
    return DatasetEntry(
        name=source.name,
        summary=summary,
        num_train=60_000,
        num_test=10_000,
        max_train=60_000,
        max_test=10_000,
        num_classes=source.num_classes,
        feature_shape=(1, 28, 28),
        load=source.load_some,
        find=source.find,
        fetch=source.fetch,
    )
