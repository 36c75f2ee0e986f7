"""A queue at one version: its lines, chosen by kind and status, or a reason why there are none."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

import bucketq
from bucketq import BlockingQueue, JobSpec
from bucketq.commit.objects import queue_segments
from bucketq.commit.objects.segment_policy import SegmentPolicy
from bucketq.errors import CorruptStateError, QueueNotFoundError, UnavailableError
from bucketq.spark.format_options import ReadOptions, read_options
from bucketq.spark.table.queue_reader import QueueTableReader, TablePartition, read_version
from bucketq.store.base import StoredObject
from bucketq.store.local import LocalStore


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


def payloads(url: str, **options: str) -> list[Any]:
    found = read_version(options_of(url, **options))
    assert found.segments == []
    return [json.loads(line)["payload"] for line in found.hot]


@pytest.mark.shallow  # The driver has the lines of the object alone; segments are below.
def test_jobs_come_in_their_order_chosen_by_kind_and_status(url: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        assert payloads(url) == []
        kinds = ("a", "b", "a", "c")
        queue.push_many([JobSpec(kind=kind, payload=n) for n, kind in enumerate(kinds)])
        queue.claim("a")
    assert payloads(url) == [0, 1, 2, 3]
    assert payloads(url, kind="a, c") == [0, 2, 3]
    assert payloads(url, status="queued") == [1, 2, 3]
    assert payloads(url, status="running,dead", kind="a") == [0]
    assert payloads(url, kind="none") == []


def test_all_partitions_of_a_queue_are_read(url: str) -> None:
    with bucketq.connect_sync(f"{url}?partitions=3", mode="direct") as queue:
        for number in range(12):
            queue.push("a" if number % 2 else "b", number)
    assert sorted(payloads(url)) == [*range(12)]
    assert sorted(payloads(url, kind="a")) == [*range(1, 12, 2)]


def test_a_missing_or_corrupt_queue_is_reported(url: str, tmp_path: Path) -> None:
    with pytest.raises(QueueNotFoundError, match=r"no queue at .*queue.json"):
        payloads(url)
    (tmp_path / "queue.json").write_bytes(b'{"format":1}')
    with pytest.raises(CorruptStateError, match="not a queue that can be trusted"):
        payloads(url)


@pytest.fixture
def shaky(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Errors that stores will raise, one at each request, before they answer."""
    errors: list[Exception] = []
    get = LocalStore.get

    async def try_get(store: LocalStore, key: str) -> StoredObject:
        if errors:
            raise errors.pop()
        return await get(store, key)

    monkeypatch.setattr(LocalStore, "get", try_get)
    return errors


def test_an_unavailable_store_is_retried_until_the_timeout(
    url: str, shaky: list[Exception]
) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("a", 1)
    shaky.extend([UnavailableError("not now")] * 2)
    assert payloads(url) == [1]
    shaky.extend([UnavailableError("not now")] * 1000)
    with pytest.raises(UnavailableError, match=r"could not be read within 0.2 s: not now"):
        payloads(url, timeoutSeconds="0.2")


KINDS = ("a", "b", "c")


@pytest.fixture
def deep(url: str) -> Iterator[BlockingQueue[Any]]:
    """A queue of 600 jobs, most of them in segments of every class."""
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(spill_bytes=4000, max_attempts=1)
        for start in range(0, 600, 60):
            queue.push_many(
                [
                    JobSpec(
                        kind=KINDS[n % 3],
                        payload=n,
                        priority=n % 2,
                        delay_s=9e5 if n % 5 == 0 else None,
                    )
                    for n in range(start, start + 60)
                ]
            )
        for job in queue.claim("b", limit=60):
            queue.fail(job, "no")
        queue.claim("a", limit=10)
        wait_for(lambda: queue.stats().head_bytes <= 16_000)
        yield queue


def wait_for(happened: Callable[[], bool]) -> None:
    deadline_s = monotonic() + 60
    while not happened():
        assert monotonic() < deadline_s
        sleep(0.05)


def options_of(url: str, **options: str) -> ReadOptions:
    return read_options({"path": url, **options})


def partitions(url: str, **options: str) -> list[TablePartition]:
    """What the driver sends to executors, as it arrives there."""
    planned = QueueTableReader(options_of(url, **options)).partitions()
    arrived: list[TablePartition] = pickle.loads(pickle.dumps(planned))
    return arrived


def rows(url: str, parts: list[TablePartition], **options: str) -> list[list[dict[str, Any]]]:
    """What executors make of partitions."""
    reader = QueueTableReader(options_of(url, **options))
    return [[row for batch in reader.read(part) for row in batch.to_pylist()] for part in parts]


def read_deep(url: str, **options: str) -> list[dict[str, Any]]:
    parts = partitions(url, **options)
    found = [row for part in rows(url, parts, **options) for row in part]
    return sorted(found, key=lambda row: row["seq"])


def test_executors_read_segments_and_every_job_is_there_once(
    url: str, deep: BlockingQueue[Any]
) -> None:
    expected = deep.snapshot().jobs
    found = read_version(options_of(url))
    assert {record.cls for record in found.segments} == {"ready", "later", "dead"}
    assert len(found.hot) < 200
    table = read_deep(url)
    assert [row["id"] for row in table] == [job.id for job in expected]
    assert [row["payload"] for row in table] == [bytes(job.payload).decode() for job in expected]
    assert [row["status"] for row in table] == [job.status for job in expected]
    assert [row["run_at"] for row in table] == [job.run_at for job in expected]
    assert [row["priority"] for row in table] == [job.priority for job in expected]


