"""The archive as a table: the hours that were asked for, each job once, to the microsecond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import InputPartition

import bucketq
from bucketq.archive.archive_layout import Layout, hour_of
from bucketq.client import archive as client_archive
from bucketq.model.records import JobRecord
from bucketq.spark.format_options import read_options
from bucketq.spark.table.archive_table import ArchiveTableReader
from bucketq.store.base import ObjectInfo, StoredObject
from bucketq.store.memory import MemoryStore
from bucketq.store.url import Location, open_store

TEN = datetime(2025, 3, 4, 10, tzinfo=UTC)
US = timedelta(microseconds=1)
HOUR = timedelta(hours=1)

Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession) -> Read:
    def load(url: str, **options: str) -> DataFrame:
        named = {
            "from": options.pop("since", "2025-03-04"),
            "to": options.pop("until", "2025-03-05"),
            **options,
        }
        return spark.read.format("bucketq").options(table="archive", **named).load(url)

    return load


def done(job_id: str, at: datetime, kind: str = "x") -> JobRecord:
    return JobRecord(
        id=job_id,
        kind=kind,
        status="done",
        outcome="completed",
        seq=1,
        payload=Raw(b"1"),
        pushed_at=at - HOUR,
        finished_at=at,
    )


def archive_file(location: Location, version: int, jobs: list[JobRecord]) -> tuple[str, bytes]:
    """The name and the content of an archive file, as a queue writes it."""
    body = b"".join(msgspec.json.encode(job) + b"\n" for job in jobs)
    assert jobs[0].finished_at is not None
    layout = Layout.of(location.store.url, location.key)
    return layout.file_key(hour_of(jobs[0].finished_at), version, body), body


def put(url: str, version: int, *jobs: JobRecord) -> None:
    async def write() -> None:
        location = open_store(url)
        await location.store.put(*archive_file(location, version, list(jobs)))
        await location.store.close()

    asyncio.run(write())


def ids(frame: DataFrame) -> list[str]:
    return sorted(row.id for row in frame.select("id").collect())


def test_a_range_is_exact_to_the_microsecond(url: str, read: Read) -> None:
    put(url, 1, done("before", TEN - US))
    put(url, 2, done("first", TEN), done("half", TEN + HOUR / 2), done("last", TEN + HOUR - US))
    put(url, 3, done("next", TEN + HOUR))
    assert ids(read(url, since="2025-03-04T10:00:00", until="2025-03-04T11:00:00")) == [
        "first",
        "half",
        "last",
    ]
    assert ids(
        read(url, since="2025-03-04T10:00:00.000001Z", until="2025-03-04T11:00:00.000001Z")
    ) == ["half", "last", "next"]
    assert ids(read(url, since="2025-03-04T11:00:00+01:00", until="2025-03-04T12:00:00+01:00")) == [
        "first",
        "half",
        "last",
    ]
    assert ids(read(url, since="2025-03-04T10:00", until="2025-03-04T10:00")) == []


@pytest.mark.parametrize("is_pushed", [True, False])
def test_a_condition_is_pushed_down_if_the_setting_of_spark_is_on(
    spark: SparkSession, file_url: str, read: Read, is_pushed: bool
) -> None:
    """The session is far from UTC, and so are the hours that are written in a query."""
    put(file_url, 1, done("before", TEN - US), done("mail", TEN - US, "mail"))
    put(file_url, 2, done("first", TEN), done("last", TEN + HOUR - US), done("m", TEN, "mail"))
    put(file_url, 3, done("next", TEN + HOUR))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", is_pushed)
    try:
        rows = read(file_url, since="2025-02-25", numPartitions="3").where(
            "finished_at >= '2025-03-04T10:00:00Z' AND finished_at < '2025-03-04T11:00:00Z' "
            "AND kind IN ('x', 'y') AND status = 'done'"
        )
        assert ids(rows) == ["first", "last"]
        assert rows.rdd.getNumPartitions() == (1 if is_pushed else 3), "an hour is one task"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_job_archived_twice_by_a_crash_is_read_once(file_url: str, read: Read) -> None:
    put(file_url, 1, done("a", TEN), done("b", TEN))
    put(file_url, 2, done("b", TEN), done("c", TEN))
    assert ids(read(file_url)) == ["a", "b", "c"]
    assert ids(read(file_url, numPartitions="7")) == ["a", "b", "c"]


def test_a_late_archive_file_is_in_the_next_read(file_url: str, read: Read) -> None:
    put(file_url, 5, done("a", TEN))
    frame = read(file_url)
    assert ids(frame) == ["a"]
    put(file_url, 9, done("late", TEN + US))
    assert ids(read(file_url)) == ["a", "late"]


def test_archived_jobs_are_selected_by_kind_and_status(url: str, read: Read) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("a", {"n": 1}, id="one")
        queue.push("b", b"\xff", id="two")
        for job in queue.claim(limit=2):
            queue.complete(job, {"ok": True})
        assert queue.flush_archive() == 2
    now = datetime.now(UTC)
    span = {"since": str(now - HOUR), "until": str(now + HOUR)}
    rows = {row.id: row for row in read(url, **span).collect()}
    assert {name: row.outcome for name, row in rows.items()} == {
        "one": "completed",
        "two": "completed",
    }
    assert rows["one"].result == '{"ok":true}'
    assert bytes(rows["two"].payload_bytes) == b"\xff"
    assert ids(read(url, **span, kind="b")) == ["two"]
    assert ids(read(url, **span, status="dead")) == []
    hours = read(url, **span).groupBy(f.date_trunc("hour", "finished_at")).count().collect()
    assert sum(row["count"] for row in hours) == 2


class Counting(MemoryStore):
    """A store that writes down what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def get(self, key: str) -> StoredObject:
        self.asked.append(f"get {key}")
        return await super().get(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        self.asked.append(f"list {prefix}")
        async for info in super().list(prefix):
            yield info


def counted(monkeypatch: pytest.MonkeyPatch, moments: list[datetime]) -> Counting:
    """A store with an archive file for each moment, behind every address."""
    store = Counting()
    location = Location(store, "queue.json", "memory://")

    async def fill() -> None:
        for number, moment in enumerate(moments, start=1):
            await store.put(*archive_file(location, number, [done(f"{moment:%H}", moment)]))

    asyncio.run(fill())

    def opened(url: str, **_: Any) -> Location:
        return Location(store, "queue.json", url, is_lent=True)

    monkeypatch.setattr("bucketq.spark.queue_access.open_store", opened)
    monkeypatch.setattr(client_archive, "open_store", opened)
    return store


def opened_reader(span: dict[str, str], partitions: str = "9") -> ArchiveTableReader:
    given = {"path": "file:///q/queue.json", "table": "archive", "numPartitions": partitions}
    return ArchiveTableReader(read_options(given | span))


def rows(reader: ArchiveTableReader, parts: Sequence[InputPartition]) -> list[dict[str, Any]]:
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_only_the_hours_asked_for_are_listed_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = counted(monkeypatch, [TEN.replace(hour=hour) for hour in range(24)])
    reader = opened_reader({"from": "2025-03-04T10:30", "to": "2025-03-04T13:00"})
    parts = reader.partitions()
    assert len(parts) == 3
    store.asked.clear()
    assert sorted(row["id"] for row in rows(reader, parts)) == ["11", "12"]
    listed = sorted(each for each in store.asked if each.startswith("list queue/archive/2025"))
    assert listed == [f"list queue/archive/2025-03-04T{hour}/" for hour in (10, 11, 12)]
    gets = sorted(each for each in store.asked if each.endswith(".jsonl"))
    assert [each.partition("T")[2][:2] for each in gets] == ["10", "11", "12"]


def test_a_long_range_is_listed_by_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    store = counted(monkeypatch, [TEN, TEN + 30 * HOUR])
    reader = opened_reader({"from": "2025-03-01T12:00", "to": "2025-03-31"}, partitions="4")
    parts = reader.partitions()
    assert len(parts) == 4
    store.asked.clear()
    assert len(rows(reader, parts)) == 2
    listed = [each for each in store.asked if each.startswith("list queue/archive/2025")]
    assert len(listed) == 12 + 29
