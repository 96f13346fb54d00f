"""Plans follow what is measured: an uplink that halves in the middle of a run costs one round, not all that follow."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from airprune.deployment.cloud import deployed_run
from airprune.deployment.device import Device, DeviceSettings
from airprune.deployment.edge import Edge, EdgeSettings
from airprune.deployment.identity import Node, load_node, make_federation
from airprune.deployment.pacing import WIRE_OVERHEAD
from airprune.deployment.remote import CloudSettings
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredRow, read_inputs, read_measured
from airprune.scenario import Scenario
from support.namespaces import Link, Network, network
from support.relay import Cable, relay

FIRST_PORT = 9_510
# An update of 407 kB takes 2.3 s of the deadline, and twice as much after the change.
MBPS = 1.5
VALUES = {
    "data.name": "glyphs",
    "data.train_samples": 120,
    "data.test_samples": 40,
    "model.name": "mlp",
    "network.num_edges": 2,
    "network.devices_per_edge": 1,  # so that a device has all of the band of its edge
    "train.batch_size": 16,
    "train.local_epochs": 1,
    "rounds.global_rounds": 9,
    "rounds.edge_rounds": 1,
    "plan.deadline_s": 3.0,
    "plan.framing": True,
}
HALVES_AFTER, NUM_ROUNDS = 4, 9


def account(folder: Path) -> str:
    """Returns the outcome, round by round, of the device whose uplink halves."""
    inputs = read_inputs(RunFolder(folder))
    lines = ["round fate  planned Mbit/s    kB  upload began    took   of s"]
    for row in rows_of("d0", folder):
        used = inputs[row.round]
        planned_mbps = used.full_band_rate_bps[used.device.index(row.device)] * WIRE_OVERHEAD / 1e6
        lines.append(
            f"{row.global_round:5} {row.fate:<5} {planned_mbps:14.2f} {(row.bytes or 0) / 1e3:5.0f} "
            f"{row.started_s or np.nan:13.3f} {row.uplink_s or np.nan:7.3f} {row.deadline_s:6.3f}"
        )
    return "\n".join(lines)


def rows_of(name: str, folder: Path) -> list[MeasuredRow]:
    return [row for row in read_measured(RunFolder(folder)) if row.name == name]


def sent_in(global_round: int, name: str, folder: Path) -> int:
    return next(row.bytes for row in rows_of(name, folder) if row.global_round == global_round)


def assert_follows(folder: Path) -> None:
    told = account(folder)
    before = [row for row in rows_of("d0", folder) if 1 < row.global_round <= HALVES_AFTER]
    after = [row for row in rows_of("d0", folder) if HALVES_AFTER < row.global_round <= NUM_ROUNDS]
    assert [row.fate for row in before] == ["ok"] * 3, (
        told
    )  # in the first round nobody knows yet what comes before an upload
    assert [row.fate for row in after[1:]] == ["ok"] * 4, told
    assert sent_in(NUM_ROUNDS, "d0", folder) < 0.7 * sent_in(HALVES_AFTER, "d0", folder)
    assert sent_in(NUM_ROUNDS, "d1", folder) > 1.2 * sent_in(NUM_ROUNDS, "d0", folder)


async def run_with_cable(folder: Path) -> None:
    """All nodes in this process; the first device is on a relay that throttles."""
    kits = make_federation(folder / "kits", num_edges=2, devices_per_edge=1, first_port=FIRST_PORT)
    cloud, *edges_and_devices = map(load_node, kits)
    edges, devices = edges_and_devices[:2], edges_and_devices[2:]
    async with relay(edges[0].listen, rate_bps=1e6 * MBPS) as cable:
        parent = replace(devices[0].parents[0], address=f"127.0.0.1:{cable.port}")
        devices[0] = replace(devices[0], parents=(parent,))
        work = [Edge(node, node.folder, EdgeSettings()).run() for node in edges]
        work += [Device(node, node.folder, DeviceSettings()).run() for node in devices]
        await asyncio.gather(*work, asyncio.to_thread(follow_cloud, cloud, folder / "run", cable))


def follow_cloud(node: Node, folder: Path, cable: Cable) -> None:
    scenario = Scenario().with_values({**VALUES, "rounds.global_rounds": NUM_ROUNDS + 5})
    with deployed_run(node, scenario, RunFolder(folder), CloudSettings(wait_s=60.0, probe_every=2)) as records:
        for record in records:
            if record["kind"] == "global":
                cable.rate_bps *= {HALVES_AFTER: 0.5, NUM_ROUNDS: 2.0}.get(record["global_round"], 1.0)


@pytest.mark.slow
def test_when_an_uplink_halves_one_round_is_late_then_less_is_sent_and_more_again_when_probes_say_so(tmp_path):
    asyncio.run(asyncio.wait_for(run_with_cable(tmp_path), 120))
    run = tmp_path / "run"
    assert_follows(run)
    assert sent_in(NUM_ROUNDS + 5, "d0", run) > 1.3 * sent_in(NUM_ROUNDS, "d0", run), account(run)


@contextlib.contextmanager
def processes(net: Network, kits: Path) -> Iterator[None]:
    """Edges and devices, each where it belongs."""
    with contextlib.ExitStack() as stack:
        for place, role, kit in [("hub", "edge", "e0"), ("hub", "edge", "e1")] + [
            (d, "device", d) for d in ("d0", "d1")
        ]:
            command = net.inside(place, sys.executable, "-m", "airprune", "deploy", role, str(kits / kit))
            node = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            stack.callback(node.kill)
        yield


def rounds_done(folder: Path) -> int:
    return max((row.global_round for row in rows_of("d0", folder)), default=0)


@pytest.mark.slow
@pytest.mark.netns
def test_the_same_with_processes_on_a_shaped_link(tmp_path):
    kits, run = tmp_path / "kits", tmp_path / "run"
    with network({"hub": Link(), "d0": Link(mbps=MBPS), "d1": Link(mbps=MBPS)}) as net:
        hosts = dict.fromkeys(("cloud", "e0", "e1"), net.address("hub"))
        make_federation(kits, num_edges=2, devices_per_edge=1, hosts=hosts, first_port=FIRST_PORT)
        changes = [f"{key}={value}".replace("True", "true") for key, value in VALUES.items()]
        command = ["deploy", "cloud", str(kits / "cloud"), "deployed", *changes, "--out", str(run), "--wait", "200"]
        with (
            processes(net, kits),
            subprocess.Popen(net.inside("hub", sys.executable, "-m", "airprune", *command)) as cloud,
        ):
            try:
                end_s = time.monotonic() + 400
                while rounds_done(run) < HALVES_AFTER and time.monotonic() < end_s and cloud.poll() is None:
                    time.sleep(0.02)
                net.set_rate("d0", MBPS / 2)
                assert cloud.wait(max(1.0, end_s - time.monotonic())) == 0
            finally:
                cloud.kill()
    assert_follows(run)
