"""Puts the answers of all partitions of a queue together: counts are added up, lists joined."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any

from bucketq.model.audit_records import AuditRecord
from bucketq.model.job_batches import BatchRecord
from bucketq.model.limits import EVERY_GROUP, LimitInfo, group_target
from bucketq.model.operations import Snapshot
from bucketq.model.queue_stats import CommitStats, Stats, StatsSample

_SAME_SAMPLE_S = 75.0
"""How far apart samples of partitions may be that are added up: those of the day are two minutes
apart."""
_SAME = timedelta(minutes=1)
"""How far apart the entries may be that one action of an operator has left in all partitions."""


def add_stats(parts: Sequence[Stats]) -> Stats:
    """Add up what partitions hold; the broker and the incarnation are those of the first."""
    counts: dict[str, dict[str, int]] = {}
    held: dict[str, int] = {}
    delayed: dict[str, int] = {}
    for part in parts:
        for kind, by_status in part.counts.items():
            into = counts.setdefault(kind, {})
            for status, count in by_status.items():
                into[status] = into.get(status, 0) + count
        for kind, count in part.held.items():
            held[kind] = held.get(kind, 0) + count
        for kind, count in part.delayed.items():
            delayed[kind] = delayed.get(kind, 0) + count
    ages = [part.oldest_queued_s for part in parts if part.oldest_queued_s is not None]
    return Stats(
        version=sum(part.version for part in parts),
        counts=counts,
        oldest_queued_s=max(ages, default=None),
        bytes=sum(part.bytes for part in parts),
        paused=any(part.paused for part in parts),
        paused_kinds=tuple(dict.fromkeys(kind for part in parts for kind in part.paused_kinds)),
        broker=parts[0].broker,
        keys=sum(part.keys for part in parts),
        sessions=max(part.sessions for part in parts),
        incarnation=parts[0].incarnation,
        segments=sum(part.segments for part in parts),
        segment_bytes=sum(part.segment_bytes for part in parts),
        limited=tuple(limit for part in parts for limit in part.limited),
        held=held,
        partitions=len(parts),
        pushed=sum(part.pushed for part in parts),
        delayed=delayed,
        commit_stats=_add_commits([part.commit_stats for part in parts]),
        samples=_add_samples([part.samples for part in parts]),
    )


def _add_commits(parts: Sequence[CommitStats | None]) -> CommitStats | None:
    """Add up what brokers have counted; percentiles are the largest of any partition."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None

    def largest(name: str) -> Any:
        return tuple(map(max, zip(*map(attrgetter(name), known), strict=True)))

    return CommitStats(
        commits=sum(part.commits for part in known),
        conflicts=sum(part.conflicts for part in known),
        storage_errors=sum(part.storage_errors for part in known),
        measured=sum(part.measured for part in known),
        took_s=largest("took_s"),
        size_bytes=largest("size_bytes"),
        requests=largest("requests"),
    )


def _add_samples(
    parts: Sequence[tuple[StatsSample, ...] | None],
) -> tuple[StatsSample, ...] | None:
    """Add up what brokers counted at about the same time.

    Each takes its samples by its own clock, so those of the first are paired with the nearest of
    the others. If another has none, there is nothing to show for that time.
    """
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    ages = [[each.age_s for each in reversed(part)] for part in known]
    found = list[StatsSample]()
    for first in known[0]:
        pairs = [_nearest(*each, first.age_s) for each in zip(known, ages, strict=True)]
        together = [each for each in pairs if each is not None]
        if len(together) == len(known):
            found.append(_add_sample(first.age_s, together))
    return tuple(found)


def _nearest(
    part: Sequence[StatsSample], ages: Sequence[float], age_s: float
) -> StatsSample | None:
    place = bisect_left(ages, age_s)
    places = [each for each in (place - 1, place) if 0 <= each < len(ages)]
    best = min(places, key=lambda each: abs(ages[each] - age_s), default=None)
    if best is None or abs(ages[best] - age_s) > _SAME_SAMPLE_S:
        return None
    return part[-1 - best]


def _add_sample(age_s: float, parts: Sequence[StatsSample]) -> StatsSample:
    def values_of(name: str) -> list[Any]:
        return [value for value in map(attrgetter(name), parts) if value is not None]

    def total(name: str) -> Any:
        values = values_of(name)
        return sum(values) if len(values) == len(parts) else None

    counted = ("version", "queued", "running", "done", "dead", "delayed", "bytes", "pushed")
    oldest = values_of("oldest_queued_s")
    return StatsSample(
        age_s=age_s,
        **{name: total(name) for name in counted},
        oldest_queued_s=max(oldest) if len(oldest) == len(parts) else None,
        commit_p50_s=max(values_of("commit_p50_s"), default=None),
        commit_p99_s=max(values_of("commit_p99_s"), default=None),
    )


def join_snapshots(parts: Sequence[Snapshot]) -> Snapshot:
    """Join what partitions hold, each at a version of its own."""
    first = parts[0]
    return Snapshot(
        version=sum(part.version for part in parts),
        incarnation=first.incarnation,
        at=max(part.at for part in parts),
        settings=first.settings,
        paused=first.paused,
        paused_kinds=first.paused_kinds,
        jobs=tuple(job for part in parts for job in part.jobs),
    )


def join_limits(parts: Sequence[Sequence[LimitInfo]]) -> tuple[LimitInfo, ...]:
    """Join limits of groups; that of every group is in all partitions."""
    every = group_target(EVERY_GROUP)
    return tuple(
        limit
        for index, part in enumerate(parts)
        for limit in part
        if index == 0 or limit.target != every or limit.active is not None
    )


def join_batches(parts: Sequence[Sequence[BatchRecord]]) -> tuple[BatchRecord, ...]:
    """Join batches, in the order of their opening."""
    return tuple(sorted((row for part in parts for row in part), key=attrgetter("opened_at", "id")))


def join_audits(parts: Sequence[Sequence[AuditRecord]], limit: int) -> tuple[AuditRecord, ...]:
    """Join what operators did, oldest first; what was done to all partitions is one entry."""
    rows: list[AuditRecord] = []
    latest: dict[tuple[object, ...], AuditRecord] = {}
    for row in sorted((row for part in parts for row in part), key=attrgetter("at")):
        name = (row.action, row.by, row.about)
        known = latest.get(name)
        if known is None or row.at - known.at > _SAME:
            latest[name] = row
            rows.append(row)
    return tuple(rows[-limit:] if limit else rows)
