"""Describes Fashion-MNIST: articles of clothing, 60,000 + 10,000 images of 28 × 28."""

from __future__ import annotations

from airprune.data.entry import DatasetEntry
from airprune.data.packages import DebianPackage
from airprune.data.sources import IdxSource, idx_entry, mnist_like_files

SOURCE = IdxSource(
    name="fashion-mnist",
    files=mnist_like_files(
        train_images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        train_labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        test_images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        test_labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    num_classes=10,
    mirrors=(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
    packages=(DebianPackage("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),),
    torchvision_name="FashionMNIST",
)

ENTRY: DatasetEntry = idx_entry(SOURCE, summary="articles of clothing, 28 x 28 grey; harder than digits")
