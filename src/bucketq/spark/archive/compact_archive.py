"""Compacts an archive on Spark: executors write the Parquet files, the driver publishes them.

``bucketq.archive.compaction`` says what is done, and why it is safe. Here each part of a round is
a Spark task, which reads its archive files from the store and writes its Parquet files there, so
that no job passes through the driver or the JVM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from bucketq.archive.archive_layout import Layout
from bucketq.archive.compaction import SETTLED_AFTER, CompactionPart, Compactor, Written, write_part
from bucketq.archive.upkeep import sweep
from bucketq.client.archive import see_archive
from bucketq.clock import SystemClock
from bucketq.errors import BucketQError, UnavailableError
from bucketq.spark.archive.archive_frame import check_range
from bucketq.spark.queue_access import opened_store
from bucketq.spark.session.compatibility import is_connect_session, prepare_session
from bucketq.spark.session.spark_errors import error_named, translate_errors
from bucketq.worker.runners.threads import ThreadRunner

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_LOST_ROUNDS_MAX = 5
"""Two runs that compete lose in turn; one that loses five times in a row should run later."""
_PROGRESS_S = 0.5
"""How often progress is reported: often enough for a bar on a terminal."""
_RESULT = "written binary, error string, message string"


@dataclass
class CompactedArchive:
    """What a compaction has done."""

    archive_files: int = 0
    jobs: int = 0
    repeated: int = 0
    """Jobs that were compacted already, or archived twice."""
    files: int = 0
    size_bytes: int = 0
    """The number and size of the Parquet files."""
    swept: int = 0
    """Files of killed runs that were removed."""


OnProgress = Callable[[int, int], None]
"""Called with the number of archive files that are done, and of all that there are."""


def compact(
    spark: SparkSession,
    url: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    settled_after: timedelta = SETTLED_AFTER,
    on_progress: OnProgress | None = None,
) -> CompactedArchive:
    """Turn the archive files of a queue into Parquet files of its table, and delete them.

    Only hours that have been over for ``settled_after`` are compacted, whole ones within the range.

    Raises:
        UnavailableError: The store does not answer, or other runs were faster again and again.
        CorruptStateError: An archive file cannot be read; the message names it.
    """
    prepare_session(spark)
    check_range(since, until)
    within = (since, until, settled_after)
    return asyncio.run(_compact(spark, url, within, on_progress))


async def _compact(
    spark: SparkSession,
    url: str,
    within: tuple[datetime | None, datetime | None, timedelta],
    on_progress: OnProgress | None,
) -> CompactedArchive:
    await see_archive(url)
    clock, done, lost = SystemClock(), CompactedArchive(), 0
    async with opened_store(url) as location:
        layout = Layout.of(location.store.url, location.key)
        compactor = Compactor(location.store, layout, clock)
        total = await compactor.archive_files(*within)
        while planned := await compactor.plan(*within):
            total = max(total, done.archive_files + planned.archive_files)
            on_read = partial(_report_progress, on_progress, done.archive_files, total)
            on_read(0)
            written = await _write(spark, url, planned.parts, on_read)
            if await compactor.publish(planned, written):
                lost = 0
                _count(done, written, planned.archive_files)
                on_read(planned.archive_files)
                continue
            lost += 1
            if lost == _LOST_ROUNDS_MAX:
                message = (
                    f"other compactions of {location.url} were faster {lost} times in a row; "
                    "nothing is lost, run it again when they are done"
                )
                raise UnavailableError(message)
        done.swept = await sweep(location.store, layout, clock.now())
    return done


def _report_progress(on_progress: OnProgress | None, before: int, total: int, read: int) -> None:
    """Report progress, at most 100 %: a task that Spark retries counts its files again."""
    if on_progress:
        on_progress(min(before + read, total), total)


async def _write(
    spark: SparkSession, url: str, parts: list[CompactionPart], on_read: Callable[[int], None]
) -> list[Written]:
    """Let Spark write the parts, and report meanwhile how many archive files were read."""
    # Spark Connect has no accumulators, so progress is reported after each round only.
    counter = None if is_connect_session(spark) else spark.sparkContext.accumulator(0)
    threads = ThreadRunner()
    call = threads.call(partial(_run, spark, url, parts, counter))
    writing: asyncio.Task[list[Written]] = asyncio.get_running_loop().create_task(call)
    try:
        while not writing.done():
            await asyncio.wait([writing], timeout=_PROGRESS_S)
            if counter is not None:
                on_read(counter.value)
        return writing.result()
    finally:
        await threads.close()


def _run(
    spark: SparkSession, url: str, parts: list[CompactionPart], counter: Accumulator[int] | None
) -> list[Written]:
    """Write each part in a task of its own."""
    bodies = [msgspec.json.encode(part) for part in parts]
    counts = [sum(len(work.archive_files) for work in part.hours) for part in parts]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _write_one(url, bodies[number])
                if counter is not None:
                    counter.add(counts[number])

    with translate_errors():
        rows = spark.range(0, len(parts), 1, len(parts)).mapInArrow(work, _RESULT).collect()
    for row in rows:
        if row.error is not None:
            raise error_named(row.error, row.message)
    return [msgspec.json.decode(bytes(row.written), type=Written) for row in rows]


def _write_one(url: str, body: bytes) -> pa.RecordBatch:
    """Write a part, on an executor. An error of bucketq is returned, so Spark does not retry."""
    import pyarrow  # noqa: PLC0415 - for executors

    schema = [("written", pyarrow.binary()), ("error", "string"), ("message", "string")]
    row: dict[str, object] = {}
    try:
        part = msgspec.json.decode(body, type=CompactionPart)
        row["written"] = msgspec.json.encode(asyncio.run(_write_part(url, part)))
    except BucketQError as problem:
        row |= {"error": type(problem).__name__, "message": str(problem)}
    return pyarrow.RecordBatch.from_pylist([row], schema=pyarrow.schema(schema))


async def _write_part(url: str, part: CompactionPart) -> Written:
    async with opened_store(url) as location:
        return await write_part(
            location.store, Layout.of(location.store.url, location.key), part, SystemClock()
        )


def _count(done: CompactedArchive, written: list[Written], archive_files: int) -> None:
    done.archive_files += archive_files
    done.jobs += sum(each.jobs for each in written)
    done.repeated += sum(each.repeated for each in written)
    done.files += sum(len(each.files) for each in written)
    done.size_bytes += sum(file.size for each in written for file in each.files)
