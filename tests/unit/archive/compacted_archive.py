"""Archives for tests of compaction: writing, compacting and reading them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Raw

from bucketq.archive.archive_layout import Layout
from bucketq.archive.compaction import Compactor, Round, Written, write_part
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import SystemClock
from bucketq.model.records import Backoff, Failure, JobRecord
from bucketq.store.base import ObjectStore

NOON = datetime(2026, 2, 15, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=1)
LAYOUT = Layout.of("memory://", "jobs/queue.json")
DAY = (NOON - timedelta(days=2), LATER)


class FixedClock(SystemClock):
    """Shows a fixed time until it is set."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


def finished(name: str, at: datetime = NOON, kind: str = "index", seq: int = 1) -> JobRecord:
    return JobRecord(
        id=name,
        kind=kind,
        status="done",
        seq=seq,
        payload=Raw(b'{"text":"\xc3\xa4","big":123456789012345678901234567890}'),
        pushed_at=at - timedelta(minutes=5),
        claimed_at=at - timedelta(seconds=3, microseconds=1),
        finished_at=at,
        outcome="completed",
        attempt=2,
        tags={"team": "search"},
        backoff=Backoff(base_s=2.5),
        errors=(Failure(at, 1, "failed", "boom\nat line 3"),),
        result=Raw(b"[1,2]"),
    )


async def archive(store: ObjectStore, version: int, *jobs: JobRecord) -> list[str]:
    return await ArchiveWriter(store, LAYOUT).write([(job, None) for job in jobs], version)


async def names(store: ObjectStore, kinds: Iterable[str] | None = None) -> list[str]:
    wanted = None if kinds is None else set(kinds)
    return [job.id async for job in ArchiveReader(store, LAYOUT).jobs(*DAY, wanted)]


async def archive_files(store: ObjectStore) -> list[str]:
    keys = [info.key async for info in store.list(LAYOUT.root)]
    return [key for key in keys if LAYOUT.parse(key)]


async def files(store: ObjectStore) -> list[str]:
    prefix = LAYOUT.compacted + "date="
    return [info.key async for info in store.list(prefix)]


def compactor(store: ObjectStore, now: datetime = LATER) -> Compactor:
    return Compactor(store, LAYOUT, FixedClock(now))


async def planned(at_work: Compactor) -> Round:
    found = await at_work.plan()
    assert found is not None
    return found


async def write(store: ObjectStore, plan: Round) -> list[Written]:
    clock = FixedClock(LATER)
    return [await write_part(store, LAYOUT, part, clock) for part in plan.parts]


async def compact(store: ObjectStore, now: datetime = LATER) -> list[Written]:
    at_work = compactor(store, now)
    plan = await at_work.plan()
    if plan is None:
        return []
    written = await write(store, plan)
    assert await at_work.publish(plan, written)
    return written
