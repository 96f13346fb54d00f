"""Numbers of a running deployment for Prometheus, in a registry of their own and on loopback by default.

Counts are those of `watch.counts`, taken when they are asked for; the rest is of this process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from airprune.deployment.watch.alerts import KINDS
from airprune.deployment.watch.counts import Counts
from airprune.errors import WorkFailed

LOOPBACK = "127.0.0.1"
_ROUND_BUCKETS_S = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics(Collector):
    """Collects numbers of the cloud's rounds.

    Args:
      counts: returns the deployment's counts now.
    """

    def __init__(self, counts: Callable[[], Counts]) -> None:
        self._counts = counts
        self.registry = CollectorRegistry()
        self._round_s = Histogram(
            "airprune_round_seconds", "Wall time of an edge round", buckets=_ROUND_BUCKETS_S, registry=self.registry
        )
        self._accuracy = Gauge("airprune_accuracy", "Test accuracy of the global model", registry=self.registry)
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        counts = self._counts()
        yield CounterMetricFamily("airprune_rounds", "Edge rounds that are over", value=counts.edge_rounds)
        yield CounterMetricFamily("airprune_upload_bytes", "Bytes received of uploads", value=counts.upload_bytes)
        yield _labelled(CounterMetricFamily, "airprune_uploads", "Uploads by outcome", "fate", counts.uploads)
        yield _labelled(GaugeMetricFamily, "airprune_nodes", "Members", "role", counts.nodes)
        yield _labelled(GaugeMetricFamily, "airprune_nodes_online", "Nodes that answer", "role", counts.online)
        yield _labelled(GaugeMetricFamily, "airprune_jobs", "Jobs by state", "state", counts.jobs)
        yield GaugeMetricFamily("airprune_model_version", "Newest delivered model", value=counts.models)
        yield GaugeMetricFamily("airprune_model_holders", "Nodes that hold it", value=counts.holders)
        alerts = {kind: counts.alerts.get(kind, 0) for kind in KINDS}
        yield _labelled(GaugeMetricFamily, "airprune_alerts", "Alerts by kind", "kind", alerts)

    def describe(self) -> Iterator[Metric]:
        return iter(())  # so that registering does not count

    def edge_round(self, took_s: float) -> None:
        self._round_s.observe(took_s)

    def accuracy(self, accuracy: float) -> None:
        self._accuracy.set(accuracy)


def _labelled(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, words: str, label: str, values: Mapping[str, int]
) -> Metric:
    family = kind(name, words, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


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
