"""Filters of a query: a read leaves out what cannot pass them, and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

import bucketq
from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.model.records import JobRecord
from bucketq.spark.format_options import ReadOptions, read_options
from bucketq.spark.table.archive_table import ArchiveTableReader
from bucketq.spark.table.pushed_filters import narrow
from bucketq.spark.table.queue_reader import QueueTableReader
from bucketq.store.base import ObjectInfo, StoredObject
from bucketq.store.local import LocalStore
from bucketq.store.url import open_store

KIND, STATUS, AT = ("kind",), ("status",), ("finished_at",)
NOON = datetime(2025, 3, 4, 12, tzinfo=UTC)
NOW = datetime(2025, 3, 9, tzinfo=UTC)
US, HOUR = timedelta(microseconds=1), timedelta(hours=1)


def options(url: str = "file:///srv/queue.json", **given: str) -> ReadOptions:
    return read_options({"path": url, **given})


def of_archive(url: str = "file:///srv/queue.json", **given: str) -> ReadOptions:
    given = {"from": "2025-03-01", **given}
    return options(url, table="archive", **given)


@pytest.mark.parametrize(
    ("filters", "kinds"),
    [
        ([EqualTo(KIND, "a")], ("a",)),
        ([EqualTo(("Kind",), "a")], ("a",)),
        ([EqualNullSafe(KIND, "a")], ("a",)),
        ([In(KIND, ("b", "a", "b"))], ("b", "a")),
        ([In(KIND, ("b", "a")), EqualTo(KIND, "a")], ("a",)),
        ([In(KIND, ("a", None))], ()),
        ([EqualNullSafe(KIND, None)], ()),
        ([Not(EqualTo(KIND, "a"))], ()),
        ([StringStartsWith(KIND, "a")], ()),
        ([IsNotNull(KIND)], ()),
        ([EqualTo(("worker",), "a")], ()),
        ([EqualTo(("tags", "kind"), "a")], ()),
    ],
)
def test_a_filter_on_the_kind_chooses_kinds(filters: list[Filter], kinds: tuple[str, ...]) -> None:
    found = narrow(options(), filters, NOW)
    assert (found.kinds, found.is_empty) == (kinds, False)


def test_filters_and_options_are_used_together() -> None:
    given = options(kind="a,b", status="dead,queued")
    found = narrow(given, [EqualTo(STATUS, "dead"), In(KIND, ("b", "c"))], NOW)
    assert (found.kinds, found.statuses, found.is_empty) == (("b",), ("dead",), False)
    assert narrow(given, [EqualTo(KIND, "c")], NOW).is_empty
    assert narrow(options(), [EqualTo(KIND, "a"), EqualTo(KIND, "b")], NOW).is_empty


@pytest.mark.parametrize(
    ("each", "since", "until"),
    [
        (GreaterThan(AT, NOON), NOON + US, NOW),
        (GreaterThanOrEqual(AT, NOON), NOON, NOW),
        (LessThan(AT, NOON), None, NOON),
        (LessThanOrEqual(AT, NOON), None, NOON + US),
        (EqualTo(AT, NOON), NOON, NOON + US),
        (In(AT, (NOON, NOON - HOUR)), NOON - HOUR, NOON + US),
        (LessThan(AT, NOW + 9999 * HOUR), None, NOW),
        (LessThanOrEqual(AT, datetime.max.replace(tzinfo=UTC)), None, None),
        (EqualTo(AT, NOON.replace(tzinfo=None)), None, None),
        (IsNull(AT), None, None),
        (Not(EqualTo(AT, NOON)), None, None),
    ],
)
def test_a_filter_on_the_time_narrows_the_range_of_the_archive(
    each: Filter, since: datetime | None, until: datetime | None
) -> None:
    found = narrow(of_archive(), [each], NOW)
    assert found.since == (since or of_archive().since)
    assert found.until == until
    assert not found.is_empty


def test_a_range_of_the_archive_is_never_made_longer() -> None:
    given = of_archive(to="2025-03-04")
    wide = [GreaterThan(AT, NOON - 9999 * HOUR), LessThan(AT, NOON + 9999 * HOUR)]
    assert narrow(given, wide, NOW) == given
    assert narrow(given, [GreaterThan(AT, NOON)], NOW).is_empty
    assert narrow(of_archive(), [GreaterThan(AT, NOW + HOUR)], NOW).is_empty


@pytest.mark.parametrize("each", [GreaterThan(AT, NOON), IsNotNull(AT), EqualTo(AT, NOON)])
def test_of_a_queue_only_jobs_that_have_finished_have_a_time(each: Filter) -> None:
    assert narrow(options(), [each], NOW).statuses == ("done", "dead")
    assert narrow(options(), [IsNull(AT)], NOW).statuses == ()


@pytest.mark.parametrize("kind", [QueueTableReader, ArchiveTableReader])
def test_spark_can_use_a_reader_while_its_setting_is_off(kind: Any) -> None:
    """It refuses one that overrides the method: this is how it finds out."""
    reader = kind(of_archive())
    found = getattr(reader.pushFilters, "__func__", None)
    assert found is DataSourceReader.pushFilters
    filters = [EqualTo(KIND, "a"), IsNotNull(KIND)]
    assert reader.pushFilters(filters) is filters, "Spark applies them as well"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often files are read, and folders listed."""
    counts: Counter[str] = Counter()
    get, listing = LocalStore.get, LocalStore.list

    async def counted_get(store: LocalStore, key: str) -> StoredObject:
        counts["get"] += ".jsonl" in key
        return await get(store, key)

    async def counted_list(store: LocalStore, prefix: str) -> AsyncIterator[ObjectInfo]:
        counts["list"] += 1
        async for each in listing(store, prefix):
            yield each

    monkeypatch.setattr(LocalStore, "get", counted_get)
    monkeypatch.setattr(LocalStore, "list", counted_list)
    return counts


