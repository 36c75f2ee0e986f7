"""``StreamMetrics``: the progress of streams of jobs as metrics for Prometheus."""

from __future__ import annotations

import json

from prometheus_client import CollectorRegistry, Counter, Gauge
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from bucketq.metrics.bounded_labels import MOST_QUEUES, BoundedLabels


class StreamMetrics(StreamingQueryListener):
    """Notes what the sources of queries report; those of other formats are left alone."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""
        self._names = BoundedLabels(MOST_QUEUES)
        self._counted: dict[str, int] = {}
        """The last batch of each consumer whose jobs were added."""
        label = ("consumer",)
        self._batch = Gauge(
            "bucketq_stream_batch", "Number of the last batch.", label, registry=registry
        )
        self._waiting = Gauge(
            "bucketq_stream_waiting_jobs",
            "Jobs that waited when the last batch was claimed.",
            label,
            registry=registry,
        )
        self._jobs = Counter("bucketq_stream_jobs", "Jobs in batches.", label, registry=registry)
        self._bytes = Counter(
            "bucketq_stream_payload_bytes",
            "Bytes of the payloads of jobs in batches.",
            label,
            registry=registry,
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Note what each source has reported."""
        for source in event.progress.sources:
            self._note(source.latestOffset)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there is no progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the last values stay."""

    def _note(self, text: str) -> None:
        try:
            found = json.loads(text)
        except (TypeError, ValueError):
            return
        if not isinstance(found, dict) or not {"consumer", "batch", "waiting"} <= found.keys():
            return
        consumer, batch = found["consumer"], found["batch"]
        name = self._names(consumer)
        self._batch.labels(name).set(batch)
        self._waiting.labels(name).set(found["waiting"])
        # A batch is reported again by triggers that find no jobs.
        if self._counted.get(consumer) != batch:
            self._counted[consumer] = batch
            self._jobs.labels(name).inc(found.get("jobs", 0))
            self._bytes.labels(name).inc(found.get("bytes", 0))
