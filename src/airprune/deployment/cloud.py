"""The cloud process: a run like any other, in a world of real edges. Its folder is an ordinary run folder.

Beside the records of the run it has `inputs.jsonl` and `measured.jsonl` (see `measured`), `status.json` (see `status`)
and `deployment.json`: the run's id, how many samples each device has, which nodes serve as edges, and what the model's
shape depends on.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airprune import files
from airprune.data.holdings import Claimed
from airprune.deployment.hub import Hub
from airprune.deployment.identity import Node, load_members
from airprune.deployment.loop_thread import LoopThread
from airprune.deployment.metrics import Metrics, serve_metrics
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.remote import CloudSettings, Deployed
from airprune.deployment.run_definition import RunDefinition, check_deployable
from airprune.deployment.status import NodeStatus, Status, write_status
from airprune.deployment.transport import Limits
from airprune.errors import AirpruneError, Diverged, UsageError, WorkFailed
from airprune.rounds.experiment import Experiment
from airprune.runs.driver import records_of
from airprune.runs.layout import RunFolder
from airprune.runs.lines import sentence_if_unwritable
from airprune.runs.lock import make_run_folder
from airprune.runs.measured import MeasuredLog, MeasuredRow, PlannedInputs, read_inputs
from airprune.scenario import Scenario
from airprune.theory.privacy import privacy_notes

_log = logging.getLogger("airprune")
_MAX_ABOUT_BYTES = 2**24
_STATUS_S = 1.0
# What a frame says about a device at the most: its orders, its outcome, its presence.
_ABOUT_DEVICE_BYTES = 2_048


@contextlib.contextmanager
def deployed_run(
    node: Node,
    scenario: Scenario,
    folder: RunFolder,
    settings: CloudSettings,
    *,
    resume: bool = False,
    dataset: Any = None,
    metrics_port: int | None = None,
) -> Iterator[Generator[dict[str, Any]]]:
    """Yields the records of a run on the edges and devices of a federation, as they happen.

    Args:
      node: the cloud's kit.
      dataset: for the test of the global model; see `airprune.run`.
      metrics_port: serve Prometheus' numbers there, on loopback.
    """
    if folder.has_run and not resume:
        raise UsageError(f"{folder.path} already holds a run; resume it (--resume) or choose another folder.")
    if scenario.attack.kind != "none":
        raise UsageError("Attackers are simulated, not deployed; set attack.kind=none, or use `airprune run`.")
    experiment = Experiment.of(scenario, dataset=dataset, kernel=folder.kernel)
    check_deployable(experiment.method)
    for note in privacy_notes(experiment.scenario, deployed=True):
        _log.info("%s", note)
    cloud = _Cloud(node, experiment, folder, settings)
    with contextlib.ExitStack() as stack:
        if metrics_port is not None:
            port = stack.enter_context(serve_metrics(cloud.metrics, metrics_port))
            _log.info("Metrics at http://127.0.0.1:%d/metrics", port)
        yield stack.enter_context(cloud.running())


class _Cloud:
    def __init__(self, node: Node, experiment: Experiment, folder: RunFolder, settings: CloudSettings) -> None:
        self.node, self.experiment, self.folder, self.settings = node, experiment, folder, settings
        self.members = load_members(node.folder)
        self._check_size()
        self.metrics = Metrics()
        self.about = read_about(folder)
        network, data = experiment.network, experiment.dataset
        self.work = RunDefinition(
            scenario=experiment.scenario,
            input_shape=tuple(int(n) for n in data.train_x.shape[1:]),
            num_classes=data.num_classes,
            num_devices=network.num_devices,
            num_edges=network.num_edges,
        )
        self.about["model"] = self.work.facts
        self._log: MeasuredLog | None = None
        self._late: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._last_fate: dict[str, str] = {}
        self._place: tuple[int, int] | None = None
        self._state = "waiting"

    def _check_size(self) -> None:
        """Refuses a federation of another size than the scenario's network, and a radio that no real link has."""
        if self.experiment.radio.reuse is not None:
            raise UsageError(
                "Scenario.radio.reuse must be none in a deployment, whose links are measured, got "
                f"{self.experiment.radio.reuse}. Example: radio.reuse=none"
            )
        if not self.experiment.radio.knows_fading:
            raise UsageError(
                "Scenario.radio.csi_correlation must be 1 in a deployment, whose links are measured, got "
                f"{self.experiment.radio.csi_correlation:g}. Example: radio.csi_correlation=1"
            )
        if self.experiment.radio.slice_noise:
            raise UsageError(
                "Scenario.radio.slice_noise must be false in a deployment, whose links are measured and paced, "
                "got true. Example: radio.slice_noise=false"
            )
        network, members = self.experiment.network, self.members
        homes = [len(devices) for devices in members.devices.values() if devices]
        wanted = np.bincount(network.edge, minlength=network.num_edges).tolist()
        if homes != wanted:
            raise UsageError(
                f"The federation of {self.node.folder} has edges with {homes} devices, the scenario's network has "
                f"{wanted}; make one that fits with `airprune deploy init`, or set network.num_edges and "
                "network.devices_per_edge."
            )

    @contextlib.contextmanager
    def running(self) -> Iterator[Generator[dict[str, Any]]]:
        """Serves edges in a thread of its own while the records are taken."""
        with LoopThread("airprune-cloud") as loop:
            hub = loop.call(self._hub())
            server = hub.server()
            loop.call(server.__aenter__())
            try:
                make_run_folder(self.folder.path)  # only now: a cloud that cannot listen leaves nothing behind
                status = loop.start(self._keep_status(hub))
                try:
                    yield self._records(hub, loop)
                finally:
                    status.cancel()
                    self._state = "ended" if self.folder.is_finished or self.folder.divergence else "waiting"
                    loop.call(self._write_status(hub))
            finally:
                loop.call(server.__aexit__(None, None, None))

    async def _hub(self) -> Hub:
        work = self.work
        welcome = pb.Welcome(
            run=self.about["run"],
            scenario=work.scenario.to_toml(),
            max_payload_bytes=work.max_payload_bytes,
            **work.facts,
        )
        limits = Limits(max_frame_bytes=Limits().max_frame_bytes + _ABOUT_DEVICE_BYTES * work.num_devices)
        welcome.beat_s, welcome.dead_after_s = limits.beat_s, limits.dead_after_s
        return Hub(self.node, self.members, welcome, limits, self.about.get("serving"))

    def _records(self, hub: Hub, loop: LoopThread) -> Generator[dict[str, Any]]:
        if not self.folder.has_ended:  # one that has may still have its model to write, which needs no device
            self._wait_for_devices(hub, loop)
        experiment = self._with_sizes(hub)
        environment = Deployed(
            hub,
            loop,
            self.work,
            self.settings,
            planned=read_inputs(self.folder),
            on_planned=self._on_planned,
            on_measured=self._on_measured,
            on_serving=self._on_serving,
        )
        self._state = "running"
        try:
            for record in records_of(experiment, self.folder, environment):
                if record.get("test_accuracy") is not None:
                    self.metrics.accuracy(record["test_accuracy"])
                yield record
        except Diverged as error:
            _say_goodbye(hub, loop, str(error))
            raise
        _say_goodbye(hub, loop, "The run has ended.")

    def _wait_for_devices(self, hub: Hub, loop: LoopThread) -> None:
        devices = set(range(self.work.num_devices))
        within_s = self.settings.patience_s if self.folder.has_run else self.settings.wait_s
        _log.info("Waiting for %d devices on %d edges.", self.work.num_devices, self.work.num_edges)
        if not loop.call(hub.wait_for(devices, within_s)):
            there = hub.present()
            if not there:
                raise WorkFailed(f"No device came within {within_s:g} s; start the edges and devices, then try again.")
            _log.warning("%d of %d devices are there; the run begins.", len(there), len(devices))

    def _with_sizes(self, hub: Hub) -> Experiment:
        """Returns the experiment with the sample counts that devices reported first; they hold for the whole run."""
        sizes: list[int] = self.about.get("num_samples") or self.experiment.data_sizes.tolist()
        if "num_samples" not in self.about:
            for device, (_, measured) in hub.present().items():
                sizes[device] = measured.num_samples
            self.about["num_samples"] = sizes
        _write_about(self.folder, self.about)
        if sizes == self.experiment.data_sizes.tolist():
            return self.experiment
        return dataclasses.replace(self.experiment, samples=Claimed(np.array(sizes, dtype=np.int64)))

    def _on_planned(self, inputs: PlannedInputs) -> None:
        if self._log is None:
            self._log = MeasuredLog(self.folder, next_round=inputs.round)
        self._log.planned(inputs)
        self._place = inputs.global_round, inputs.edge_round

    def _on_serving(self, serving: Sequence[str]) -> None:
        self.about["serving"] = list(serving)
        _write_about(self.folder, self.about)

    def _on_measured(self, rows: Sequence[MeasuredRow], took_s: float) -> None:
        assert self._log is not None
        self._log.measured(rows)
        self.metrics.edge_round(rows, took_s)
        for row in rows:
            if row.name is not None:
                self._last_fate[row.name] = row.fate
                self._late[row.name] += row.fate == "late"
                self._refused[row.name] += row.fate == "refused"

    async def _keep_status(self, hub: Hub) -> None:
        """Writes the status again and again, and follows changes of the deny list."""
        while True:
            await self._write_status(hub)
            await asyncio.sleep(_STATUS_S)
            # The next round reports a broken deny list.
            with contextlib.suppress(AirpruneError):
                await hub.refresh_denied()

    async def _write_status(self, hub: Hub) -> None:
        """Writes the status, in the loop, where edges come and go; a full disk is no reason to end."""
        with contextlib.suppress(WorkFailed, OSError):
            write_status(self.folder, self._status(hub))

    def _status(self, hub: Hub) -> Status:
        nodes = [self._edge_status(hub, name) for name in self.members.edges]
        for number, name in enumerate(self.members.all_devices):
            nodes.append(self._device_status(hub, number, name))
        for role in ("edge", "device"):
            self.metrics.online(role, sum(node.online for node in nodes if node.role == role))
        place = self._place or (None, None)
        return Status(
            run=self.about["run"],
            federation=self.members.federation,
            state=self._state,
            global_round=place[0],
            edge_round=place[1],
            num_rounds=self.experiment.scenario.rounds.global_rounds,
            updated_s=time.time(),
            nodes=tuple(nodes),
        )

    def _edge_status(self, hub: Hub, name: str) -> NodeStatus:
        child, seen_s = hub.edges.get(name), hub.seen_s.get(name)
        return NodeStatus(
            name=name,
            role="edge",
            online=child is not None,
            seen_s_ago=None if seen_s is None else time.monotonic() - seen_s,
            rtt_s=None if child is None else _finite(child.link.rtt_s),
            late=0 if child is None else child.late,
            refused=hub.bad_reports[name] + (0 if child is None else child.refused),
        )

    def _device_status(self, hub: Hub, number: int, name: str) -> NodeStatus:
        place = hub.place_of(number)
        measured = None if place is None else hub.edges[place].devices[number]
        return NodeStatus(
            name=name,
            role="device",
            edge=place,
            online=place is not None,
            rtt_s=None if measured is None else _finite(measured.rtt_s),
            late=self._late[name],
            refused=self._refused[name],
            last_fate=self._last_fate.get(name),
        )


def _say_goodbye(hub: Hub, loop: LoopThread, words: str) -> None:
    loop.call(hub.say_goodbye(words))
    time.sleep(0.2)  # for edges to hand it on


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _about_file(folder: RunFolder) -> Path:
    return folder.path / "deployment.json"


def read_about(folder: RunFolder) -> dict[str, Any]:
    """Reads what a restarted cloud must send again; makes up a run id for a new run."""
    path = _about_file(folder)
    if not (folder.has_run and path.exists()):
        if folder.has_run:
            raise UsageError(f"{folder.path} holds a simulation; choose another folder for a deployment.")
        return {"run": secrets.token_hex(4)}
    try:
        found = json.loads(files.read_bytes(path, max_bytes=_MAX_ABOUT_BYTES))
        if not isinstance(found["run"], str) or not all(type(n) is int and n > 0 for n in found["num_samples"]):
            raise ValueError("of another kind")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkFailed(f"{path} cannot be read ({error}); restore it or start over in another folder.") from None
    return dict(found)


def _write_about(folder: RunFolder, about: dict[str, Any]) -> None:
    with (
        sentence_if_unwritable(folder.path),
        files.replacing(_about_file(folder), partial="deployment.partial") as file,
    ):
        file.write(json.dumps(about).encode())
