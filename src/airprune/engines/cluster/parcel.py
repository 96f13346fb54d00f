"""The job and its data as files: placed once per machine, told apart by hash, opened once per worker.

A worker on the driver's machine, or on a shared file system, opens the driver's own files. On other machines one worker
receives the files from the driver and keeps them in a folder named after the job's hash, for itself and its neighbours.
"""

from __future__ import annotations

import dataclasses
import getpass
import hashlib
import pickle
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from airprune.data.shared import SharedDataset
from airprune.engines.work import Job
from airprune.errors import WorkFailed

PART_BYTES = 8 * 2**20
_JOB = "job.pickle"
_COMPLETE = "complete"
_STALE_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """Where the files are and what they must be; travels with every task.

    Attributes:
      folder: the driver's; other machines may see it, too.
      digest: SHA-256 of the pickled job.
      fingerprint: of the data set.
    """

    folder: Path
    digest: str
    fingerprint: str

    @property
    def here(self) -> Path | None:
        """The folder on this machine, if there is one."""
        if (self.folder / _JOB).is_file():
            return self.folder
        kept = self._kept
        return kept if (kept / _COMPLETE).exists() else None

    @property
    def _kept(self) -> Path:
        return _home() / self.digest

    def open(self) -> Job:
        """The job, pointing to this machine's files; refuses files with other contents."""
        folder = self.here
        if folder is None:
            raise WorkFailed(f"The files of job {self.digest[:12]}… are not on this machine.")
        pickled = (folder / _JOB).read_bytes()
        found = hashlib.sha256(pickled).hexdigest()
        if found != self.digest:
            raise WorkFailed(f"{folder / _JOB} has hash {found[:12]}…, but this run's job has {self.digest[:12]}….")
        job: Job = pickle.loads(pickled)
        assert isinstance(job.dataset, SharedDataset)
        dataset = dataclasses.replace(job.dataset, folder=folder)
        dataset.check()
        return dataclasses.replace(job, dataset=dataset)

    def receive(self, name: str, offset: int, piece: bytes) -> None:
        """Keeps one piece of a file; the first one clears away what nobody has used for a day."""
        kept = self._kept
        if not kept.exists():
            _home().mkdir(mode=0o700, parents=True, exist_ok=True)
            kept.mkdir(mode=0o700)
            for other in _home().iterdir():
                if time.time() - other.stat().st_mtime > _STALE_S:
                    shutil.rmtree(other, ignore_errors=True)
        path = kept / Path(name).name
        path.touch(mode=0o600)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(piece)

    def complete(self) -> None:
        (self._kept / _COMPLETE).touch()

    def forget(self) -> None:
        """Removes this machine's own copy, if it has one."""
        shutil.rmtree(self._kept, ignore_errors=True)


def pack(job: Job) -> Parcel:
    """Puts the job beside its shared data."""
    if not isinstance(job.dataset, SharedDataset):
        raise WorkFailed("Workers of a cluster need the data as files: save_shared(dataset, folder).")
    pickled = cloudpickle.dumps(job)
    (job.dataset.folder / _JOB).write_bytes(pickled)
    return Parcel(
        folder=job.dataset.folder, digest=hashlib.sha256(pickled).hexdigest(), fingerprint=job.dataset.fingerprint
    )


def parts_of(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """(file name, offset, bytes) of all files, in pieces small enough to send."""
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open("rb") as file:
            while piece := file.read(PART_BYTES):
                yield path.name, file.tell() - len(piece), piece


def _home() -> Path:
    return Path(tempfile.gettempdir()) / f"airprune-{getpass.getuser()}"
