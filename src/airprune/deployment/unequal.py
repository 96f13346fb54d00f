"""A federation of unequal devices on loopback: their work is planned with measured times, and replayed in simulation.

Devices are made unequal by a slow-down in their own process (`training.slowed`), which needs no permissions and no
particular kernel, and holds on a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from airprune.deployment.cloud import deployed_run
from airprune.deployment.demo import check_alive, free_ports, node_processes, same_bytes
from airprune.deployment.identity import load_node, make_federation
from airprune.deployment.remote import CloudSettings
from airprune.errors import UsageError
from airprune.rounds.method import Method
from airprune.runs import run
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredRow, read_inputs, read_measured
from airprune.scenario import Scenario

# Devices keep to the scenario's uplink rates: on loopback, measured ones would leave nothing to plan.
_SETTINGS = CloudSettings(measures_uplink=False, wait_s=120.0)


@dataclass(frozen=True, kw_only=True)
class PartOfWork:
    """The edge rounds in which a device was ordered to train some layers; no last one stands for the top."""

    first_trained: int
    last_trained: int | None
    num_rounds: int
    fewest_steps: int
    most_steps: int


@dataclass(frozen=True, kw_only=True)
class UnequalDevice:
    """One device over all edge rounds.

    Attributes:
      slowdown: factor by which it computes slower than this machine.
      predicted_s, measured_s: median time from its orders to the end of its upload, of the uploads that came.
      num_met: edge rounds in which its upload came before the deadline, of `num_rounds`.
    """

    name: str
    slowdown: float
    work: tuple[PartOfWork, ...]
    predicted_s: float
    measured_s: float
    ratio: float
    num_met: int
    num_rounds: int


@dataclass(frozen=True, kw_only=True)
class UnequalResult:
    """Reports a deployment of unequal devices.

    Attributes:
      same_model, same_records: whether the replay ends in the deployment's, byte for byte.
      deadline_s: of each edge round.
      part_cost: measured seconds of a local step of each part over the whole model's, from the whole model on.
      took_s: from the start of the processes to the last record.
    """

    folder: Path
    accuracy: float
    devices: tuple[UnequalDevice, ...]
    deadline_s: tuple[float, ...]
    part_cost: tuple[float, ...]
    same_model: bool
    same_records: bool
    took_s: float

    @property
    def is_replayed(self) -> bool:
        return self.same_model and self.same_records

    @property
    def num_met(self) -> int:
        return sum(device.num_met for device in self.devices)

    @property
    def num_uploads(self) -> int:
        """Uploads that were ordered."""
        return sum(device.num_rounds for device in self.devices)


def run_unequal(
    scenario: Scenario, folder: Path, slowdowns: Sequence[float], *, report: Callable[[str], None]
) -> UnequalResult:
    """Deploys a scenario that plans work on slowed-down devices of this machine, then replays it.

    Args:
      folder: new; gets kits/, logs/, deployed/ and replayed/.
      slowdowns: of the devices in their order, repeated as needed.
    """
    scheme = Method.of(scenario).scheme
    if not scheme.chooses_work:
        raise UsageError(
            f"A demonstration of unequal devices needs a scheme that plans their work, got {scheme.name!r}; "
            'choose method="adaptive-work".'
        )
    network = scenario.build_network()
    factors = np.resize(np.asarray(slowdowns, dtype=np.float64), network.num_devices).tolist()
    kits = make_federation(
        folder / "kits",
        num_edges=network.num_edges,
        devices_per_edge=np.bincount(network.edge, minlength=network.num_edges).tolist(),
        first_port=free_ports(1 + network.num_edges),
    )
    devices = [kit.name for kit in kits[1 + network.num_edges :]]
    options = {name: ("--slowdown", f"{factor:g}") for name, factor in zip(devices, factors, strict=True)}
    deployed, replayed = RunFolder(folder / "deployed"), RunFolder(folder / "replayed")
    report(f"starting {len(kits) - 1} processes: {network.num_edges} edges, {network.num_devices} devices")
    start_s, accuracy = time.monotonic(), float("nan")
    with (
        node_processes(kits[1:], folder / "logs", options) as children,
        deployed_run(load_node(kits[0]), scenario, deployed, _SETTINGS) as records,
    ):
        for record in records:
            check_alive(children, folder / "logs")
            if record["kind"] == "global":
                accuracy = record["test_accuracy"]
                report(f"global round {record['global_round']}, accuracy {accuracy:.1%}")
    took_s = time.monotonic() - start_s
    report("the same in simulation, with the measured times")
    for _ in run(scenario, out=replayed.path, replay=deployed.path):
        pass
    rows = read_measured(deployed)
    rounds = {row.round: row.deadline_s for row in rows if row.deadline_s is not None}
    return UnequalResult(
        folder=deployed.path,
        accuracy=accuracy,
        devices=tuple(
            _device([row for row in rows if row.device == n], name, factor)
            for n, (name, factor) in enumerate(zip(devices, factors, strict=True))
        ),
        deadline_s=tuple(rounds.values()),
        part_cost=_part_cost(deployed),
        same_model=same_bytes(deployed.final_file, replayed.final_file),
        same_records=same_bytes(deployed.records_file, replayed.records_file),
        took_s=took_s,
    )


def _device(rows: Sequence[MeasuredRow], name: str, slowdown: float) -> UnequalDevice:
    times_s = [
        (row.planned_compute_s + row.planned_uplink_s, row.arrived_s)
        for row in rows
        if row.arrived_s is not None and row.planned_compute_s is not None and row.planned_uplink_s is not None
    ]
    predicted_s, measured_s = np.median(times_s, axis=0).tolist() if times_s else (np.nan, np.nan)
    ratios = [measured / predicted for predicted, measured in times_s]
    return UnequalDevice(
        name=name,
        slowdown=slowdown,
        work=_parts(rows),
        predicted_s=predicted_s,
        measured_s=measured_s,
        ratio=float(np.median(ratios)) if ratios else np.nan,
        num_met=sum(row.fate == "ok" for row in rows),
        num_rounds=len(rows),
    )


def _parts(rows: Sequence[MeasuredRow]) -> tuple[PartOfWork, ...]:
    steps: dict[tuple[int, int | None], list[int]] = {}
    for row in rows:
        steps.setdefault((row.first_trained or 0, row.last_trained), []).append(row.local_steps or 0)
    return tuple(
        PartOfWork(
            first_trained=first,
            last_trained=last,
            num_rounds=len(found),
            fewest_steps=min(found),
            most_steps=max(found),
        )
        for (first, last), found in sorted(steps.items(), key=str)
    )


def _part_cost(folder: RunFolder) -> tuple[float, ...]:
    """Returns the relative costs that the last round was planned with; empty if none were measured."""
    inputs = read_inputs(folder)
    cost = inputs[max(inputs)].part_cost if inputs else None
    return tuple(value for value in cost or () if value is not None)
