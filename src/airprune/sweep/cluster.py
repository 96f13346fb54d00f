"""Whole runs on the workers of a Dask cluster, one at a time on each.

The driver says which worker does which run, so that it can tell the death of a worker from a run that fails: a run is
handed out again, up to `MAX_TRIES` times, when its worker has left.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
import uuid
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from airprune.engines.cluster import tasks
from airprune.engines.cluster.engine import connect, quiet
from airprune.engines.cluster.local import OwnCluster
from airprune.engines.cluster.members import reason_in
from airprune.engines.work import MAX_TRIES
from airprune.errors import WorkFailed
from airprune.sweep import remote
from airprune.sweep.runs import SweptRun
from airprune.sweep.whole_run import Outcome, WholeRun, given_up, in_one_line

_LOOK_S = 0.1
_LOOK_AROUND_S = 1.0
_NO_WORKERS_S = 60.0
_ONLY_REFUSED_S = 5.0

_log = logging.getLogger("airprune")


def outcomes(
    runs: Sequence[SweptRun], out: Path, *, workers: int | None, scheduler: str | None, tls: str | None
) -> Generator[Outcome]:
    """As runs end. Closing it stops what is under way.

    Args:
      workers: of a cluster of this machine's own, or how many of the scheduler's are used at most.
      scheduler: an address or a scheduler file; None for a cluster of this machine's own.
    """
    quiet()
    with contextlib.ExitStack() as stack:
        own = None
        if scheduler is not None:
            client = connect(scheduler, tls)
        else:
            own = OwnCluster(workers)
            stack.callback(own.close)
            client = connect(own.address, own.tls)
        stack.callback(client.close, timeout=2)
        marker = stack.enter_context(remote.Marker.placed(out))
        cluster = _Cluster(client, own, marker, scheduler or "this machine")
        sweep = _Progress(runs, out, cluster, at_most=workers or len(runs))
        stack.callback(sweep.cancel)
        yield from sweep.outcomes()


class _Cluster:
    """Who takes part: workers with our versions. Others are named once and left out.

    Attributes:
      shares_folder: by address of each worker that takes part, whether it sees the sweep's folder.
      refused: why others do not.
    """

    def __init__(self, client: Client, own: OwnCluster | None, marker: remote.Marker, where: str) -> None:
        self.client, self.own, self.marker, self.where = client, own, marker, where
        self.wanted = tasks.versions()
        self.shares_folder: dict[str, bool] = {}
        self.refused: dict[str, str] = {}
        self._looked = -_LOOK_AROUND_S
        self._alone_since = time.monotonic()

    def look_around(self) -> None:
        """Once a second: is the scheduler there, who has joined, who has left?"""
        now = time.monotonic()
        if now < self._looked + _LOOK_AROUND_S:
            return
        try:
            self.check_connection()
            self._greet(set(self.client.scheduler_info(n_workers=-1)["workers"]))
        except (OSError, TimeoutError) as error:
            raise self._lost() from error
        self.check_connection()
        if self.own is not None:
            self.own.replace_dead()
        self._looked = time.monotonic()
        self._check_company()

    def check_connection(self) -> None:
        if self.client.status != "running":
            raise self._lost()

    def refuse(self, address: str, why: str) -> None:
        self.shares_folder.pop(address, None)
        if address not in self.refused:
            self.refused[address] = why
            _log.warning("Worker %s is left out: it %s.", address, why)

    def _greet(self, present: set[str]) -> None:
        self.shares_folder = {address: s for address, s in self.shares_folder.items() if address in present}
        self.refused = {address: why for address, why in self.refused.items() if address in present}
        newcomers = sorted(present - set(self.shares_folder) - set(self.refused))
        if not newcomers:
            return
        answers = self.client.run(remote.greet, self.wanted, self.marker, workers=newcomers, on_error="return")
        for address, answer in answers.items():
            if isinstance(answer, bool):
                self.shares_folder[address] = answer
            else:
                self.refuse(address, reason_in(answer))

    def _check_company(self) -> None:
        if self.shares_folder:
            self._alone_since = time.monotonic()
            return
        patience_s = _ONLY_REFUSED_S if self.refused and self.own is None else _NO_WORKERS_S
        if time.monotonic() - self._alone_since > patience_s:
            reasons = "; ".join(f"{address} {why}" for address, why in sorted(self.refused.items()))
            raise WorkFailed(
                f"No worker of the cluster can take part{': ' + reasons if reasons else ', none has joined'}."
            )

    def _lost(self) -> WorkFailed:
        return WorkFailed(
            f"The Dask scheduler ({self.where}) cannot be reached any more. Start it again and give the same command: "
            "it goes on from what is done."
        )


@dataclass(frozen=True)
class _UnderWay:
    """One run on its way."""

    index: int
    future: Future


class _Progress:
    """Who does which run, and how often each was tried."""

    def __init__(self, runs: Sequence[SweptRun], out: Path, cluster: _Cluster, *, at_most: int) -> None:
        self.runs, self.out, self.cluster, self.at_most = runs, out, cluster, at_most
        self.waiting = deque(range(len(runs)))
        self.tries = Counter[int]()
        self.by_worker: dict[str, _UnderWay] = {}

    def outcomes(self) -> Iterator[Outcome]:
        while self.waiting or self.by_worker:
            self.cluster.look_around()
            for address, shares_folder in self.cluster.shares_folder.items():
                if self.waiting and address not in self.by_worker and len(self.by_worker) < self.at_most:
                    self._hand_out(address, shares_folder)
            ended = [address for address, one in self.by_worker.items() if one.future.done()]
            lost = [address for address in self.by_worker if address not in self.cluster.shares_folder]
            for address in dict.fromkeys([*ended, *lost]):
                yield from self._collect(address)
            if not ended:
                time.sleep(_LOOK_S)

    def cancel(self) -> None:
        """Runs under way stop after their current round."""
        if self.by_worker and self.cluster.client.status == "running":
            with contextlib.suppress(OSError, TimeoutError):
                self.cluster.client.cancel([one.future for one in self.by_worker.values()], force=True)

    def _hand_out(self, address: str, shares_folder: bool) -> None:
        index = self.waiting.popleft()
        self.tries[index] += 1
        task, client = WholeRun.of(self.runs[index], self.out), self.cluster.client
        parcel = None
        try:
            if not shares_folder:
                parcel = client.scatter([remote.Parcel.of(task)], workers=[address], hash=False)[0]
        except (OSError, TimeoutError):  # it has just left, or the scheduler has
            self._put_back(index)
            return
        future = client.submit(
            remote.work,
            task,
            parcel,
            self.cluster.wanted,
            key=f"whole-run-{uuid.uuid4().hex}",
            workers=[address],
            pure=False,
        )
        self.by_worker[address] = _UnderWay(index, future)

    def _put_back(self, index: int) -> None:
        """As if it had not been tried."""
        self.tries[index] -= 1
        self.waiting.appendleft(index)

    def _collect(self, address: str) -> Iterator[Outcome]:
        """What became of a worker's run: put back in front if the worker has left, or given up."""
        one = self.by_worker.pop(address)
        run, status = self.runs[one.index], one.future.status
        if status == "finished":
            done = one.future.result()
            if isinstance(done, tasks.Refusal):
                self.cluster.refuse(address, done.sentence)
                self._put_back(one.index)
                return
            if done.files:
                _install(done.files, self.out / run.folder_name)
            yield Outcome(run, done.trouble)
        elif status == "error" and not isinstance(error := one.future.exception(), KilledWorker):
            yield Outcome(run, in_one_line(f"The cluster failed: {type(error).__name__}: {error}"))
        else:
            self.cluster.check_connection()
            one.future.cancel(force=True)
            if self.tries[one.index] < MAX_TRIES:
                self.waiting.appendleft(one.index)
            else:
                yield Outcome(run, given_up("leaving the cluster"))


def _install(files: remote.Files, folder: Path) -> None:
    """Puts a run's files in place together, so that a kill leaves the old ones, the new ones or none."""
    arriving = folder.with_name(f"{remote.ARRIVING}{folder.name}.partial")
    shutil.rmtree(arriving, ignore_errors=True)
    try:
        remote.put_files(files, arriving)
        if folder.exists():
            shutil.rmtree(folder)
        arriving.rename(folder)
    except OSError as error:
        raise WorkFailed(f"{folder} was not written: {error.strerror or error}; mend that and continue.") from error
