"""``BrokerMetrics``: the metrics of a broker process.

Counters and histograms grow as brokers report what they do. Gauges are read from memory when
Prometheus asks, by a ``QueueCollector``.
"""

from __future__ import annotations

import re
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from bucketq.broker.broker_observer import CommitFacts
from bucketq.errors import (
    AccessDeniedError,
    LeaseLostError,
    OverloadedError,
    RejectedError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.metrics.bounded_labels import MOST_QUEUES, BoundedLabels
from bucketq.model.base import Operation
from bucketq.model.operations import WAITING, Claim, Complete, CompleteMany, Fail, Push
from bucketq.store.base import (
    LockHeldError,
    ObjectMissingError,
    ObjectTooShortError,
    PreconditionFailedError,
)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a local disk to a store in trouble."""
_BYTES = tuple(float(4**power) for power in range(5, 15))
"""From 1 KiB to 256 MiB, by four."""
_REQUESTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)

_STORAGE_RESULTS: tuple[tuple[type[BaseException], str], ...] = (
    (LockHeldError, "locked"),
    (UnavailableError, "unavailable"),
    (StoreRefusedError, "refused"),
    (PreconditionFailedError, "conflict"),
    (ObjectMissingError, "missing"),
    (ObjectTooShortError, "missing"),
    (TimeoutError, "unavailable"),
)
"""What an error of a store is called; the first that fits. Any other is ``failed``."""
_ANSWER_RESULTS: tuple[tuple[type[BaseException], str], ...] = (
    (UnavailableError, "unavailable"),
    (SupersededError, "superseded"),
    (AccessDeniedError, "denied"),
    (OverloadedError, "overloaded"),
    (LeaseLostError, "lease_lost"),
    (RejectedError, "rejected"),
)
"""The same for answers to clients."""


class BrokerMetrics:
    """Counts what the brokers of one process do."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: Any) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        self.queue_names = BoundedLabels(MOST_QUEUES)
        self.takeovers = counter(
            "bucketq_takeovers", "Times that this broker began to lead a queue.", "queue"
        )
        self.commits = counter(
            "bucketq_commits", "Commits, by what became of the write.", "queue", "outcome"
        )
        self.doubts = counter(
            "bucketq_commit_doubts_resolved",
            "Commits whose answer was lost, so that the object was read back.",
            "queue",
        )
        self.commit_seconds = histogram(
            "bucketq_commit_seconds",
            "Duration of a commit, retries included.",
            ("queue",),
            _SECONDS,
        )
        self.commit_bytes = histogram(
            "bucketq_commit_bytes", "Bytes that a commit writes.", ("queue",), _BYTES
        )
        self.commit_requests = histogram(
            "bucketq_commit_requests", "Requests that share a commit.", ("queue",), _REQUESTS
        )
        self.operations = counter(
            "bucketq_operations", "Requests of clients, by their answer.", "operation", "result"
        )
        self.operation_seconds = histogram(
            "bucketq_operation_seconds",
            "Time from the arrival of a request to its answer, without those that wait for a job.",
            ("operation",),
            _SECONDS,
        )
        self.pushed = counter("bucketq_pushed_jobs", "Jobs that clients pushed.", "queue")
        self.claimed = counter("bucketq_claimed_jobs", "Jobs that workers claimed.", "queue")
        self.completed = counter("bucketq_completed_jobs", "Jobs that workers completed.", "queue")
        self.failed = counter(
            "bucketq_failed_attempts",
            "Attempts that workers reported as failed, by the status of the job after it: queued "
            "jobs are retried.",
            "queue",
            "status",
        )
        self.lost_leases = counter(
            "bucketq_lost_leases", "Jobs whose worker was silent for too long.", "queue"
        )
        self.storage_requests = counter(
            "bucketq_storage_requests", "Requests to the storage.", "request", "result"
        )
        self.storage_seconds = histogram(
            "bucketq_storage_request_seconds",
            "Duration of a request to the storage.",
            ("request",),
            _SECONDS,
        )

    def observe(self, queue: str) -> ObservedQueue:
        """Return the observer of one queue."""
        return ObservedQueue(self, self.queue_names(queue))

    def series_of(self, operation: Operation, error: Exception | None) -> tuple[Counter, Histogram]:
        """Return what counts and measures the answers to an operation."""
        name = _snake_case(type(operation))
        count: Counter = self.operations.labels(name, _name_of(error, _ANSWER_RESULTS))
        seconds: Histogram = self.operation_seconds.labels(name)
        return count, seconds

    def stored(self, request: str, took_s: float, error: BaseException | None) -> None:
        """Count a request to the storage."""
        self.storage_requests.labels(request, _name_of(error, _STORAGE_RESULTS)).inc()
        self.storage_seconds.labels(request).observe(took_s)


class ObservedQueue:
    """The observer of the broker of one queue.

    The series of a queue are there from the start, at zero, so that the first event shows as a
    rise.
    """

    def __init__(self, metrics: BrokerMetrics, queue: str) -> None:
        self._metrics = metrics
        self._queue = queue
        self._series: dict[tuple[type, type], tuple[Counter, Histogram]] = {}
        self._takeovers = metrics.takeovers.labels(queue)
        self._doubts = metrics.doubts.labels(queue)
        self._seconds = metrics.commit_seconds.labels(queue)
        self._bytes = metrics.commit_bytes.labels(queue)
        self._requests = metrics.commit_requests.labels(queue)
        self._pushed = metrics.pushed.labels(queue)
        self._claimed = metrics.claimed.labels(queue)
        self._completed = metrics.completed.labels(queue)
        self._lost_leases = metrics.lost_leases.labels(queue)
        for outcome in ("landed", "lost", "forgotten"):
            metrics.commits.labels(queue, outcome)
        for status in ("queued", "dead"):
            metrics.failed.labels(queue, status)

    def took_over(self) -> None:
        """Count a takeover."""
        self._takeovers.inc()

    def committed(self, commit: CommitFacts) -> None:
        """Count a commit."""
        self._metrics.commits.labels(self._queue, commit.verdict.value).inc()
        self._seconds.observe(commit.took_s)
        self._bytes.observe(commit.size_bytes)
        self._requests.observe(commit.requests)
        if commit.was_in_doubt:
            self._doubts.inc()

    def answered(
        self, operation: Operation, answer: Any, error: Exception | None, took_s: float
    ) -> None:
        """Count an answer."""
        key = (type(operation), type(error))
        series = self._series.get(key)
        if series is None:
            # The errors are few types. Looking up labels takes longer than counting.
            series = self._series[key] = self._metrics.series_of(operation, error)
        count, seconds = series
        count.inc()
        if not (isinstance(operation, WAITING) and operation.wait_s):
            seconds.observe(took_s)
        if error is None:
            self._count_jobs(operation, answer)

    def _count_jobs(self, operation: Operation, answer: Any) -> None:
        if isinstance(operation, Push):
            self._pushed.inc(len(operation.jobs))
        elif isinstance(operation, Claim):
            self._claimed.inc(len(answer or ()))
        elif isinstance(operation, Complete):
            self._completed.inc()
        elif isinstance(operation, CompleteMany):
            self._completed.inc(sum(map(bool, answer)))
        elif isinstance(operation, Fail) and not operation.snooze:
            self._metrics.failed.labels(self._queue, str(answer)).inc()

    def lease_expired(self) -> None:
        """Count a lease that has expired."""
        self._lost_leases.inc()


def _snake_case(operation: type[Operation]) -> str:
    """Return ``complete_many`` for ``CompleteMany``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation.__name__).lower()


def _name_of(
    error: BaseException | None, names: tuple[tuple[type[BaseException], str], ...]
) -> str:
    if error is None:
        return "ok"
    return next((name for kind, name in names if isinstance(error, kind)), "failed")
