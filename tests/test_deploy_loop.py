"""Plans follow what is measured: an uplink that halves in the middle of a run."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airprune.deployment.cloud import deployed_run
from airprune.deployment.device import DeviceSettings, run_device
from airprune.deployment.edge import Edge, EdgeSettings
from airprune.deployment.identity import load_node, make_federation
from airprune.deployment.measured import MeasuredRow, read_inputs, read_measured
from airprune.deployment.remote import CloudSettings
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from support.relay import Cable, relay
from support.tiny import blobs

FIRST_PORT = 9_510
MBPS = 3.0
HALVES_AFTER = 3
ROUNDS = 8


def scenario() -> Scenario:
    """Two edges with one device each, so that a device has the whole band of its edge."""
    return Scenario().with_values(
        {
            "data.name": "glyphs",
            "data.train_samples": 120,
            "data.test_samples": 40,
            "model.name": "mlp",
            "network.num_edges": 2,
            "network.devices_per_edge": 1,
            "train.batch_size": 16,
            "train.local_epochs": 1,
            "rounds.global_rounds": ROUNDS,
            "rounds.edge_rounds": 1,
            "plan.deadline_s": 1.5,
            "plan.framing": True,
            "engine.name": "serial",
        }
    )


async def run_with_cable(folder: Path) -> None:
    cloud, *others = map(load_node, make_federation(folder / "kits", num_edges=2, devices_per_edge=1, first_port=FIRST_PORT))
    edges, devices = others[:2], others[2:]
    async with relay(edges[0].listen, rate_bps=1e6 * MBPS) as cable:
        parent = replace(devices[0].parents[0], address=f"127.0.0.1:{cable.port}")
        devices[0] = replace(devices[0], parents=(parent,))
        nodes = []
        for node in edges:
            (node.folder / "state").mkdir()
            nodes.append(asyncio.create_task(Edge(node, node.folder / "state", EdgeSettings()).run()))
        for node in devices:
            (node.folder / "state").mkdir()
            nodes.append(asyncio.create_task(run_device(node, node.folder / "state", DeviceSettings(data=None))))
        nodes.append(asyncio.create_task(asyncio.to_thread(_follow, cloud, folder / "run", cable)))
        await asyncio.gather(*nodes)


def _follow(node, folder: Path, cable: Cable) -> None:
    with deployed_run(node, scenario(), RunFolder(folder), CloudSettings(wait_s=20.0)) as records:
        for record in records:
            if record["kind"] == "global" and record["global_round"] == HALVES_AFTER:
                cable.rate_bps /= 2


def test_try(tmp_path):
    asyncio.run(asyncio.wait_for(run_with_cable(tmp_path), 120))
    for row in read_measured(RunFolder(tmp_path / "run")):
        print(row.global_round, row.name, row.fate, row.share, row.rate_bps, row.bytes, row.planned_compute_s, row.started_s, row.compute_s, row.planned_uplink_s, row.uplink_s, row.arrived_s)