def test_jobs_of_segments_are_chosen_by_kind_and_status(url: str, deep: BlockingQueue[Any]) -> None:
    jobs = deep.snapshot().jobs
    for kinds, statuses in product(
        ("", "a", "b,c", "none"), ("", "queued", "dead", "running,dead", "done")
    ):
        expected = [
            job.id
            for job in jobs
            if (not kinds or job.kind in kinds.split(","))
            and (not statuses or job.status in statuses.split(","))
        ]
        found = read_deep(url, kind=kinds, status=statuses)
        assert [row["id"] for row in found] == expected


def test_partitions_are_of_one_version_and_about_as_many_as_asked_for(
    url: str, deep: BlockingQueue[Any]
) -> None:
    before = [job.id for job in deep.snapshot().jobs]
    plans = {count: partitions(url, numPartitions=str(count)) for count in (1, 2, 7, 40)}
    for job in deep.claim(limit=200):
        deep.complete(job)
    deep.push_many([JobSpec(kind="later", payload=n) for n in range(100)])
    for count, parts in plans.items():
        found = rows(url, parts)
        assert sorted(row["id"] for part in found for row in part) == sorted(before)
        assert len(parts) <= count
        assert len(parts) >= count * 0.9
        assert max(map(len, found)) <= 1.5 * 600 / len(parts) + 2
        assert max(len(pickle.dumps(part)) for part in parts) < 60_000


def test_a_task_carries_the_names_of_segments_and_not_their_rows(
    url: str, tmp_path: Path, deep: BlockingQueue[Any]
) -> None:
    deep.push_many([JobSpec(kind="big", payload="x" * 10_000) for _ in range(100)])
    wait_for(lambda: deep.stats().head_bytes <= 30_000)
    parts = partitions(url)
    assert len(pickle.dumps(parts)) < 60_000
    assert sum(len(part) for part in rows(url, parts)) == 700


def test_only_blocks_with_the_kinds_that_are_asked_for_are_read(
    url: str, deep: BlockingQueue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"rare": 1, "usual": 999}
    deep.configure(spill_bytes=10_000_000, max_batch_bytes=50_000_000)
    for kind, jobs in names.items():
        deep.push_many([JobSpec(kind=kind, payload="x" * 2000) for _ in range(jobs)])
    deep.configure(spill_bytes=1000)
    wait_for(lambda: deep.stats().head_bytes <= 30_000)
    read_bytes = []
    get_range = LocalStore.get_range

    async def counted(store: LocalStore, key: str, offset: int, length: int) -> bytes:
        read_bytes.append(length)
        return await get_range(store, key, offset, length)

    monkeypatch.setattr(LocalStore, "get_range", counted)
    assert len(read_deep(url, kind="rare")) == 1
    assert sum(read_bytes) < 300_000, "all rows of the queue take two megabytes"
    read_bytes.clear()
    assert read_deep(url, status="running,done") != []
    assert read_bytes == [], "no segment holds running or finished jobs"


def test_rows_that_a_vector_says_have_left_are_not_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_segments, "DEFAULT_POLICY", SegmentPolicy(most_ranges=5, pass_s=0.05))
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(spill_bytes=4000, archive_after_s=3600)
        ids = queue.push_many([JobSpec(kind="k", payload=n) for n in range(300)])
        wait_for(lambda: queue.stats().head_bytes < 16_000)
        for job in ids[::3]:
            queue.cancel(job)
        wait_for(lambda: any(each.vector for each in read_version(options_of(url)).segments))
        parts = partitions(url)
        assert any(each.record.vector for part in parts for each in part.slices)
        found = [row for part in rows(url, parts) for row in part]
    assert sorted(row["id"] for row in found) == sorted(ids)
    assert {row["id"] for row in found if row["status"] == "done"} == set(ids[::3])


def folder_of_segments(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "queue" / "segments").rglob("*.jsonl"))


def test_a_damaged_segment_is_reported_by_the_executor(
    url: str, tmp_path: Path, deep: BlockingQueue[Any]
) -> None:
    parts = partitions(url)
    # All of them: which ones are read depends on whether some were merged meanwhile.
    segments = folder_of_segments(tmp_path)
    for each in segments:
        body = bytearray(each.read_bytes())
        body[30] ^= 1
        each.write_bytes(body)
    with pytest.raises(CorruptStateError, match="do not fit its index"):
        rows(url, parts)
    for each in segments:
        each.write_bytes(each.read_bytes()[:-1])
    with pytest.raises(CorruptStateError, match="|".join(each.stem for each in segments)):
        rows(url, parts)


def test_a_queue_that_has_moved_on_must_be_read_again(
    url: str, tmp_path: Path, deep: BlockingQueue[Any]
) -> None:
    parts = partitions(url)
    while jobs := deep.claim(limit=100):
        deep.complete_many(jobs)
    assert deep.purge() > 0
    named = {record.id for record in read_version(options_of(url)).segments}
    dropped = [path for path in folder_of_segments(tmp_path) if path.stem not in named]
    assert dropped
    for path in dropped:
        path.unlink()
    with pytest.raises(UnavailableError, match=r"the queue has moved on.*read it again"):
        rows(url, parts)
    # Finished jobs may be archived at any moment.
    unfinished = [row for row in read_deep(url) if row["status"] != "done"]
    assert len(unfinished) == sum(job.status != "done" for job in deep.snapshot().jobs) > 0


def test_an_executor_without_access_says_what_it_needs(
    url: str, tmp_path: Path, deep: BlockingQueue[Any]
) -> None:
    parts = partitions(url)
    with pytest.raises(UnavailableError, match="the executors have no access"):
        rows((tmp_path / "elsewhere" / "queue.json").as_uri(), parts)
