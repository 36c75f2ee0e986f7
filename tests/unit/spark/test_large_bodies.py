"""Large payloads and results as rows: executors fetch them, and a reference is never a payload."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq.archive.side_folder import SideFolder
from bucketq.errors import InvalidRequestError, PayloadLostError, PayloadTooLargeError
from bucketq.spark import large_bodies
from bucketq.spark.format_options import read_options
from bucketq.spark.stream.stream_reader import JobStreamReader
from bucketq.spark.table.archive_table import ArchiveTableReader
from bucketq.spark.table.queue_reader import QueueTableReader
from tests.contract.brokers import NAME, Brokers

LARGE = {"rows": list(range(20_000))}
FILM = bytes(range(256)) * 10_000
"""More than two parts."""
Row = dict[str, Any]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A queue with a large payload of each form, and a small one."""
    address = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(address, mode="direct") as queue:
        queue.push("film", LARGE)
        queue.push("film", FILM)
        queue.push("film", 5)
    return address


@pytest.fixture
def broker(url: str) -> Iterator[str]:
    brokers = Brokers()
    yield f"bucketq://{brokers.serve(url)}/{NAME}"
    brokers.close()


def table(url: str, **options: str) -> list[Row]:
    """Read a table as Spark does: plan on the driver, and read what was pickled."""
    chosen = read_options({"path": url, **options})
    reader: Any = {"jobs": QueueTableReader, "archive": ArchiveTableReader}[chosen.table](chosen)
    return rows_of(reader, reader.partitions())


