"""The cloud process for one run: it listens, runs a scenario on edges and devices, and ends with it.

`service` is the cloud of a fleet that stays, with one run after another.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator, Iterator
from typing import Any

from airprune.deployment.hub import Hub
from airprune.deployment.identity import Members, Node, load_members
from airprune.deployment.job_run import JobRun
from airprune.deployment.loop_thread import LoopThread
from airprune.deployment.metrics import Metrics, serve_metrics
from airprune.deployment.remote import CloudSettings
from airprune.deployment.transport import Limits
from airprune.deployment.watch.view import Watched
from airprune.errors import UsageError
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario

_log = logging.getLogger("airprune")


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
    watched = Watched(folder.path)
    metrics, fleet = Metrics(lambda: watched.look(is_whole=True).counts), load_members(node.folder)
    with LoopThread("airprune-cloud") as loop, contextlib.ExitStack() as stack:
        job = JobRun(
            fleet,
            scenario,
            folder,
            settings,
            dataset=dataset,
            metrics=metrics,
            at_end=lambda words: _say_goodbye(hub, loop, words),
        )
        hub = loop.call(made_hub(node, fleet, job.limits))
        loop.call(job.begin(hub))
        if metrics_port is not None:
            port = stack.enter_context(serve_metrics(metrics, metrics_port))
            _log.info("Metrics at http://127.0.0.1:%d/metrics", port)
        stack.enter_context(listening(hub, loop))
        yield stack.enter_context(job.running(hub, loop))


async def made_hub(node: Node, fleet: Members, limits: Limits, *, stays: bool = False) -> Hub:
    """Returns a hub, made in the running loop."""
    return Hub(node, fleet, limits, stays=stays)


@contextlib.contextmanager
def listening(hub: Hub, loop: LoopThread) -> Iterator[None]:
    """Lets edges join meanwhile."""
    server = hub.server()
    loop.call(server.__aenter__())
    try:
        yield
    finally:
        loop.finish(server.__aexit__(None, None, None))


def _say_goodbye(hub: Hub, loop: LoopThread, words: str) -> None:
    loop.call(hub.say_goodbye(words))
    time.sleep(0.2)  # for edges to hand it on
