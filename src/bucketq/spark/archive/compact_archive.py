"""Compaction of an archive on Spark: executors write the files, the driver publishes them.

What is done, and why it is safe, is told in ``bucketq.archive.compaction``. Here is who does it:
each part of a round is a task, which reads its segments from the store and writes its files there,
so that no job passes through the driver or the JVM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from bucketq import errors
from bucketq.archive import Layout, sweep
from bucketq.archive.compaction import SETTLED_AFTER, Compactor, Part, Written, write_part
from bucketq.client.archive import see_archive
from bucketq.clock import SystemClock
from bucketq.errors import BucketQError, UnavailableError
from bucketq.spark.format_options import check_range
from bucketq.spark.registration import check_session, is_remote, settle_python
from bucketq.spark.session.command_session import spark_errors_told
from bucketq.store.url import open_store
from bucketq.worker.threads import ThreadRunner

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_LOST_ROUNDS = 5
_LOOK_S = 0.5
_RESULT = "written binary, error string, message string"


@dataclass
class Compacted:
    """What a compaction has done."""

    segments: int = 0
    jobs: int = 0
    repeated: int = 0
    """Jobs that were compacted already, or archived twice."""
    files: int = 0
    size_bytes: int = 0
    """Of the files."""
    swept: int = 0
    """Files that killed runs had left."""


Tell = Callable[[int, int], None]
"""Called with how many segments are done, and how many there are."""


def compact(
    spark: SparkSession,
    url: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    settled_after: timedelta = SETTLED_AFTER,
    tell: Tell | None = None,
) -> Compacted:
    """Turn the segments of an archive into Parquet files of its table, and delete them.

    Only hours that have been over for ``settled_after`` are taken, whole ones within the range.

    Raises:
        UnavailableError: The store does not answer, or other runs were faster again and again.
        CorruptStateError: A segment cannot be read; it is named.
    """
    check_session(spark)
    settle_python(spark)
    check_range(since, until)
    location = open_store(url)
    layout, clock = Layout.of(location.store.url, location.key), SystemClock()
    compactor = Compactor(location.store, layout, clock)
    done = Compacted()
    with asyncio.Runner() as runner:
        try:
            runner.run(see_archive(url))
            total = runner.run(compactor.segments(since, until, settled_after))
            lost = 0
            while planned := runner.run(compactor.plan(since, until, settled_after)):
                total = max(total, done.segments + planned.segments)
                on_read = partial(_tell, tell, done.segments, total)
                on_read(0)
                written = runner.run(_write(spark, url, planned.parts, on_read))
                if runner.run(compactor.publish(planned, written)):
                    lost = 0
                    _count(done, written, planned.segments)
                    on_read(planned.segments)
                    continue
                lost += 1
                if lost == _LOST_ROUNDS:
                    message = (
                        f"other compactions of {location.url} were faster {lost} times in a row; "
                        "nothing is lost, run it again when they are done"
                    )
                    raise UnavailableError(message)
            done.swept = runner.run(sweep(location.store, layout, clock.now()))
        finally:
            runner.run(location.store.close())
    return done


def _tell(tell: Tell | None, before: int, total: int, read: int) -> None:
    """Tell how far it is; a task that Spark runs again counts its segments again."""
    if tell:
        tell(min(before + read, total), total)


async def _write(
    spark: SparkSession, url: str, parts: list[Part], on_read: Callable[[int], None]
) -> list[Written]:
    """Let Spark write the parts, and tell meanwhile how many segments were read."""
    # Over Spark Connect there is nothing that counts, and only whole rounds are told of.
    counter = None if is_remote(spark) else spark.sparkContext.accumulator(0)
    threads = ThreadRunner()
    call = threads.call(partial(_run, spark, url, parts, counter))
    writing: asyncio.Task[list[Written]] = asyncio.get_running_loop().create_task(call)
    try:
        while not writing.done():
            await asyncio.wait([writing], timeout=_LOOK_S)
            if counter is not None:
                on_read(counter.value)
        return writing.result()
    finally:
        await threads.close()


def _run(
    spark: SparkSession, url: str, parts: list[Part], counter: Accumulator[int] | None
) -> list[Written]:
    """Write each part in a task of its own."""
    bodies = [msgspec.json.encode(part) for part in parts]
    segments = [sum(len(work.segments) for work in part.hours) for part in parts]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield _write_one(url, bodies[place])
                if counter is not None:
                    counter.add(segments[place])

    with spark_errors_told():
        rows = spark.range(0, len(parts), 1, len(parts)).mapInArrow(work, _RESULT).collect()
    for row in rows:
        if row.error is not None:
            raise getattr(errors, row.error, BucketQError)(row.message)
    return [msgspec.json.decode(bytes(row.written), type=Written) for row in rows]


def _write_one(url: str, body: bytes) -> pa.RecordBatch:
    """Write a part, on an executor. What bucketq itself refuses comes back as a row."""
    import pyarrow  # noqa: PLC0415 - for executors

    written, error, message = None, None, None
    try:
        part = msgspec.json.decode(body, type=Part)
        written = msgspec.json.encode(asyncio.run(_write_part(url, part)))
    except BucketQError as problem:
        error, message = type(problem).__name__, str(problem)
    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array([written], pyarrow.binary()),
            pyarrow.array([error], pyarrow.string()),
            pyarrow.array([message], pyarrow.string()),
        ],
        names=["written", "error", "message"],
    )


async def _write_part(url: str, part: Part) -> Written:
    location = open_store(url)
    try:
        return await write_part(
            location.store, Layout.of(location.store.url, location.key), part, SystemClock()
        )
    finally:
        await location.store.close()


def _count(done: Compacted, written: list[Written], segments: int) -> None:
    done.segments += segments
    done.jobs += sum(each.jobs for each in written)
    done.repeated += sum(each.repeated for each in written)
    done.files += sum(len(each.files) for each in written)
    done.size_bytes += sum(file.size for each in written for file in each.files)
