"""Small runs on a cluster, and what they must end in."""

from pathlib import Path

import airprune as ap
from support.cluster import Cluster
from support.processes import PATIENCE_S
from support.tiny import blobs, final_bytes

# Ten epochs of 40 samples make a chunk of their own, so that edges merge several chunks.
PRUNED = {"plan__deadline_s": 2e-4, "train__local_epochs": 10, "rounds__global_rounds": 1}


def on(cluster: Cluster, scenario: ap.Scenario) -> ap.Scenario:
    return scenario.with_values({"engine.name": "dask", "engine.scheduler": cluster.scheduler_file})


def serial(folder: Path, scenario: ap.Scenario, **own) -> tuple[bytes, bytes]:
    own.setdefault("dataset", blobs())
    list(ap.run(scenario, out=folder, **own))
    return final_bytes(folder)


def wait_until_joined(cluster: Cluster, count: int) -> None:
    from airprune.engines.cluster.connection import connect

    with connect(cluster.scheduler_file, None) as client:
        client.wait_for_workers(count, timeout=PATIENCE_S)