def archived(url: str, days: int) -> None:
    """Write an archive with a file for each of two kinds in every sixth hour of some days."""

    async def write() -> None:
        location = open_store(url)
        writer = ArchiveWriter(location.store, Layout.of(location.store.url, location.key))
        for number in range(4 * days):
            at = NOON - 6 * HOUR * number
            jobs = [
                JobRecord(
                    id=f"{kind}{number}",
                    kind=kind,
                    status="done",
                    outcome="completed",
                    seq=number,
                    payload=Raw(b"1"),
                    pushed_at=at,
                    finished_at=at,
                )
                for kind in ("a", "b")
            ]
            await writer.write([(job, None) for job in jobs], number)
        await location.store.close()

    asyncio.run(write())


def ids(reader: ArchiveTableReader | QueueTableReader, *filters: Filter) -> list[str]:
    """The jobs of a read to which Spark has offered some filters."""
    if filters:
        reader.pushFilters([*filters])
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return sorted(job_id for batch in batches for job_id in batch.column("id").to_pylist())


def test_the_last_hour_of_a_long_range_reads_few_objects(
    tmp_path: Path, reads: Counter[str]
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    archived(url, days=4)
    long = {"from": "2025-02-10", "to": "2025-03-05"}
    assert len(ids(ArchiveTableReader(of_archive(url, **long)))) == 32
    assert reads["get"] == 16
    assert reads["list"] >= 23
    reads.clear()
    hour = {"from": "2025-03-04T12:00", "to": "2025-03-04T13:00"}
    assert ids(ArchiveTableReader(of_archive(url, **hour))) == ["a0", "b0"]
    alone = dict(reads)
    reads.clear()
    last = [GreaterThanOrEqual(AT, NOON), LessThan(AT, NOON + HOUR)]
    assert ids(ArchiveTableReader(of_archive(url, **long)), *last) == ["a0", "b0"]
    assert dict(reads) == alone
    assert alone["get"] == 1
    assert ids(ArchiveTableReader(of_archive(url, **long)), EqualTo(KIND, "a"), *last) == ["a0"]
    nothing = [*last, GreaterThan(AT, NOON + HOUR)]
    reads.clear()
    assert ids(ArchiveTableReader(of_archive(url, **long)), *nothing) == []
    assert reads["get"] == 0


def test_filters_choose_jobs_of_a_queue(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct") as queue:
        for kind in ("a", "b", "b"):
            queue.push(kind, 1, id=f"{kind}{len(queue.jobs().jobs)}", max_attempts=1)
        [job] = queue.claim("a")
        queue.fail(job, "broken")

    def found(*filters: Filter) -> list[str]:
        return ids(QueueTableReader(options(url)), *filters)

    assert found() == ["a0", "b1", "b2"]
    assert found(EqualTo(KIND, "b")) == ["b1", "b2"]
    assert found(EqualTo(STATUS, "dead")) == ["a0"]
    assert found(GreaterThan(AT, NOON)) == ["a0"]
    assert found(EqualTo(KIND, "b"), EqualTo(KIND, "a")) == []
