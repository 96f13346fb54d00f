"""A whole federation on loopback: real processes, real TLS, and the same run in simulation beside it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from airprune.deployment.cloud import deployed_run
from airprune.deployment.identity import load_node, make_federation
from airprune.deployment.remote import CloudSettings
from airprune.errors import WorkFailed
from airprune.runs import run
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredRow, read_measured
from airprune.scenario import Scenario

# On a busy machine the demo's devices must not miss the deadline: it compares bits, and only shows times.
_SETTINGS = CloudSettings(measures=False, grace_s=60.0, wait_s=120.0)
_STOPPED_WITHIN_S = 10.0
NO_OPTIONS: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Summarises ratios of measured over predicted."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, ratios: list[float]) -> Spread:
        p10, median, p90 = np.percentile(ratios, [10, 50, 90]).tolist()
        return cls(median=median, p10=p10, p90=p90)


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """Compares a deployment with its simulation.

    Attributes:
      same_model, same_records: whether both are the simulation's, byte for byte.
      bytes_sent, bytes_charged: of all uploads.
      uplink, compute: measured over predicted, per device and round.
      took_s: from the start of the processes to the last record.
    """

    name: str
    folder: Path
    accuracy: float
    same_model: bool
    same_records: bool
    num_uploads: int
    bytes_sent: int
    bytes_charged: int
    uplink: Spread
    compute: Spread
    took_s: float

    @property
    def is_as_simulated(self) -> bool:
        return self.same_model and self.same_records and self.bytes_sent == self.bytes_charged


def run_demo(scenario: Scenario, folder: Path, *, name: str, report: Callable[[str], None]) -> DemoResult:
    """Deploys a scenario with `network.num_edges` edges in processes of this machine, then simulates it.

    Args:
      folder: new; gets kits/, logs/, deployed/ and simulated/.
    """
    network = scenario.build_network()
    devices_per_edge = np.bincount(network.edge, minlength=network.num_edges).tolist()
    kits = make_federation(
        folder / "kits",
        num_edges=network.num_edges,
        devices_per_edge=devices_per_edge,
        first_port=free_ports(1 + network.num_edges),
    )
    deployed, simulated = RunFolder(folder / "deployed"), RunFolder(folder / "simulated")
    report(f"{name}: starting {len(kits) - 1} processes: {network.num_edges} edges, {network.num_devices} devices")
    start_s = time.monotonic()
    with (
        node_processes(kits[1:], folder / "logs") as children,
        deployed_run(load_node(kits[0]), scenario, deployed, _SETTINGS) as records,
    ):
        for record in records:
            check_alive(children, folder / "logs")
            if record["kind"] == "global":
                accuracy = record["test_accuracy"]
                report(f"{name}: global round {record['global_round']}, accuracy {accuracy:.1%}")
    took_s = time.monotonic() - start_s
    report(f"{name}: the same in simulation")
    for _ in run(scenario, out=simulated.path):
        pass
    return _compared(name, deployed, simulated, accuracy, took_s)


@contextlib.contextmanager
def node_processes(
    kits: list[Path], logs: Path, options: Mapping[str, Sequence[str]] = NO_OPTIONS
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Starts one process per node, which ends with the run; one that does not is killed.

    Args:
      options: of the commands, by name of the node.
    """
    logs.mkdir()
    # One thread each: there are more processes than cores.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for kit in kits:
            role = load_node(kit).peer.role
            command = [sys.executable, "-m", "airprune", "deploy", str(role), str(kit), *options.get(kit.name, ())]
            with (logs / f"{kit.name}.log").open("wb") as log:
                children[kit.name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        yield children
        end_s = time.monotonic() + _STOPPED_WITHIN_S
        for child in children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, end_s - time.monotonic()))
    finally:
        for child in children.values():
            child.kill()
            child.wait()


def check_alive(children: dict[str, subprocess.Popen[bytes]], logs: Path) -> None:
    for name, child in children.items():
        if child.poll():
            said = (logs / f"{name}.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise WorkFailed(f"{name} ended with status {child.returncode}: {' '.join(said) or 'it said nothing'}")


def free_ports(count: int) -> int:
    """Returns the first of so many ports that follow each other and are free now."""
    for first in range(20_000, 60_000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise WorkFailed("No free ports were found on 127.0.0.1.")


def _compared(name: str, deployed: RunFolder, simulated: RunFolder, accuracy: float, took_s: float) -> DemoResult:
    rows = [row for row in read_measured(deployed) if row.fate == "ok"]
    return DemoResult(
        name=name,
        folder=deployed.path,
        accuracy=accuracy,
        same_model=same_bytes(deployed.final_file, simulated.final_file),
        same_records=same_bytes(deployed.records_file, simulated.records_file),
        num_uploads=len(rows),
        bytes_sent=sum(row.bytes or 0 for row in rows),
        bytes_charged=sum(row.planned_bytes or 0 for row in rows),
        uplink=_spread(rows, "uplink_ratio"),
        compute=_spread(rows, "compute_ratio"),
        took_s=took_s,
    )


def same_bytes(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


def _spread(rows: list[MeasuredRow], name: str) -> Spread:
    return Spread.of([ratio for row in rows if (ratio := getattr(row, name)) is not None])
