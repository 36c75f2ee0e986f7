"""The changes of a queue as a table and as a stream, read as Spark's processes do."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import BlockingQueue, HistoryGapError, InvalidRequestError, RejectedError
from bucketq.spark.format_options import read_options
from bucketq.spark.stream.changes_stream import ChangesStreamReader
from bucketq.spark.table.changes_table import ChangesTableReader
from bucketq.spark.table.queue_reader import read_version


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


@pytest.fixture
def queue(url: str) -> Iterator[BlockingQueue[Any]]:
    """A queue with a history of which most is in objects."""
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(history_retention_s=3600, spill_bytes=2000)
        for number in range(40):
            queue.push("mail", {"number": number})
            for job in queue.claim():
                queue.complete(job)
        yield queue


def rows_of(reader: Any, partitions: list[Any]) -> list[dict[str, Any]]:
    """Read partitions as executors do, which get copies of the reader and of the partition."""
    rows = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            rows += batch.to_pylist()
    return rows


def table(url: str, **options: str) -> list[dict[str, Any]]:
    given = {"path": url, "table": "changes", **options}
    reader = ChangesTableReader(read_options(given))
    return rows_of(reader, reader.partitions())


def test_a_row_for_each_version_from_objects_and_the_head(
    url: str, queue: BlockingQueue[Any], tmp_path: Path
) -> None:
    assert list(tmp_path.glob("queue/history/*/*.jsonl"))
    expected = list(queue.changes(follow=False))
    rows = table(url)[: len(expected)]
    assert [row["version"] for row in rows] == [change.version for change in expected]
    assert [row["commit"] for row in rows] == [change.commit for change in expected]
    verbs = [request["verb"] for row in rows for request in row["requests"]]
    assert verbs.count("push") == verbs.count("claim") == verbs.count("complete") == 40
    first = expected[0].version
    part = table(url, startingVersion=str(first + 5), endingVersion=str(first + 7))
    assert [row["version"] for row in part] == [first + 5, first + 6, first + 7]
    with pytest.raises(HistoryGapError, match="begins with version"):
        table(url, startingVersion="1")


def test_jobs_at_a_version_or_a_time(url: str, queue: BlockingQueue[Any]) -> None:
    (claim, *_) = [
        change
        for change in queue.changes(follow=False)
        if any(request.verb == "claim" for request in change.requests)
    ][20:]
    past = queue.snapshot(version=claim.version)
    found = read_version(read_options({"path": url, "version": str(claim.version)}))
    assert len(found.hot) == len(past.jobs)
    running = read_options({"path": url, "version": str(claim.version), "status": "running"})
    assert len(read_version(running).hot) == 1
    at = read_options({"path": url, "timestamp": claim.at.isoformat()})
    assert len(read_version(at).hot) >= 1


def test_a_stream_resumes_and_misses_nothing(url: str, queue: BlockingQueue[Any]) -> None:
    given = {"path": url, "table": "changes", "maxVersionsPerTrigger": "25"}
    reader = ChangesStreamReader(given)
    start, rows = reader.initialOffset(), list[dict[str, Any]]()
    while True:
        again = ChangesStreamReader(given)  # A driver that was restarted.
        end = again.latestOffset(start, again.getDefaultReadLimit())
        if end == start:
            break
        rows += rows_of(again, again.partitions(start, end))
        start = end
    versions = [row["version"] for row in rows]
    assert versions == [*range(versions[0], versions[0] + len(versions))]
    assert len([row for row in rows if row["requests"]]) >= 100
    queue.push("mail", 1)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert any(row["jobs"] for row in rows_of(reader, reader.partitions(start, end)))


def test_lost_versions_fail_a_stream_unless_it_may_skip_them(
    url: str, queue: BlockingQueue[Any]
) -> None:
    given = {"path": url, "table": "changes"}
    start = ChangesStreamReader(given).initialOffset()
    queue.forget_history(start["version"] + 30)
    strict = ChangesStreamReader(given)
    with pytest.raises(HistoryGapError, match="failOnDataLoss"):
        strict.latestOffset(start, strict.getDefaultReadLimit())
    lenient = ChangesStreamReader({**given, "failOnDataLoss": "false"})
    end = lenient.latestOffset(start, lenient.getDefaultReadLimit())
    rows = rows_of(lenient, lenient.partitions(start, end))
    assert rows[0]["version"] == start["version"] + 30
    with pytest.raises(HistoryGapError):
        strict.latestOffset({**start, "incarnation": "another"}, strict.getDefaultReadLimit())


def test_wrong_options_and_a_queue_without_history_are_reported(url: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push("mail", 1)
    with pytest.raises(RejectedError, match="history_retention_s"):
        table(url)
    for options in (
        {"table": "changes", "kind": "mail"},
        {"table": "changes", "version": "3"},
        {"startingVersion": "3"},
        {"version": "3", "timestamp": "2026-01-01"},
        {"table": "archive", "from": "2026-01-01", "version": "3"},
    ):
        with pytest.raises(InvalidRequestError):
            read_options({"path": url, **options})
