"""The cloud process of a fleet: listens all the time, and runs one job after the other.

Its folder holds the registry, the run folders of jobs, the status of the fleet and the log. Whatever is killed, a new
process goes on with the job that ran. The operator's commands reach it through the registry and the files of its kit:
jobs, members and the deny list are read again about every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airprune.deployment.cloud import listening, made_hub
from airprune.deployment.fleet.enrolment_server import enrolling
from airprune.deployment.fleet.fitting import fitted
from airprune.deployment.fleet.logs import FILE as LOG_FILE
from airprune.deployment.fleet.logs import logged_to
from airprune.deployment.fleet.registry import FILE as REGISTRY_FILE
from airprune.deployment.fleet.registry import Job, Registry
from airprune.deployment.fleet.releases import release
from airprune.deployment.handshake import log_if_new, take_certificate
from airprune.deployment.hub import Hub
from airprune.deployment.identity import Node, load_members
from airprune.deployment.identity.kits import check_authority
from airprune.deployment.identity.members import MAX_NODES
from airprune.deployment.identity.renewal import Renewal, Signer, with_renewed
from airprune.deployment.job_run import JobRun, frame_limits
from airprune.deployment.loop_thread import Interrupted, LoopThread
from airprune.deployment.memory import give_back_memory
from airprune.deployment.metrics import Metrics, serve_metrics
from airprune.deployment.node_status import Outcomes, known_from, node_statuses
from airprune.deployment.own_data import test_set_of
from airprune.deployment.remote import CloudSettings
from airprune.deployment.run_definition import unexpected
from airprune.deployment.status import Status, read_status_file, write_status_file
from airprune.deployment.watch.uploads import UploadsFile
from airprune.deployment.watch.view import RUNS, STATUS_FILE, Watched
from airprune.errors import AirpruneError, UsageError, WorkFailed
from airprune.runs.layout import RunFolder
from airprune.runs.lock import is_locked, locked
from airprune.scenario import Scenario

_log = logging.getLogger("airprune")
_LOOK_S = 0.5
# Between writings of a status in which nothing has changed.
_STATUS_S = 4.0


def runs_folder(state: Path) -> Path:
    """Returns the folder of the run folders of a fleet."""
    return state / RUNS


class FleetService:
    """The cloud of a fleet.

    Args:
      node: the cloud's kit.
      state: its folder.
      authority: folder of the federation, with its key: certificates are renewed, and devices may be enrolled.
    """

    def __init__(self, node: Node, state: Path, authority: Path | None = None) -> None:
        self.renewal = Renewal(with_renewed(node, state), state)
        self.state, self.authority = state, authority
        if authority is not None:
            check_authority(authority, node)
        self.registry = Registry(state / REGISTRY_FILE)
        self._watched = Watched(state)
        self.metrics = Metrics(lambda: self._watched.look(is_whole=True).counts)
        self._job: JobRun | None = None
        self._delivered, self._has_renewed = 0, False
        self._last_news: Any = None
        self._written_s = 0.0
        self._fleet = load_members(node.folder)

    @property
    def node(self) -> Node:
        return self.renewal.node

    def run(self, *, metrics_port: int | None = None, enrol_port: int | None = None) -> None:
        """Serves until it is interrupted."""
        if enrol_port is not None and self.authority is None:
            raise UsageError("--enrol-port needs --authority, the folder of the federation, since only it can sign.")
        if is_locked(self.state):
            raise UsageError(f"A cloud serves this fleet already, with the folder {self.state}; stop it first.")
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(self.state))  # one cloud per fleet
            stack.enter_context(logged_to(self.state / LOG_FILE, node=self.node.peer.name))
            loop = stack.enter_context(LoopThread("airprune-cloud"))
            hub = loop.call(made_hub(self.node, self._fleet, frame_limits(MAX_NODES), stays=True))
            if metrics_port is not None:
                port = stack.enter_context(serve_metrics(self.metrics, metrics_port))
                _log.info("Metrics at http://127.0.0.1:%d/metrics", port)
            if enrol_port is not None and self.authority is not None:
                port = stack.enter_context(enrolling(lambda: self.node, self.authority, enrol_port))
                _log.info("Devices are enrolled at port %d.", port)
            hub.on_held = self.registry.note_held
            if (before := read_status_file(self.state / STATUS_FILE)) is not None:
                hub.known = known_from(before.nodes)
            if self.authority is not None:
                hub.signer = Signer(self.authority)
            stack.enter_context(self._watching(hub, loop))
            while True:
                with listening(hub, loop):
                    _log.info("Serves the fleet %s at %s.", hub.fleet.federation, self.node.listen)
                    self._serve_jobs(hub, loop)
                time.sleep(_LOOK_S)

    def _serve_jobs(self, hub: Hub, loop: LoopThread) -> None:
        """Runs one job after the other; returns between jobs when there is a new certificate to listen with."""
        self._has_renewed = False
        while not self._has_renewed:
            job = self.registry.take_next()
            if job is None:
                time.sleep(_LOOK_S)
            else:
                self._run_job(job, hub, loop)

    def _run_job(self, job: Job, hub: Hub, loop: LoopThread) -> None:
        """Runs a job to its end, whatever that is; only an interrupt of this process leaves it unfinished."""
        folder = RunFolder(runs_folder(self.state) / job.folder_name)
        state, reason = "ended", ""
        folder.path.mkdir(parents=True, exist_ok=True)
        with logged_to(folder.path / LOG_FILE, node=self.node.peer.name, job=job.number):
            _log.info("Job %d (%s) begins in %s.", job.number, job.name, folder.path)
            try:
                if job.state == "stopping":
                    raise Interrupted("Stopped.")
                self._play(job, folder, hub, loop)
            except Interrupted:
                state = "stopped"
            except Exception as error:
                state, reason = "failed", str(error) or type(error).__name__
                _log.error("%s", reason, exc_info=unexpected(error))
            finally:
                self._job = None
                loop.clear()
                loop.finish(hub.end())
            self.registry.finish(job.number, state, reason)
            self._note_totals(job, folder)
            if state == "ended" and job.deliver:
                self.registry.deliver(job.number, job.deliver)
            _log.info("Job %d has %s.", job.number, state)
        give_back_memory()

    def _note_totals(self, job: Job, folder: RunFolder) -> None:
        uploads = UploadsFile(folder.measured_file)
        uploads.refresh_all()
        self.registry.note_totals(job.number, uploads.totals)

    def _play(self, job: Job, folder: RunFolder, hub: Hub, loop: LoopThread) -> None:
        loop.call(hub.refresh_fleet())  # changes that were made before the job was submitted hold for it
        if folder.has_run:
            scenario = folder.scenario()
        else:
            scenario = fitted(Scenario.from_text(job.scenario, source=f"job {job.number}"), hub.fleet)
        run = JobRun(
            hub.fleet,
            scenario,
            folder,
            CloudSettings(**job.settings),
            dataset=test_set_of(job.data or None),
            metrics=self.metrics,
            at_end=_log_end,
        )
        loop.call(run.begin(hub))
        self._job = run
        with run.running(hub, loop) as records, contextlib.closing(records):
            for record in records:
                if record["kind"] == "global":
                    _log.info("%s", _words(record, scenario))

    @contextlib.contextmanager
    def _watching(self, hub: Hub, loop: LoopThread) -> Iterator[None]:
        """Keeps the status of the fleet, and follows the operator's changes."""
        watch = loop.start(self._watch(hub, loop))
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self, hub: Hub, loop: LoopThread) -> None:
        last = ""
        delivering = asyncio.create_task(self._deliver(hub))
        try:
            while True:
                try:
                    self._renew(hub)
                    if delivering.done():  # what it takes to read and export a large model is not waited for
                        before, delivering = delivering, asyncio.create_task(self._deliver(hub))
                        before.result()
                    await hub.refresh_fleet()
                    await hub.refresh_denied()
                    current = await asyncio.to_thread(self.registry.current)
                    if current is not None and current.state == "stopping" and self._job is not None:
                        loop.interrupt()
                    self._write_status(hub)
                    last = ""
                except (AirpruneError, OSError) as error:
                    last = log_if_new(str(error), last)
                await asyncio.sleep(_LOOK_S)
        finally:
            delivering.cancel()

    def _renew(self, hub: Hub) -> None:
        """Renews the cloud's own certificate when that is due."""
        if hub.signer is not None and (request := self.renewal.request()) is not None:
            answer = hub.signer.answer(request, self.node.peer.name, hub.denied)
            self._has_renewed |= take_certificate(self.renewal, answer)
            hub.node = self.node

    async def _deliver(self, hub: Hub) -> None:
        """Offers the newest delivery, if nodes do not know of it yet."""
        deliveries = await asyncio.to_thread(self.registry.deliveries)
        if not deliveries or deliveries[-1].version == self._delivered:
            return
        newest = deliveries[-1]
        self._delivered = newest.version  # once, also if it fails
        job = self.registry.job(newest.job)
        folder = RunFolder(runs_folder(self.state) / job.folder_name)
        offer, content = await asyncio.to_thread(release, self.node, newest, job, folder)
        _log.info("Delivers model %d (%s of job %d).", newest.version, newest.which, newest.job)
        await hub.offer_model(offer, lambda: content)

    def _write_status(self, hub: Hub) -> None:
        """Replaces the status if it has changed, or is old: a fleet that waits should not wear out a disk."""
        status = self._status(hub)
        nodes = [(node.name, node.edge, node.online, node.trouble) for node in status.nodes]
        news = (status.run, status.state, status.global_round, status.edge_round, nodes)
        if news != self._last_news or time.monotonic() - self._written_s > _STATUS_S:
            write_status_file(self.state / STATUS_FILE, status)
            self._last_news, self._written_s = news, time.monotonic()

    def _status(self, hub: Hub) -> Status:
        if self._job is not None:
            return self._job.status(hub, hub.fleet)
        return Status(
            run="",
            federation=hub.fleet.federation,
            state="idle",
            global_round=None,
            edge_round=None,
            num_rounds=0,
            updated_s=time.time(),
            nodes=node_statuses(hub, hub.fleet, Outcomes()),
        )


def _log_end(words: str) -> None:
    _log.info("%s", words)


def _words(record: dict[str, object], scenario: Scenario) -> str:
    words = f"Global round {record['global_round']} of {scenario.rounds.global_rounds}"
    accuracy = record.get("test_accuracy")
    return words + (f": accuracy {accuracy:.1%}" if isinstance(accuracy, float) else "") + "."


def registry_of(state: Path) -> Registry:
    """Opens the registry of a fleet; makes it if the fleet has none yet."""
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkFailed(f"{state} cannot be made: {error.strerror}.") from None
    return Registry(state / REGISTRY_FILE)
