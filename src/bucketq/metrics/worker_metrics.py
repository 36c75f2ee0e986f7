"""``WorkerMetrics``: the metrics of a worker process."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from bucketq.metrics.bounded_labels import MOST_KINDS, BoundedLabels
from bucketq.worker.attempt import Attempt, Ended
from bucketq.worker.worker import Worker

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""From a handler that does nothing to one that takes hours."""


class WorkerMetrics:
    """Counts what a worker does."""

    def __init__(self, registry: CollectorRegistry, worker: Worker) -> None:
        """Register the metrics, and follow a worker that is not running yet."""
        self._worker = worker
        self._kinds = BoundedLabels(MOST_KINDS)
        self._attempts = Counter(
            "bucketq_worker_attempts",
            "Attempts at jobs, by how they ended.",
            ("kind", "outcome"),
            registry=registry,
        )
        self._seconds = Histogram(
            "bucketq_handler_seconds",
            "How long handlers ran.",
            ("kind",),
            buckets=_SECONDS,
            registry=registry,
        )
        registry.register(self)
        worker.lifespan.on_end = self._note_end

    def _note_end(self, attempt: Attempt, ended: Ended) -> None:
        kind = self._kinds(attempt.job.kind)
        self._attempts.labels(kind, ended.end).inc()
        self._seconds.labels(kind).observe(attempt.took_s)

    def collect(self) -> Iterator[Metric]:
        """Yield what the worker counts itself; called by the registry."""
        counters = self._worker.counters
        yield CounterMetricFamily(
            "bucketq_worker_claimed_jobs", "Jobs that it has claimed.", value=counters.claimed
        )
        for name, text, value in (
            ("bucketq_worker_ready", "1 once its queue is open.", float(self._worker.is_ready)),
            ("bucketq_worker_slots", "Handlers that can run at once.", self._worker.slots),
            ("bucketq_worker_running_jobs", "Handlers that run.", counters.running),
            ("bucketq_worker_waiting_jobs", "Jobs that wait for a slot.", counters.waiting),
        ):
            yield GaugeMetricFamily(name, text, value=value)
