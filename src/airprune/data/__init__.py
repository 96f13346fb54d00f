"""Loads data sets, shares them between processes and partitions them among devices.

load_dataset    MNIST, Fashion-MNIST, CIFAR-10 and Shakespeare, checked by SHA-256; glyphs, generated
as_dataset      your own arrays or torch data sets
share           one copy for many processes
partition       the samples of each device, IID or non-IID
draw_samples    the same for more devices than samples
"""

from airprune.data.base import Partition, PartitionTask
from airprune.data.catalog import DATASETS, dataset_named, fetch_dataset, load_dataset
from airprune.data.convert import as_dataset, standardized
from airprune.data.dataset import Dataset
from airprune.data.entry import DatasetEntry
from airprune.data.holdings import Holdings
from airprune.data.partitions import PARTITIONS, partition, partition_table
from airprune.data.sampling import draw_samples
from airprune.data.shared import SharedDataset, save_shared, share

__all__ = [
    "DATASETS",
    "DatasetEntry",
    "Dataset",
    "load_dataset",
    "fetch_dataset",
    "dataset_named",
    "as_dataset",
    "standardized",
    "SharedDataset",
    "save_shared",
    "share",
    "PARTITIONS",
    "Partition",
    "PartitionTask",
    "partition",
    "partition_table",
    "draw_samples",
    "Holdings",
]
