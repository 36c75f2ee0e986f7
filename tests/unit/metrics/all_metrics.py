"""Every metric that the code registers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple, cast

from prometheus_client import CollectorRegistry

from bucketq import Worker
from bucketq.broker.server import Server
from bucketq.clock import SystemClock
from bucketq.metrics.broker_metrics import BrokerMetrics
from bucketq.metrics.process_registry import new_registry
from bucketq.metrics.queue_collector import QueueCollector
from bucketq.metrics.worker_metrics import WorkerMetrics
from bucketq.spark.stream.stream_metrics import StreamMetrics


class Known(NamedTuple):
    """One metric."""

    name: str
    """As it is queried, but for the suffixes of histograms."""
    type: str
    text: str

    @property
    def series(self) -> set[str]:
        """The names of its series."""
        if self.type != "histogram":
            return {self.name}
        return {f"{self.name}_{suffix}" for suffix in ("bucket", "count", "sum")}


def _of(registry: CollectorRegistry) -> list[Known]:
    return [
        Known(
            metric.name + ("_total" if metric.type == "counter" else ""),
            metric.type,
            metric.documentation,
        )
        for metric in registry.collect()
        if metric.name.startswith("bucketq")
    ]


def broker_metrics() -> list[Known]:
    """The metrics of ``bucketq serve``."""
    registry = new_registry()
    metrics = BrokerMetrics(registry)
    server = cast("Server", SimpleNamespace(brokers={}))
    registry.register(QueueCollector(server, SystemClock(), metrics.queue_names))
    return _of(registry)


def worker_metrics() -> list[Known]:
    """The metrics of ``bucketq work``."""
    registry = new_registry()
    WorkerMetrics(registry, Worker("memory://"))
    return [each for each in _of(registry) if each.name != "bucketq_info"]


def stream_metrics() -> list[Known]:
    """The metrics of streams on Spark."""
    registry = CollectorRegistry()
    StreamMetrics(registry)
    return _of(registry)
