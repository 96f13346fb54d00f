"""One run on the edges and devices that a hub holds. Its folder is an ordinary run folder.

Beside the records of the run it has `inputs.jsonl` and `measured.jsonl` (see `measured`), `status.json` (see `status`)
and `deployment.json` (see `about`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from airprune.data.holdings import Claimed
from airprune.deployment.about import read_about, write_about
from airprune.deployment.bounds import MOST_TIMES_MEDIAN, believed_samples
from airprune.deployment.handshake import log_if_new
from airprune.deployment.hub import Hub
from airprune.deployment.identity import Members
from airprune.deployment.loop_thread import LoopThread
from airprune.deployment.metrics import Metrics
from airprune.deployment.node_status import Outcomes, missing_sentence, node_statuses
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.remote import CloudSettings, Deployed
from airprune.deployment.run_definition import RunDefinition, check_deployable, check_is_real
from airprune.deployment.status import Status, write_status
from airprune.deployment.transport import Limits
from airprune.errors import AirpruneError, Diverged, UsageError, WorkFailed
from airprune.methods.registration import code_used_by
from airprune.rounds.experiment import Experiment
from airprune.runs.driver import records_of
from airprune.runs.layout import RunFolder
from airprune.runs.lock import make_run_folder
from airprune.runs.measured import MeasuredLog, MeasuredRow, PlannedInputs, read_inputs
from airprune.scenario import Scenario
from airprune.text import counted
from airprune.theory.privacy import privacy_notes

_log = logging.getLogger("airprune")
_STATUS_S = 1.0
# Between sentences on who is missing, where nothing has changed.
_MISSING_S = 5.0
# What a frame says about a device at the most: its orders, its outcome, its presence.
_ABOUT_DEVICE_BYTES = 2_048


def frame_limits(num_devices: int) -> Limits:
    """Returns the limits of links between cloud and edges, whose frames are about all devices."""
    return Limits(max_frame_bytes=Limits().max_frame_bytes + _ABOUT_DEVICE_BYTES * num_devices)


class JobRun:
    """A run from its first round, or from where it stopped, to its end.

    Args:
      members: of the federation now; a run that is resumed keeps those that it began with.
      dataset: for the test of the global model; see `airprune.run`.
      at_end: called with the last words of a run that has ended by itself.
    """

    def __init__(
        self,
        members: Members,
        scenario: Scenario,
        folder: RunFolder,
        settings: CloudSettings,
        *,
        dataset: Any = None,
        metrics: Metrics,
        at_end: Callable[[str], None],
    ) -> None:
        self.about = read_about(folder)
        self.members = Members(**self.about["members"]) if "members" in self.about else members
        self.about["members"] = self.members.model_dump()
        self.experiment = experiment = Experiment.of(scenario, dataset=dataset, kernel=folder.kernel)
        check_deployable(experiment.method)
        check_is_real(experiment)
        for note in privacy_notes(experiment.scenario, deployed=True):
            _log.info("%s", note)
        self.folder, self.settings, self.metrics, self._at_end = folder, settings, metrics, at_end
        self._check_size()
        network, data = experiment.network, experiment.dataset
        self.work = RunDefinition(
            scenario=experiment.scenario,
            input_shape=tuple(int(n) for n in data.train_x.shape[1:]),
            num_classes=data.num_classes,
            num_devices=network.num_devices,
            num_edges=network.num_edges,
        )
        self.about["model"] = self.work.facts
        self._measured: MeasuredLog | None = None
        self._outcomes = Outcomes()
        self._place: tuple[int, int] | None = None
        self._state = "waiting"

    def _check_size(self) -> None:
        """Refuses a federation of another size than the scenario's network."""
        network = self.experiment.network
        homes = [len(devices) for devices in self.members.devices.values() if devices]
        wanted = np.bincount(network.edge, minlength=network.num_edges).tolist()
        if homes != wanted:
            raise UsageError(
                f"The federation {self.members.federation} has edges with {homes} devices, the scenario's network has "
                f"{wanted}; make one that fits with `airprune deploy init`, or set network.num_edges and "
                "network.devices_per_edge."
            )

    @property
    def limits(self) -> Limits:
        return frame_limits(self.work.num_devices)

    async def begin(self, hub: Hub) -> None:
        """Makes the hub's run this one."""
        work, limits = self.work, Limits()
        welcome = pb.Welcome(
            run=self.about["run"],
            scenario=work.scenario.to_toml(),
            max_payload_bytes=work.max_payload_bytes,
            beat_s=limits.beat_s,
            dead_after_s=limits.dead_after_s,
            packages=code_used_by(work.scenario),
            **work.facts,
        )
        await hub.begin(welcome, self.members, self.about.get("serving"))

    @contextlib.contextmanager
    def running(self, hub: Hub, loop: LoopThread) -> Iterator[Generator[dict[str, Any]]]:
        """Yields the records, as they happen, of a run that has begun."""
        make_run_folder(self.folder.path)  # only now: a cloud that cannot listen leaves nothing behind
        status = loop.start(self._keep_status(hub))
        try:
            yield self._records(hub, loop)
        finally:
            status.cancel()
            self._state = "ended" if self.folder.is_finished or self.folder.divergence else "waiting"
            loop.finish(self._write_status(hub))

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
            self._at_end(str(error))
            raise
        self._at_end("The run has ended.")

    def _wait_for_devices(self, hub: Hub, loop: LoopThread) -> None:
        devices = set(range(self.work.num_devices))
        within_s = self.settings.patience_s if self.folder.has_run else self.settings.wait_s
        _log.info(
            "Waiting for %s on %s.", counted(self.work.num_devices, "device"), counted(self.work.num_edges, "edge")
        )
        end_s, last = time.monotonic() + within_s, ""
        while not loop.call(hub.wait_for(devices, min(_MISSING_S, end_s - time.monotonic()))):
            missing = loop.call(_in_loop(lambda: missing_sentence(hub)))
            if time.monotonic() < end_s:
                last = log_if_new(missing, last)
                self._bring_together(hub, loop)
                continue
            if not hub.present():
                raise WorkFailed(f"No device came within {within_s:g} s; start the edges and devices, then try again.")
            _log.warning("The run begins. %s", missing)
            return
        if not hub.present():
            raise WorkFailed(f"No device can take part: {loop.call(_in_loop(lambda: missing_sentence(hub)))}")

    def _bring_together(self, hub: Hub, loop: LoopThread) -> None:
        """Calls devices that are at another edge, as an earlier job has left them, to the edge that serves them now."""
        for replaced, standby in loop.call(hub.take_standby(self.settings.patience_s)):
            _log.warning("%s is unreachable; %s takes its place.", replaced, standby)
            self._on_serving(hub.serving)
        homes = dict(enumerate(self.experiment.network.edge.tolist()))
        loop.call(hub.place(homes, self.settings.handover_s))

    def _with_sizes(self, hub: Hub) -> Experiment:
        """Returns the experiment with the sample counts that devices reported first; they hold for the whole run."""
        sizes: list[int] = self.about.get("num_samples") or self.experiment.data_sizes.tolist()
        if "num_samples" not in self.about:
            said = {device: measured.num_samples for device, (_, measured) in hub.present().items()}
            most = believed_samples(said)
            for device, count in said.items():
                sizes[device] = most.get(device, count)
                if device in most:
                    _log.warning(
                        f"{self.members.all_devices[device]} has {count:,} samples, as it reports, more than "
                        f"{MOST_TIMES_MEDIAN:g} times the median; the run takes {most[device]:,}."
                    )
            self.about["num_samples"] = sizes
        write_about(self.folder, self.about)
        if sizes == self.experiment.data_sizes.tolist():
            return self.experiment
        return dataclasses.replace(self.experiment, samples=Claimed(np.array(sizes, dtype=np.int64)))

    def _on_planned(self, inputs: PlannedInputs) -> None:
        if self._measured is None:
            self._measured = MeasuredLog(self.folder, next_round=inputs.round)
        self._measured.planned(inputs)
        self._place = inputs.global_round, inputs.edge_round

    def _on_serving(self, serving: Sequence[str]) -> None:
        self.about["serving"] = list(serving)
        write_about(self.folder, self.about)

    def _on_measured(self, rows: Sequence[MeasuredRow], took_s: float) -> None:
        assert self._measured is not None
        self._measured.measured(rows)
        self.metrics.edge_round(took_s)
        self._outcomes.take(rows)

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
            write_status(self.folder, self.status(hub))

    def status(self, hub: Hub, members: Members | None = None) -> Status:
        """Returns the status of the run, with its own members or these."""
        nodes = node_statuses(hub, members or self.members, self._outcomes)
        place = self._place or (None, None)
        return Status(
            run=self.about["run"],
            federation=self.members.federation,
            state=self._state,
            global_round=place[0],
            edge_round=place[1],
            num_rounds=self.experiment.scenario.rounds.global_rounds,
            updated_s=time.time(),
            nodes=nodes,
        )


async def _in_loop(function: Callable[[], str]) -> str:
    return function()
