"""Finished jobs leave for the archive, once, in the hour in which they finished."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

import bucketq
from bucketq.archive.archive_layout import Layout, hours_between
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.upkeep import collect, prune
from bucketq.archive.writer import ArchiveWriter
from bucketq.errors import CorruptStateError, InvalidRequestError
from bucketq.model.records import JobRecord
from bucketq.store.memory import MemoryStore

NOON = datetime(2026, 2, 15, 12, tzinfo=UTC)
LAYOUT = Layout.of("memory://", "jobs/queue.json")


def finished(name: str, at: datetime = NOON, payload: bytes = b"{}", seq: int = 1) -> JobRecord:
    return JobRecord(
        id=name,
        kind="index",
        status="done",
        seq=seq,
        payload=Raw(payload),
        pushed_at=at - timedelta(minutes=5),
        finished_at=at,
        outcome="completed",
    )


async def names(store: MemoryStore, since: datetime, until: datetime) -> list[str]:
    return [job.id async for job in ArchiveReader(store, LAYOUT).jobs(since, until)]


async def keys(store: MemoryStore) -> list[str]:
    return [info.key async for info in store.list("")]


class Watched(MemoryStore):
    """A store that notes what was listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []

    def list(self, prefix: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.listed.append(prefix)
        return super().list(prefix)


async def test_a_line_for_each_job_or_nothing_is_written() -> None:
    store = MemoryStore()
    jobs = [(finished(name), None) for name in "ab"]
    with pytest.raises(ValueError, match="shorter"):
        await ArchiveWriter(store, LAYOUT).write(jobs, 7, [b"{}"])
    assert await keys(store) == []


async def test_an_archive_file_lies_in_the_utc_hour_in_which_its_jobs_finished() -> None:
    store = MemoryStore()
    east = NOON.astimezone(tz=None)
    written = await ArchiveWriter(store, LAYOUT).write([(finished("a", east), None)], version=42)
    assert written == await keys(store)
    assert written[0].startswith("jobs/queue/archive/2026-02-15T12/00000000000000000042-")
    assert written[0].endswith(".jsonl")


async def test_jobs_of_two_hours_go_to_two_archive_files() -> None:
    store = MemoryStore()
    jobs = [(finished("a", NOON - timedelta(seconds=1)), None), (finished("b"), None)]
    written = await ArchiveWriter(store, LAYOUT).write(jobs, version=7)
    assert [key.split("/")[3] for key in written] == ["2026-02-15T11", "2026-02-15T12"]


async def test_writing_the_same_again_leaves_one_file_and_other_content_makes_another() -> None:
    store = MemoryStore()
    writer = ArchiveWriter(store, LAYOUT)
    await writer.write([(finished("a"), None)], version=7)
    await writer.write([(finished("a"), None)], version=7)
    assert len(await keys(store)) == 1
    await writer.write([(finished("a"), None), (finished("b"), None)], version=7)
    assert len(await keys(store)) == 2


async def test_a_range_is_read_from_its_beginning_up_to_but_not_including_its_end() -> None:
    store = MemoryStore()
    moments = [NOON + timedelta(minutes=minutes) for minutes in (0, 30, 60, 90)]
    jobs = [(finished(f"job{index}", at), None) for index, at in enumerate(moments)]
    await ArchiveWriter(store, LAYOUT).write(jobs, version=1)
    assert await names(store, NOON, moments[2]) == ["job0", "job1"]
    assert await names(store, moments[1], moments[3]) == ["job1", "job2"]
    assert await names(store, moments[3], moments[0]) == []


async def test_only_the_hours_asked_for_are_listed() -> None:
    store = Watched()
    await ArchiveWriter(store, LAYOUT).write([(finished("a"), None)], version=1)
    assert await names(store, NOON, NOON + timedelta(hours=2)) == ["a"]
    assert store.listed == [
        "jobs/queue/archive/2026-02-15T12/",
        "jobs/queue/archive/2026-02-15T13/",
    ]


async def test_a_job_that_stands_in_two_archive_files_is_read_once() -> None:
    store = MemoryStore()
    writer = ArchiveWriter(store, LAYOUT)
    await writer.write([(finished("a"), None), (finished("b"), None)], version=1)
    await writer.write([(finished("b"), None), (finished("c"), None)], version=2)
    assert await names(store, NOON, NOON + timedelta(hours=1)) == ["a", "b", "c"]


async def test_a_job_that_stands_twice_in_one_archive_file_is_read_once_and_in_its_place() -> None:
    store = MemoryStore()
    twice = finished("a")
    jobs = [(twice, None), (finished("b"), None), (twice, None)]
    await ArchiveWriter(store, LAYOUT).write(jobs, version=1)
    assert await names(store, NOON, NOON + timedelta(hours=1)) == ["a", "b"]


async def test_two_jobs_with_one_id_are_both_read_from_one_archive_file_or_two() -> None:
    store = MemoryStore()
    writer = ArchiveWriter(store, LAYOUT)
    await writer.write([(finished("a"), None), (finished("a", seq=2), None)], version=1)
    await writer.write([(finished("a", seq=2), None), (finished("a", seq=3), None)], version=2)
    reader = ArchiveReader(store, LAYOUT)
    found = [(job.id, job.seq) async for job in reader.jobs(NOON, NOON + timedelta(hours=1))]
    assert found == [("a", 1), ("a", 2), ("a", 3)]


async def test_a_queue_that_was_created_anew_may_give_an_id_the_same_number_again() -> None:
    store = MemoryStore()
    writer = ArchiveWriter(store, LAYOUT)
    await writer.write([(finished("a"), None)], version=9)
    await writer.write([(finished("a", NOON + timedelta(minutes=1)), None)], version=9)
    later = NOON + timedelta(hours=5)
    assert await collect(store, LAYOUT, NOON, later) == 0
    assert await names(store, NOON, later) == ["a", "a"]


async def test_what_is_read_is_what_was_written_with_fields_of_a_newer_bucketq_left_out() -> None:
    store = MemoryStore()
    job = finished("a", payload=b'{"text":"line\\nbreak","big":123456789012345678901234567890}')
    extra = {"colour": Raw(b'"blue"')}
    other = finished("b", NOON + timedelta(minutes=1))
    [key] = await ArchiveWriter(store, LAYOUT).write([(job, extra), (other, None)], version=1)
    first, second, end = (await store.get(key)).body.split(b"\n")
    assert msgspec.json.decode(first)["colour"] == "blue"
    assert (second, end) == (msgspec.json.encode(other), b"")
    found = [
        job async for job in ArchiveReader(store, LAYOUT).jobs(NOON, NOON + timedelta(hours=1))
    ]
    assert found == [job, other]


async def test_a_damaged_archive_file_is_named_with_its_line() -> None:
    store = MemoryStore()
    [key] = await ArchiveWriter(store, LAYOUT).write([(finished("a"), None)], version=1)
    await store.put(key, (await store.get(key)).body + b'{"id":"b"')
    with pytest.raises(CorruptStateError, match="line 2"):
        await names(store, NOON, NOON + timedelta(hours=1))


async def test_a_range_without_a_time_zone_or_without_end_is_refused() -> None:
    store = MemoryStore()
    with pytest.raises(InvalidRequestError, match="time zone"):
        await names(store, datetime(2026, 1, 1), NOON)  # noqa: DTZ001
    with pytest.raises(InvalidRequestError, match="too long"):
        await names(store, datetime(1900, 1, 1, tzinfo=UTC), NOON)


async def test_pruning_deletes_whole_hours_that_ended_before_and_nothing_else() -> None:
    store = MemoryStore()
    await store.put("jobs/queue.json", b"the queue itself")
    await store.put("jobs/queue/archive/readme.txt", b"another note")
    moments = [NOON - timedelta(hours=hours) for hours in (3, 2, 1, 0)]
    jobs = [(finished(f"job{index}", at), None) for index, at in enumerate(moments)]
    await ArchiveWriter(store, LAYOUT).write(jobs, version=1)
    assert await prune(store, LAYOUT, before=NOON - timedelta(minutes=30)) == 2
    assert await names(store, NOON - timedelta(days=1), NOON + timedelta(days=1)) == [
        "job2",
        "job3",
    ]
    assert "jobs/queue.json" in await keys(store)
    assert "jobs/queue/archive/readme.txt" in await keys(store)


async def test_archive_files_that_only_repeat_a_later_one_are_collected() -> None:
    store = MemoryStore()
    writer = ArchiveWriter(store, LAYOUT)
    await writer.write([(finished("a"), None)], version=1)
    await writer.write([(finished("a"), None), (finished("b"), None)], version=2)
    await writer.write([(finished("b"), None), (finished("c"), None)], version=3)
    later = NOON + timedelta(hours=5)
    assert await collect(store, LAYOUT, NOON, later) == 1
    assert await names(store, NOON, later) == ["a", "b", "c"]
    assert await collect(store, LAYOUT, NOON, later) == 0


async def test_an_archive_file_is_not_collected_for_a_later_job_with_the_id_of_its_own() -> None:
    store = MemoryStore()
    writer = ArchiveWriter(store, LAYOUT)
    await writer.write([(finished("a"), None)], version=1)
    await writer.write([(finished("a", seq=2), None)], version=2)
    later = NOON + timedelta(hours=5)
    assert await collect(store, LAYOUT, NOON, later) == 0
    assert await names(store, NOON, later) == ["a", "a"]


async def test_recent_hours_are_not_collected() -> None:
    store = MemoryStore()
    writer = ArchiveWriter(store, LAYOUT)
    await writer.write([(finished("a"), None)], version=1)
    await writer.write([(finished("a"), None), (finished("b"), None)], version=2)
    assert await collect(store, LAYOUT, NOON, NOON + timedelta(minutes=90)) == 0


@pytest.mark.parametrize(
    "key",
    [
        "elsewhere/archive/2026-02-15T12/00000000000000000042-0123456789abcdef.jsonl",
        "jobs/queue/archive/2026-02-15T25/00000000000000000042-0123456789abcdef.jsonl",
        "jobs/queue/archive/2026-02-15T12/42-0123456789abcdef.jsonl",
        "jobs/queue/archive/2026-02-15T12/",
        "jobs/queue/archive/",
    ],
)
def test_what_is_not_the_key_of_an_archive_file_is_skipped(key: str) -> None:
    assert LAYOUT.parse(key) is None


def test_two_file_queues_in_one_folder_have_archives_of_their_own() -> None:
    keys = ("a.json", "b.json", "a", "a.txt", ".json", "a/.json")
    assert len({Layout.of("file:///srv", key).root for key in keys}) == 6


@pytest.mark.parametrize(
    ("key", "root"),
    [
        ("jobs/queue.json", "jobs/queue/archive/"),
        ("jobs/queue", "jobs/queue.d/archive/"),
        ("queue.db", "queue.db.d/archive/"),
        (".json", ".json.d/archive/"),
        ("jobs/.json", "jobs/.json.d/archive/"),
    ],
)
def test_the_archive_of_a_file_never_lies_under_the_name_of_the_file(key: str, root: str) -> None:
    assert Layout.of("file:///srv", key).root == root


@pytest.mark.parametrize("url", ["s3://bucket", "gs://bucket", "az://container", "own://store"])
@pytest.mark.parametrize(
    ("key", "root"),
    [
        ("jobs/queue.json", "jobs/queue/archive/"),
        ("jobs/queue", "jobs/queue/archive/"),
        ("queue.db", "queue.db/archive/"),
    ],
)
def test_the_archive_of_an_object_keeps_its_place(url: str, key: str, root: str) -> None:
    assert Layout.of(url, key).root == root


async def test_archive_files_that_an_older_version_wrote_are_read() -> None:
    store = MemoryStore()
    await ArchiveWriter(store, Layout("jobs/queue/archive/")).write([(finished("a"), None)], 1)
    async with bucketq.open_archive("jobs/queue", store=store) as archive:
        since = NOON - timedelta(hours=1)
        assert [job.id async for job in archive.jobs(since, NOON + timedelta(hours=1))] == ["a"]


@pytest.mark.parametrize("name", ["queue.json", "queue", ".json", "a.b"])
async def test_a_file_queue_of_any_name_archives(tmp_path: Path, name: str) -> None:
    url = (tmp_path / name).as_uri()
    async with bucketq.connect(url, mode="direct") as queue:
        ids = [await queue.push("index", number) for number in range(2)]
        for job in await queue.claim(limit=2):
            await queue.complete(job)
        assert await queue.flush_archive() == 2
    async with bucketq.open_archive(url) as archive:
        since = datetime.now(UTC) - timedelta(hours=1)
        assert [job.id async for job in archive.jobs(since)] == ids


def test_the_hours_of_a_range_are_those_that_it_touches() -> None:
    hours = list(hours_between(NOON + timedelta(minutes=59), NOON + timedelta(hours=2)))
    assert hours == [NOON, NOON + timedelta(hours=1)]


async def test_a_job_is_found_by_its_id_and_no_further_hour_is_listed() -> None:
    store = Watched()
    writer = ArchiveWriter(store, LAYOUT)
    for hour in range(4):
        at = NOON + timedelta(hours=hour)
        jobs = [finished(name, at, seq=hour + 1) for name in ("used-again", f"at-{hour}")]
        await writer.write([(job, None) for job in jobs], version=hour + 1)
    reader, until = writer.reader(), NOON + timedelta(hours=4)
    store.listed.clear()
    found = await reader.find("at-1", NOON, until)
    assert found is not None
    assert found.finished_at == NOON + timedelta(hours=1)
    assert LAYOUT.hour_prefix(until - timedelta(hours=1)) in store.listed, "a day is listed at once"
    newest = await reader.find("used-again", NOON, until, newest=True)
    assert newest is not None
    assert newest.seq == 4
    oldest = await reader.find("used-again", NOON, until)
    assert oldest is not None
    assert oldest.seq == 1
    assert await reader.find("at", NOON, until) is None
    assert await reader.find("at-0", NOON + timedelta(hours=1), until) is None
