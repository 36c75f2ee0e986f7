"""``QueueCollector``: the queues that a process leads as gauges, read when Prometheus asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from bucketq.broker.broker import Broker
from bucketq.broker.leader import Leader
from bucketq.broker.server import Server
from bucketq.clock import Clock
from bucketq.errors import BucketQError
from bucketq.metrics.bounded_labels import MOST_KINDS, BoundedLabels
from bucketq.model.effects.reads import stats
from bucketq.model.indexes.cold_rows import ColdRowsNeededError
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.operations import ReadStats, Request
from bucketq.model.queue_stats import Stats

_ASK_S = 2.0
"""How long to wait for what must be read from segments: well within the 10 seconds that Prometheus
waits."""

_GAUGES: dict[str, str] = {
    "bucketq_oldest_queued_seconds": "Age of the queued job that was pushed first.",
    "bucketq_head_bytes": "Size of the object of the queue, which every commit writes.",
    "bucketq_segment_bytes": "Size of the rows in segments.",
    "bucketq_segments": "Segments of the queue.",
    "bucketq_paused": "1 if the whole queue is paused.",
    "bucketq_archive_waiting_jobs": "Finished jobs that are not in the archive yet.",
    "bucketq_archive_lag_seconds": "Time since the first of them finished; includes "
    "archive_after_s.",
    "bucketq_broker_leading": "1 if this broker leads the queue, 0 if it stands by.",
    "bucketq_broker_epoch": "Takeovers of the queue since it was created, by any broker.",
    "bucketq_broker_cut_off": "1 if this broker leads and the storage does not answer it.",
    "bucketq_broker_pending_requests": "Requests without an answer.",
    "bucketq_broker_parked_claims": "Claims that wait for a job.",
    "bucketq_broker_commit_age_seconds": "Age of the write in flight; 0 if there is none.",
}


class _Reading(NamedTuple):
    queue: str
    values: dict[str, float]
    jobs: dict[tuple[str, str], int]
    """By kind and status."""


class QueueCollector:
    """Shows the queues of a server as they were when ``read`` was called last."""

    def __init__(self, server: Server, clock: Clock, queue_names: BoundedLabels) -> None:
        """Show the queues of ``server``."""
        self._server = server
        self._clock = clock
        self._queue_names = queue_names
        self._kinds = BoundedLabels(MOST_KINDS)
        self._readings: list[_Reading] = []

    async def read(self) -> None:
        """Read all queues; one that cannot be read has fewer gauges."""
        brokers = list(self._server.brokers.items())
        reading = (self._read(self._queue_names(name), broker) for name, broker in brokers)
        self._readings = _merged(await asyncio.gather(*reading))

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges; called by the registry."""
        jobs = GaugeMetricFamily(
            "bucketq_jobs", "Jobs in the queue.", labels=["queue", "kind", "status"]
        )
        for reading in self._readings:
            for (kind, status), count in sorted(reading.jobs.items()):
                jobs.add_metric([reading.queue, kind, status], count)
        yield jobs
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["queue"])
            for reading in self._readings:
                if name in reading.values:
                    gauge.add_metric([reading.queue], reading.values[name])
            yield gauge

    async def _read(self, queue: str, broker: Broker) -> _Reading:
        leader = broker.leader
        if leader is None:
            return _Reading(queue, {"bucketq_broker_leading": 0.0}, {})
        values: dict[str, float] = {
            "bucketq_broker_leading": 1.0,
            "bucketq_broker_epoch": leader.epoch,
            "bucketq_broker_cut_off": float(leader.is_cut_off),
            "bucketq_broker_pending_requests": leader.waiting[0],
            "bucketq_broker_parked_claims": leader.parked,
            "bucketq_broker_commit_age_seconds": leader.commit_age_s,
        }
        jobs = Counter[tuple[str, str]]()
        with suppress(BucketQError):
            self._add_archive(leader, values)
            counted = await self._stats(leader)
            if counted is not None:
                values |= _values_of(counted)
                for kind, by_status in counted.counts.items():
                    for status, count in by_status.items():
                        jobs[self._kinds(kind), status] += count
        return _Reading(queue, values, dict(jobs))

    async def _stats(self, leader: Leader) -> Stats | None:
        """Count the jobs, in memory if possible; None: the queue is being read."""
        if leader.state is None:
            return None
        try:
            return stats(leader.state, ReadStats(), self._clock.now())
        except ColdRowsNeededError:
            found: Stats = await leader.submit(Request(ReadStats()), _ASK_S)
            return found

    def _add_archive(self, leader: Leader, values: dict[str, float]) -> None:
        if leader.state is None:
            return
        done = leader.state.done
        oldest = done.oldest()
        lag = None if oldest is None else self._clock.now() - finished_at(oldest)
        values["bucketq_archive_waiting_jobs"] = len(done)
        values["bucketq_archive_lag_seconds"] = (
            0.0 if lag is None else max(0.0, lag.total_seconds())
        )


def _merged(readings: list[_Reading]) -> list[_Reading]:
    """Put queues together that share the name ``other``: sums, and the largest of ages."""
    merged: dict[str, _Reading] = {}
    for queue, values, jobs in readings:
        known = merged.setdefault(queue, _Reading(queue, {}, {}))
        for name, value in values.items():
            before = known.values.get(name, 0.0)
            is_age = name.endswith("_seconds")
            known.values[name] = max(before, value) if is_age else before + value
        for key, count in jobs.items():
            known.jobs[key] = known.jobs.get(key, 0) + count
    return list(merged.values())


def _values_of(counted: Stats) -> dict[str, float]:
    return {
        "bucketq_oldest_queued_seconds": max(0.0, counted.oldest_queued_s or 0.0),
        "bucketq_head_bytes": counted.head_bytes,
        "bucketq_segment_bytes": counted.segment_bytes,
        "bucketq_segments": counted.segments,
        "bucketq_paused": float(counted.paused),
    }
