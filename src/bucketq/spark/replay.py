"""Replay: finished and dead jobs that match a condition are pushed again, once.

The new jobs name the old (``replay_of``). The id of a new job follows from the name of the replay
and the id of the old job; so a replay that was killed, or is run again, finds what it has pushed
already: in the queue, or in the archive if it is done. The queue is read first and the archive
after that, for jobs go that way.

Taken are jobs of the archive that finished in a range of time, and dead jobs that are still in the
queue. The old ones stay where they are; a dead job in the queue can still be redriven or purged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Raw, structs

from bucketq.client.blocking import connect_sync
from bucketq.clock import Clock
from bucketq.errors import InvalidRequestError
from bucketq.model.job import JobRecord
from bucketq.queue.job import JobSpec
from bucketq.spark.schema import SCHEMA, batches
from bucketq.spark.session import spark_errors_told, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PREFIX = "replay-"
_ID = f"concat('{_PREFIX}', left(sha2(concat(replay_name, '/', {{}}), 256), 32))"
_BATCH_JOBS = 1000
_BATCH_BYTES = 4 << 20
_NEEDED = (
    "new_id",
    "id",
    "kind",
    "payload",
    "payload_bytes",
    "priority",
    "max_attempts",
    "tags",
)


@dataclass(frozen=True)
class Wish:
    """Which jobs are to be replayed."""

    where: str
    """A condition of SQL over the columns of the archive."""
    since: datetime
    until: datetime
    name: str
    """Replays of one name push a job once."""
    is_dry: bool = False
    """Only count."""


@dataclass
class Replayed:
    """What a replay has done."""

    name: str
    pushed: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """How many of each kind."""


def replay(
    spark: SparkSession,
    url: str,
    wish: Wish,
    clock: Clock,
    *,
    timeout_s: float = 60.0,
    tell: Callable[[int], None] | None = None,
) -> Replayed:
    """Push the jobs that match, those that this replay has pushed before excepted.

    Raises:
        InvalidRequestError: Spark does not understand the condition.
        QueueFullError: The queue takes no more; go on with the same command later.
    """
    done = Replayed(wish.name)
    with connect_sync(url, launch="never", create=False, timeout_s=timeout_s) as queue:
        jobs = queue.snapshot().jobs
        with spark_errors_told():
            rows = _matching(spark, url, wish, jobs, clock)
            for specs in _cut(map(_spec, rows.toLocalIterator())):
                if not wish.is_dry:
                    queue.push_many(specs)
                done.pushed += len(specs)
                for spec in specs:
                    done.kinds[spec.kind] = done.kinds.get(spec.kind, 0) + 1
                if tell:
                    tell(done.pushed)
    return done


def _matching(
    spark: SparkSession, url: str, wish: Wish, jobs: tuple[JobRecord, ...], clock: Clock
) -> DataFrame:
    """The jobs to push, in the order in which they were pushed the first time."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    archive = spark.read.format("bucketq").option("table", "archive")
    # Up to now, whatever was asked for: what this replay has pushed may have finished since.
    archive = archive.option("from", wish.since.isoformat()).option("to", clock.now().isoformat())
    archived = archive.load(url)
    found = archived
    # Jobs of the archive have an outcome; let these be found by theirs as well.
    dead = [structs.replace(job, outcome="dead") for job in jobs if job.status == "dead"]
    if dead:
        table = pa.Table.from_batches(list(batches(dead)), SCHEMA)
        found = archived.unionByName(spark.createDataFrame(table))
    ended = f.col("finished_at")
    found = found.where((ended >= f.lit(wish.since)) & (ended < f.lit(wish.until)))
    try:
        found = found.where(wish.where)
    except Exception as error:
        raise _not_understood(wish.where, error) from error
    named = f.lit(wish.name)
    found = (
        found.dropDuplicates(["id"])
        .withColumn("replay_name", named)
        .withColumn("new_id", f.expr(_ID.format("id")))
        # A job that this replay has pushed may match as well; it is not to go round in circles.
        .where(f.col("replay_of").isNull() | (f.expr(_ID.format("replay_of")) != f.col("id")))
    )
    waiting = [(job.id,) for job in jobs if job.id.startswith(_PREFIX)]
    there = archived.where(f.col("id").startswith(_PREFIX)).select("id")
    there = there.unionByName(spark.createDataFrame(waiting, "id string"))
    fresh = found.join(there.withColumnRenamed("id", "new_id"), "new_id", "left_anti")
    return fresh.orderBy("seq", "id").select(*_NEEDED)


def _not_understood(where: str, error: Exception) -> InvalidRequestError:
    return InvalidRequestError(f"the condition {where!r} cannot be used: {told(error)}")


def _spec(row: Row) -> JobSpec[Any]:
    payload = bytes(row.payload_bytes) if row.payload is None else Raw(row.payload.encode())
    return JobSpec(
        id=row.new_id,
        kind=row.kind,
        payload=payload,
        priority=row.priority,
        max_attempts=row.max_attempts,
        tags=dict(row.tags) if row.tags else None,
        replay_of=row.id,
    )


def _cut(specs: Iterator[JobSpec[Any]]) -> Iterator[list[JobSpec[Any]]]:
    """Batches that make commits of a good size."""
    some: list[JobSpec[Any]] = []
    size_bytes = 0
    for spec in specs:
        length = len(bytes(spec.payload))
        if some and (len(some) == _BATCH_JOBS or size_bytes + length > _BATCH_BYTES):
            yield some
            some, size_bytes = [], 0
        some.append(spec)
        size_bytes += length
    if some:
        yield some
