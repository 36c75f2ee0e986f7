"""The archive as a stream: where micro-batches end, and that each job is in one of them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq.archive.archive_layout import Layout
from bucketq.archive.compaction import Compactor, write_part
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError, QueueNotFoundError
from bucketq.spark.stream.archive_stream import ArchiveStreamReader
from bucketq.store.url import open_store
from tests.spark.finished_jobs import HOUR, archive, finished, hours_ago

pytest.importorskip("pyspark")
SETTLE = timedelta(seconds=60)
LIMIT: Any = None  # Spark's own limits are not used.


class SetClock(SystemClock):
    """Shows the time of this machine, moved by so much."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct"):
        return url


def reader(url: str, clock: SetClock | None = None, /, **options: str) -> ArchiveStreamReader:
    given = {"path": url, "table": "archive", "settleSeconds": "60", **options}
    return ArchiveStreamReader(given, clock=clock)


def ids(stream: ArchiveStreamReader, start: dict[str, str], end: dict[str, str]) -> list[str]:
    batches = [b for part in stream.partitions(start, end) for b in stream.read(part)]
    return sorted(name for batch in batches for name in batch.column("id").to_pylist())


def all_batches(stream: ArchiveStreamReader) -> list[list[str]]:
    """The jobs of each micro-batch, from the first to the last."""
    found, start = list[list[str]](), stream.initialOffset()
    while (end := stream.latestOffset(start, LIMIT)) != start:
        found.append(ids(stream, start, end))
        start = end
    return found


def chained(batches: list[list[str]]) -> list[str]:
    return [name for batch in batches for name in batch]


def before(offset: dict[str, str]) -> datetime:
    return datetime.fromisoformat(offset["before"])


def compact(url: str) -> None:
    async def run() -> None:
        location, clock = open_store(url), SystemClock()
        layout = Layout.of(location.store.url, location.key)
        compactor = Compactor(location.store, layout, clock)
        while planned := await compactor.plan():
            written = [await write_part(location.store, layout, p, clock) for p in planned.parts]
            await compactor.publish(planned, written)
        await location.store.close()

    asyncio.run(run())


def test_each_job_is_in_one_micro_batch_and_a_repeated_one_has_the_same(url: str) -> None:
    jobs = [finished(f"job{place}", hours_ago(2 + place % 7)) for place in range(21)]
    archive(url, jobs[:14], jobs[7:])
    clock = SetClock()
    clock.ahead = hours_ago(0) - clock.now()  # The middle of this hour, whatever the time is.
    stream = reader(url, clock, maxHoursPerTrigger="2")
    first = all_batches(stream)
    assert sorted(chained(first)) == sorted(job.id for job in jobs)
    assert len(first) == 5  # Eight hours and a part of one.
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    assert ids(stream, start, end) == first[0] != []
    compact(url)
    assert ids(reader(url), start, end) == first[0]
    assert sorted(chained(all_batches(reader(url)))) == sorted(job.id for job in jobs)


def test_the_end_waits_for_jobs_that_are_not_in_the_archive_yet(url: str) -> None:
    clock = SetClock()
    stream = reader(url, clock)
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("mail", 1, id="late")
        for job in queue.claim():
            queue.complete(job)
        (done,) = queue.jobs(statuses="done").jobs
        assert done.finished_at is not None
        start = stream.initialOffset()
        clock.ahead = 5 * HOUR
        end = stream.latestOffset(start, LIMIT)
        assert before(end) <= done.finished_at - SETTLE
        queue.flush_archive()
    assert stream.latestOffset(start, LIMIT) == end  # The queue is not read again at once.
    clock.ahead += timedelta(seconds=2)
    last = stream.latestOffset(end, LIMIT)
    assert before(last) > done.finished_at
    assert ids(stream, start, end) == []
    assert ids(stream, end, last) == ["late"]


def test_an_end_lies_in_the_past_and_moves_in_steps(url: str) -> None:
    stream = reader(url)
    now = SystemClock().now()
    end = before(stream.latestOffset(stream.initialOffset(), LIMIT))
    assert now - SETTLE - SETTLE / 5 - timedelta(seconds=5) < end <= SystemClock().now() - SETTLE
    assert end.timestamp() % 12 == 0


def test_a_query_without_a_checkpoint_begins_with_the_first_job_or_a_given_time(url: str) -> None:
    at = hours_ago(30)
    archive(url, [finished("job1", at), finished("job2", hours_ago(5))])
    assert before(reader(url).initialOffset()) == at.replace(minute=0)
    compact(url)
    assert before(reader(url).initialOffset()) == at
    stream = reader(url, **{"from": hours_ago(6).isoformat()})
    assert before(stream.initialOffset()) == hours_ago(6)
    assert chained(all_batches(stream)) == ["job2"]


def test_a_query_that_ends_by_itself_takes_what_has_finished_when_it_begins(url: str) -> None:
    clock = SetClock()
    stream = reader(url, clock)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    clock.ahead = 3 * HOUR
    assert before(stream.latestOffset(start, LIMIT)) < SystemClock().now()


def test_kinds_and_statuses_are_chosen(url: str) -> None:
    archive(url, [finished("job1", hours_ago(3), "a"), finished("job2", hours_ago(3), "b")])
    assert chained(all_batches(reader(url, kind="b"))) == ["job2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "2026-01-01"}, "unknown option 'to'"),
        ({"maxHoursPerTrigger": "0"}, "maxHoursPerTrigger"),
        ({"settleSeconds": "-1"}, "settleSeconds"),
        ({"consumer": "c"}, "unknown option 'consumer'"),
    ],
)
def test_options_that_are_wrong_are_named(url: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        reader(url, **options).initialOffset()


def test_without_a_queue_or_with_partitions_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QueueNotFoundError):
        reader((tmp_path / "none.json").as_uri()).initialOffset()
    parted = (tmp_path / "parted.json").as_uri() + "?partitions=2"
    with bucketq.connect_sync(parted, mode="direct"):
        pass
    with pytest.raises(InvalidRequestError, match="has partitions"):
        reader(parted).initialOffset()
