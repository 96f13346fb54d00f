"""Compares the devices' samples with flwr-datasets' own partitions; run by test_flwr_datasets.py where both are there.

Prints {partitioner: [[places of device 0], …]} as airprune has them and as flwr-datasets has them, as JSON.
"""

import json
import sys

import numpy as np
from datasets import Dataset
from flwr_datasets.partitioner import (
    DirichletPartitioner,
    IidPartitioner,
    LinearPartitioner,
    NaturalIdPartitioner,
    PathologicalPartitioner,
    ShardPartitioner,
    SquarePartitioner,
)

from airprune.data import as_dataset, partition

DEVICES, SIZE = 8, 400
RNG = np.random.default_rng(0)
POOL = Dataset.from_dict(
    {
        "place": np.arange(SIZE, dtype=np.float32)[:, None],
        "label": RNG.integers(0, 10, SIZE),
        "writer": RNG.permutation(SIZE) % DEVICES * 3,
    }
)
MAKERS = {
    "iid": lambda: IidPartitioner(DEVICES),
    "dirichlet": lambda: DirichletPartitioner(
        num_partitions=DEVICES, partition_by="label", alpha=0.5, min_partition_size=5, seed=3
    ),
    "pathological": lambda: PathologicalPartitioner(
        num_partitions=DEVICES, partition_by="label", num_classes_per_partition=3, seed=3
    ),
    "shards": lambda: ShardPartitioner(
        num_partitions=DEVICES, partition_by="label", num_shards_per_partition=2, shard_size=25, seed=3
    ),
    "natural": lambda: NaturalIdPartitioner(partition_by="writer"),
    "linear": lambda: LinearPartitioner(DEVICES),
    "square": lambda: SquarePartitioner(DEVICES),
}


def theirs(partitioner):
    partitioner.dataset = POOL
    parts = (partitioner.load_partition(n) for n in range(partitioner.num_partitions))
    return [sorted(int(place) for [place] in part["place"]) for part in parts]


def ours(partitioner):
    partitioner.dataset = POOL
    by_id = isinstance(partitioner, NaturalIdPartitioner)  # its column of ids is known to be no feature
    features = None if by_id else ["place"]
    data = as_dataset(partitioner, test=(np.zeros((10, 1)), np.arange(10)), features=features)
    edge = np.arange(DEVICES) % 2
    parts = partition(
        data.train_y, edge=edge, kind="natural", seed=7, owner=data.train_owner, owner_order=data.owner_order
    )
    return [sorted(data.train_x[part, 0].astype(int).tolist()) for part in parts]


json.dump({name: [ours(make()), theirs(make())] for name, make in MAKERS.items()}, sys.stdout)