def rows_of(reader: Any, partitions: list[Any]) -> list[Row]:
    away = pickle.loads(pickle.dumps(partitions))
    there = [row for part in away for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(there, key=lambda row: int(row["seq"]))


def fetched(row: Row) -> Any:
    assert row["payload_ref"] is None
    assert row["payload_size"] == len(row["payload_bytes"])
    return row["payload_bytes"] if row["payload"] is None else json.loads(row["payload"])


def test_a_table_shows_the_size_and_the_reference_and_no_payload(url: str) -> None:
    large, film, small = table(url)
    for row, size, encoding in (
        (large, len(json.dumps(LARGE, separators=(",", ":"))), "object"),
        (film, len(FILM), "object-bytes"),
    ):
        assert (row["payload"], row["payload_bytes"], row["payload_size"]) == (None, None, size)
        ref = json.loads(row["payload_ref"])
        assert (ref["bytes"], ref["encoding"]) == (size, encoding)
    assert (fetched(small), small["payload_size"]) == (5, 1)


def test_an_option_fetches_what_is_not_larger(url: str) -> None:
    large, film, _ = table(url, fetchBytes="200000")
    assert fetched(large) == LARGE
    assert (film["payload_bytes"], film["payload_size"]) == (None, len(FILM))
    assert [fetched(row) for row in table(url, fetchBytes="10000000")] == [LARGE, FILM, 5]


def test_executors_fetch_through_a_broker(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with bucketq.connect_sync(broker) as queue:
        token = queue.create_token("reader", ["read"])
    monkeypatch.setenv("BUCKETQ_TOKEN", token)
    reader = QueueTableReader(read_options({"path": broker, "fetchBytes": "10000000"}))
    partitions = reader.partitions()
    reader = pickle.loads(pickle.dumps(reader))
    monkeypatch.delenv("BUCKETQ_TOKEN")  # Executors have the environment of another host.
    assert [fetched(row) for row in rows_of(reader, partitions)] == [LARGE, FILM, 5]


def test_rows_of_segments_are_fetched_too(url: str) -> None:
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(spill_bytes=300)
        for number in range(30):
            queue.push("film", number)
    rows = table(url, fetchBytes="10000000")
    assert [fetched(row) for row in rows] == [LARGE, FILM, 5, *range(30)]


def test_an_executor_has_a_bounded_number_of_bytes_in_memory(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_bodies, "_GROUP_BYTES", 1 << 20)
    reader = QueueTableReader(read_options({"path": url, "fetchBytes": "10000000"}))
    [partition] = reader.partitions()
    assert [batch.num_rows for batch in reader.read(partition)] == [1, 1, 1]


def test_the_archive_shows_large_results(url: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        for job, result in zip(queue.claim(limit=3), (FILM, LARGE, "ok"), strict=True):
            queue.complete(job, result)
        queue.flush_archive()
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    given = {"table": "archive", "from": since}
    film, large, small = table(url, **given)
    assert (film["result"], film["result_bytes"], film["result_size"]) == (None, None, len(FILM))
    assert json.loads(large["result_ref"])["encoding"] == "object"
    assert (small["result"], small["result_size"], small["result_ref"]) == ('"ok"', 4, None)
    film, large, small = table(url, **given, fetchBytes="10000000")
    assert film["result_bytes"] == FILM
    assert json.loads(large["result"]) == LARGE
    assert [fetched(row) for row in (film, large, small)] == [LARGE, FILM, 5]


def delete_objects(folder: Path) -> None:
    for part in folder.glob("queue/payloads/*/*.0*"):
        part.unlink()


def test_what_is_lost_is_an_error_only_if_it_is_fetched(url: str, tmp_path: Path) -> None:
    delete_objects(tmp_path)
    assert len(table(url)) == 3
    with pytest.raises(PayloadLostError, match=r"payload of job .* is lost.*fetchBytes"):
        table(url, fetchBytes="10000000")


@pytest.mark.parametrize("text", ["-1", "many", "2000000000"])
def test_a_number_of_bytes_that_makes_no_sense_is_rejected(url: str, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="fetchBytes"):
        table(url, fetchBytes=text)


def streamed(url: str, **options: str) -> list[Row]:
    """Read the open micro-batch, or claim one; it stays open."""
    reader = JobStreamReader({"path": url, "consumer": "c", **options})
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        return rows_of(JobStreamReader(reader._given), reader.partitions(start, end))
    finally:
        reader.stop()


@pytest.mark.parametrize("way", ["store", "broker"])
def test_a_stream_has_payloads_and_a_repeated_batch_has_the_same_rows(
    url: str, way: str, request: pytest.FixtureRequest
) -> None:
    address = url if way == "store" else request.getfixturevalue("broker")
    first = streamed(address)
    assert [fetched(row) for row in first] == [LARGE, FILM, 5]
    with bucketq.connect_sync(url if way == "store" else address) as queue:
        queue.push("film", "later")
    again = streamed(address)
    changing = ("heartbeat_at",)
    for rows in (first, again):
        for row in rows:
            for name in changing:
                del row[name]
    assert again == first


def test_the_driver_of_a_stream_fetches_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    async def read_part(folder: SideFolder, name: str, part: int) -> bytes:
        read.append(f"{folder.address}{name}.{part}")
        raise AssertionError

    monkeypatch.setattr(SideFolder, "read_part", read_part)
    reader = JobStreamReader({"path": url, "consumer": "c"})
    try:
        start = reader.initialOffset()
        partitions = reader.partitions(
            start, reader.latestOffset(start, reader.getDefaultReadLimit())
        )
    finally:
        reader.stop()
    assert not read
    assert sum(len(part.body) for part in partitions) < 4000


def test_a_stream_does_not_pass_over_a_payload_that_is_too_large(url: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        job_id = queue.push("film", bytes(17 << 20))
    with pytest.raises(PayloadTooLargeError, match=rf"job {job_id} has 17,825,792 bytes"):
        streamed(url)
    rows = streamed(url, fetchBytes="1000000")
    assert [row["payload_size"] for row in rows if row["payload_ref"]] == [len(FILM), 17 << 20]
    assert [fetched(row) for row in rows if not row["payload_ref"]] == [LARGE, 5]
    assert len(fetched(streamed(url, fetchBytes="20000000")[-1])) == 17 << 20
