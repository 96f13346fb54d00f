"""Numbers of a running deployment for Prometheus, in a registry of their own and on loopback by default."""

from __future__ import annotations

import contextlib
from collections import Counter as Tally
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from airprune.deployment.status import ROLES
from airprune.errors import WorkFailed
from airprune.runs.measured import FATES, MeasuredRow

LOOPBACK = "127.0.0.1"
_ROUND_BUCKETS_S = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """Collects numbers of the cloud's rounds as they end."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rounds = Counter("airprune_rounds", "Edge rounds that are over", registry=self.registry)
        self._uploads = Counter("airprune_uploads", "Uploads by outcome", ["fate"], registry=self.registry)
        self._bytes = Counter("airprune_upload_bytes", "Bytes of uploads that were received", registry=self.registry)
        self._online = Gauge("airprune_nodes_online", "Nodes that answer", ["role"], registry=self.registry)
        self._round_s = Histogram(
            "airprune_round_seconds", "Wall time of an edge round", buckets=_ROUND_BUCKETS_S, registry=self.registry
        )
        self._accuracy = Gauge("airprune_accuracy", "Test accuracy of the global model", registry=self.registry)
        for fate in FATES:  # there from the start, so that a rate can be taken of the first one
            self._uploads.labels(fate)
        for role in ROLES[1:]:
            self._online.labels(role)

    def edge_round(self, rows: Sequence[MeasuredRow], took_s: float) -> None:
        self._rounds.inc()
        self._round_s.observe(took_s)
        for fate, count in Tally(row.fate for row in rows).items():
            self._uploads.labels(fate).inc(count)
        self._bytes.inc(sum(row.bytes or 0 for row in rows))

    def online(self, role: str, count: int) -> None:
        self._online.labels(role).set(count)

    def accuracy(self, accuracy: float) -> None:
        self._accuracy.set(accuracy)


@contextlib.contextmanager
def serve_metrics(metrics: Metrics, port: int, *, address: str = LOOPBACK) -> Iterator[int]:
    """Answers at http://ADDRESS:PORT/metrics meanwhile; gives the port, which the system chooses for 0."""
    try:
        server, thread = start_http_server(port, address, registry=metrics.registry)
    except OSError as error:
        raise WorkFailed(
            f"Metrics cannot be served at {address}:{port}: {error.strerror or error}; choose another port."
        ) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
