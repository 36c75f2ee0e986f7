"""What Spark calls to read a stream, without Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import bucketq
from bucketq import InvalidRequestError, JobSpec, QueueNotFoundError
from bucketq.spark.stream.micro_batches import _PREPARED_JOBS as SIZE
from bucketq.spark.stream.stream_reader import JobStreamReader
from tests.environ import ROOT, child_environ

SOURCE = """
import asyncio, os, signal, sys, threading, time
from bucketq.queue.queue import Queue
from bucketq.spark.stream.stream_reader import JobStreamReader

url, size, when = sys.argv[1:]
release_really = Queue.release_batch


async def release_slowly(*words):
    await asyncio.sleep(1)
    return await release_really(*words)


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


Queue.release_batch = release_slowly
reader = JobStreamReader({"path": url, "consumer": "c", "maxJobsPerTrigger": size})
start = reader.initialOffset()
reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
batches = reader._stream.batches
while not batches._prepared_jobs:
    time.sleep(0.01)
try:
    if when == "before":
        terminate()
        time.sleep(30)
finally:
    threading.Timer(0.3, terminate).start()
    reader.stop()
"""
"""The process of a source, whose connection Spark closes, or which Spark ends by signals."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A queue with five jobs."""
    address = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(address, mode="direct") as queue:
        queue.push_many([JobSpec(kind="index", payload=number) for number in range(5)])
    return address


def payloads(reader: JobStreamReader, start: dict[str, object], end: dict[str, object]) -> str:
    rows = (batch for part in reader.partitions(start, end) for batch in reader.read(part))
    return "".join(row["payload"] for batch in rows for row in batch.to_pylist())


def done(url: str) -> int:
    with bucketq.connect_sync(url, mode="direct") as queue:
        return queue.stats().total("done")


def test_a_batch_is_acknowledged_when_the_next_one_is_asked_for(url: str) -> None:
    reader = JobStreamReader({"path": url, "consumer": "c", "maxJobsPerTrigger": "3"})
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(3)
    try:
        start = reader.initialOffset()
        first = reader.latestOffset(start, limit)
        assert payloads(reader, start, first) == "012"
        reader.commit(first)
        assert done(url) == 0
        second = reader.latestOffset(first, limit)
        assert done(url) == 3
        assert payloads(reader, first, second) == "34"
        assert reader.reportLatestOffset() == {
            "consumer": "c",
            "batch": 2,
            "jobs": 2,
            "bytes": 2,
            "waiting": 0,
        }
    finally:
        reader.stop()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    again = JobStreamReader({"path": url, "consumer": "c"})
    try:
        assert again.initialOffset() == first
        assert payloads(again, first, second) == "34"
    finally:
        again.stop()


def test_a_stream_that_cannot_be_opened_raises_at_the_first_call_and_leaves_no_thread(
    url: str, tmp_path: Path
) -> None:
    before = set(threading.enumerate())
    nowhere = (tmp_path / "nowhere.json").as_uri()
    for given, error in (
        ({"path": url}, InvalidRequestError),
        ({"path": nowhere, "consumer": "c"}, QueueNotFoundError),
    ):
        reader = JobStreamReader(given)
        with pytest.raises(error):
            reader.initialOffset()
        reader.stop()
    # Threads of earlier tests may end meanwhile; none may be left by this one. A file store does
    # not wait for its threads, which end soon after it is closed.
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_signal_does_not_interrupt_the_release_of_a_prepared_batch(url: str, when: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.push_many([JobSpec(kind="index", payload=number) for number in range(2 * SIZE)])
        ended = subprocess.run(
            [sys.executable, "-c", SOURCE, url, str(SIZE), when],
            cwd=ROOT,
            env=child_environ(),
            timeout=150,
            check=False,
        )
        assert ended.returncode == (128 + signal.SIGTERM if when == "before" else 0)
        [consumer] = queue.consumers()
        assert (consumer.prepared, consumer.pending) == (0, SIZE)
