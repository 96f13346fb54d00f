"""Fashion-MNIST: articles of clothing, 60,000 + 10,000 images of 28 × 28."""

from __future__ import annotations

from airprune.data.entry import DatasetEntry
from airprune.data.packages import DebianPackage
from airprune.data.sources import IdxFile, IdxSource, idx_entry

SOURCE = IdxSource(
    name="fashion-mnist",
    files=(
        IdxFile(
            "train-images-idx3-ubyte", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888", 47_040_016
        ),
        IdxFile("train-labels-idx1-ubyte", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9", 60_008),
        IdxFile(
            "t10k-images-idx3-ubyte", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b", 7_840_016
        ),
        IdxFile("t10k-labels-idx1-ubyte", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34", 10_008),
    ),
    num_classes=10,
    mirrors=(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
    packages=(DebianPackage("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),),
    torchvision_name="FashionMNIST",
)

ENTRY: DatasetEntry = idx_entry(SOURCE, summary="articles of clothing, harder than digits")
