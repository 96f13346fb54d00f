"""A deployment at one moment, from the folder of its run or from the state of its fleet's cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airprune import files
from airprune.deployment.calibration import Spread
from airprune.deployment.fleet.registry import FILE as REGISTRY_FILE
from airprune.deployment.fleet.registry import OVER, Delivery, HeldModel, Job, Registry, Totals
from airprune.deployment.status import NodeStatus, Status, read_status_file
from airprune.deployment.watch.alerts import Alert, alerts_of
from airprune.deployment.watch.counts import Counts, count
from airprune.deployment.watch.uploads import DeviceUploads, SpeedsFile, UploadsFile, clipped
from airprune.errors import AirpruneError
from airprune.runs.layout import RunFolder

STATUS_FILE, RUNS = "status.json", "runs"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The run whose uploads are shown.

    Attributes:
      job: its number in a fleet; None for the folder of a single run.
    """

    job: int | None
    folder: RunFolder
    uploads: UploadsFile
    speeds: SpeedsFile

    def seconds_per_sample(self, device: DeviceUploads) -> Spread | None:
        return self.speeds.seconds_per_sample(device)


@dataclass(frozen=True, kw_only=True)
class View:
    """A deployment at one moment.

    Attributes:
      status: None if there is none that can be read.
      jobs, deliveries, held: of the registry; none for the folder of a single run. Only members hold models.
      trouble: why the registry could not be read; empty if it was, or there is none.
      shown: None before the first job.
    """

    status: Status | None
    jobs: Sequence[Job]
    deliveries: Sequence[Delivery]
    held: Sequence[HeldModel]
    trouble: str
    shown: Shown | None
    counts: Counts
    alerts: Sequence[Alert]

    @property
    def nodes(self) -> list[NodeStatus]:
        """All members; of devices, the outcomes of uploads are those of the run that is shown."""
        return [] if self.status is None else [self._with_outcomes(node) for node in self.status.nodes]

    def uploads_of(self, node: NodeStatus) -> DeviceUploads | None:
        if self.shown is None or node.role != "device":
            return None
        return self.shown.uploads.devices.get(clipped(node.name))

    def _with_outcomes(self, node: NodeStatus) -> NodeStatus:
        uploads = self.uploads_of(node)
        if uploads is None or uploads.last is None:
            return node
        fates = uploads.fates
        return replace(node, late=fates["late"], refused=fates["refused"], last_fate=uploads.last.fate)


class Watched:
    """Looks at a deployment again and again; files are read once and then followed.

    Args:
      place: run folder of `deploy cloud`, or folder of the state of `deploy serve`.
      follow: makes the follower of a measured.jsonl.
    """

    def __init__(self, place: Path, *, follow: Callable[[Path], UploadsFile] = UploadsFile) -> None:
        self.place, self._follow = place, follow
        self._uploads: dict[Path, UploadsFile] = {}
        self._speeds: dict[Path, SpeedsFile] = {}

    @property
    def is_fleet(self) -> bool:
        return files.is_regular(self.place / REGISTRY_FILE)

    def look(self, job: int | None = None, *, is_whole: bool = False) -> View:
        """Returns the deployment as it is now.

        Args:
          job: whose uploads are shown; None: the one that runs, else the last that has any.
          is_whole: reads files to their end; otherwise about a second's worth of each.
        """
        status = read_status_file(self.place / STATUS_FILE)
        jobs, deliveries, held, kept, trouble = self._registry()
        if status is not None:  # nodes that were removed hold models too
            names = {node.name for node in status.nodes}
            held = [one for one in held if one.name in names]
        latest = self._shown(jobs, None) if self.is_fleet else self._run(RunFolder(self.place), None)
        shown = latest if job is None or not self.is_fleet else self._shown(jobs, job)
        read = {RunFolder(self._folder(one)).measured_file: kept.get(one.number) for one in jobs}
        for run in filter(None, (latest, shown)):
            read.setdefault(run.folder.measured_file, None)
            self._refresh(run.uploads, is_whole=is_whole)
            run.speeds.refresh()
        totals = [known or self._totals(path, is_whole=is_whole) for path, known in read.items()]
        alerts = alerts_of(
            status,
            {} if latest is None else latest.uploads.devices,
            jobs=jobs,
            held=held,
            now_s=time.time(),
        )
        counts = count(
            status,
            job_states=[one.state for one in jobs],
            totals=totals,
            held_versions=[one.version for one in held],
            newest_version=deliveries[-1].version if deliveries else 0,
            alert_kinds=[alert.kind for alert in alerts],
        )
        return View(
            status=status,
            jobs=jobs,
            deliveries=deliveries,
            held=held,
            trouble=trouble,
            shown=shown,
            counts=counts,
            alerts=alerts,
        )

    def _registry(self) -> tuple[list[Job], list[Delivery], list[HeldModel], dict[int, Totals], str]:
        if not self.is_fleet:
            return [], [], [], {}, ""
        registry = Registry(self.place / REGISTRY_FILE, only_reads=True)
        try:
            return registry.jobs(), registry.deliveries(), registry.held(), registry.totals(), ""
        except AirpruneError as error:
            return [], [], [], {}, str(error)
        except (ValueError, TypeError, KeyError):
            return [], [], [], {}, f"{REGISTRY_FILE} cannot be read: it is of another kind."

    def _folder(self, job: Job) -> Path:
        folder = self.place / RUNS / Path(job.folder_name).name  # whatever a damaged registry says
        return self.place / RUNS if folder.is_symlink() else folder

    def _shown(self, jobs: Sequence[Job], number: int | None) -> Shown | None:
        wanted = [job for job in jobs if job.number == number]
        running = [job for job in jobs if job.state not in (*OVER, "queued")]
        begun = [job for job in jobs if RunFolder(self._folder(job)).is_deployed]
        chosen = (wanted or running or begun)[-1:]
        return next((self._run(RunFolder(self._folder(job)), job.number) for job in chosen), None)

    def _run(self, folder: RunFolder, job: int | None) -> Shown:
        uploads = self._followed(folder.measured_file)
        speeds = self._speeds.setdefault(folder.inputs_file, SpeedsFile(folder.inputs_file))
        return Shown(job=job, folder=folder, uploads=uploads, speeds=speeds)

    def _followed(self, path: Path) -> UploadsFile:
        return self._uploads.setdefault(path, self._follow(path))

    def _totals(self, path: Path, *, is_whole: bool) -> Totals:
        uploads = self._followed(path)
        self._refresh(uploads, is_whole=is_whole)
        return uploads.totals

    @staticmethod
    def _refresh(uploads: UploadsFile, *, is_whole: bool) -> None:
        if is_whole:
            uploads.refresh_all()
        else:
            uploads.refresh()
