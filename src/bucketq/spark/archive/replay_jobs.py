"""Replay: finished and dead jobs that match a condition are pushed again, once.

The new jobs name the old (``replay_of``). The id of a new job follows from the name of the replay,
and the id and number of the old job; so a replay that was killed, or is run again, finds what it
has pushed already: in the queue, or in the archive if it is done. The queue is read first and the
archive after that, for jobs go that way.

Taken are jobs of the archive that finished in a range of time, and dead jobs that are still in the
queue. The old ones stay where they are; a dead job in the queue can still be redriven or purged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Raw, structs

from bucketq.client.blocking import connect_sync
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError
from bucketq.model.job import JobRecord
from bucketq.queue.job import JobSpec
from bucketq.spark.format_options import check_range
from bucketq.spark.registration import register
from bucketq.spark.session.command_session import spark_errors_told, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PREFIX = "replay-"
_OWN = f"concat('{_PREFIX}', left(sha2(replay_name, 256), 12), '-')"
"""What the ids of all jobs of one replay begin with."""
_NEW_ID = f"concat({_OWN}, left(sha2(concat(replay_name, '/', id, '/', seq), 256), 32))"
# Older versions made ids from the id of the old job alone, and pushed only one job of each id.
# What they have pushed is not pushed again.
_OLDER_ID = f"concat('{_PREFIX}', left(sha2(concat(replay_name, '/', {{}}), 256), 32))"
_BATCH_JOBS = 1000
_BATCH_BYTES = 4 << 20
_NAME_BYTES = 8
_KEPT = (
    "id",
    "seq",
    "kind",
    "payload",
    "payload_bytes",
    "priority",
    "max_attempts",
    "tags",
    "replay_of",
    "is_wanted",
)


@dataclass
class Replayed:
    """What a replay has done."""

    name: str
    pushed: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """How many of each kind."""


@dataclass(frozen=True)
class _Wish:
    """Which jobs are to be replayed."""

    where: str
    since: datetime
    until: datetime
    name: str


def replay(
    spark: SparkSession,
    url: str,
    where: str,
    *,
    since: datetime,
    until: datetime | None = None,
    name: str | None = None,
    dry_run: bool = False,
    timeout_s: float = 60.0,
    tell: Callable[[int], None] | None = None,
) -> Replayed:
    """Push the jobs that match, those that a replay of this name has pushed before excepted.

    Args:
        spark: A session.
        url: The address of the queue.
        where: A condition of SQL over the columns of the archive, like ``"kind = 'index'"``.
        since: Only jobs that finished from here on.
        until: And before; now where it is left out.
        name: Replays of one name push a job once; by default the condition makes the name.
        dry_run: Whether only to count.
        timeout_s: How long the queue is tried.
        tell: Called with how many jobs were pushed by now.

    Raises:
        InvalidRequestError: Spark does not understand the condition.
        QueueFullError: The queue takes no more; go on with the same name later.
    """
    register(spark)
    check_range(since, until)
    done = Replayed(name or name_of(where))
    with connect_sync(url, launch="never", create=False, timeout_s=timeout_s) as queue:
        jobs = queue.snapshot().jobs
        now = SystemClock().now()
        wish = _Wish(where, since, until or now, done.name)
        with spark_errors_told(), _matching(spark, url, wish, jobs, now) as rows:
            for specs in _cut(map(_spec, rows.toLocalIterator())):
                if not dry_run:
                    queue.push_many(specs)
                done.pushed += len(specs)
                for spec in specs:
                    done.kinds[spec.kind] = done.kinds.get(spec.kind, 0) + 1
                if tell:
                    tell(done.pushed)
    return done


def name_of(*words: str) -> str:
    """The name of a replay that is described by these words, whatever the space between them."""
    text = "\n".join(" ".join(each.split()) for each in words)
    return blake2b(text.encode(), digest_size=_NAME_BYTES).hexdigest()


@contextmanager
def _matching(
    spark: SparkSession, url: str, wish: _Wish, jobs: tuple[JobRecord, ...], now: datetime
) -> Iterator[DataFrame]:
    """The jobs to push, in the order in which they were pushed the first time.

    The archive is read once: what matches and what this replay has pushed before are kept while
    they are compared and sorted, and nothing else of it is.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    from bucketq.spark.table.job_schema import SCHEMA, batches  # noqa: PLC0415 - it needs pyarrow

    archive = spark.read.format("bucketq").option("table", "archive")
    # Up to now, whatever was asked for: what this replay has pushed may have finished since.
    archive = archive.option("from", wish.since.isoformat()).option("to", now.isoformat())
    everything = archive.load(url)
    # Jobs of the archive have an outcome; let these be found by theirs as well.
    dead = [structs.replace(job, outcome="dead") for job in jobs if job.status == "dead"]
    if dead:
        table = pa.Table.from_batches(list(batches(dead)), SCHEMA)
        everything = everything.unionByName(spark.createDataFrame(table))
    ended = f.col("finished_at")
    is_in_time = (ended >= f.lit(wish.since)) & (ended < f.lit(wish.until))
    try:
        everything.where(wish.where)  # Nothing is read yet: it sees whether this is a condition.
        is_wanted = f.coalesce(is_in_time & f.expr(wish.where), f.lit(False))  # noqa: FBT003 - SQL's
        everything = everything.withColumn("is_wanted", is_wanted)
    except Exception as error:
        raise _not_understood(wish.where, error) from error
    is_own = f.col("id").startswith(_PREFIX)
    kept = everything.where(f.col("is_wanted") | is_own).select(*_KEPT).persist()
    found = (
        kept.where("is_wanted")
        .dropDuplicates(["id", "seq"])
        .withColumn("replay_name", f.lit(wish.name))
        # A job that this replay has pushed may match as well; it is not to go round in circles.
        .where(~f.col("id").startswith(f.expr(_OWN)))
        .where(f.col("replay_of").isNull() | (f.expr(_OLDER_ID.format("replay_of")) != f.col("id")))
        .withColumn("new_id", f.expr(_NEW_ID))
        .withColumn("older_id", f.expr(_OLDER_ID.format("id")))
    )
    waiting = [(job.id,) for job in jobs if job.id.startswith(_PREFIX)]
    there = kept.where(is_own).select("id")
    there = there.unionByName(spark.createDataFrame(waiting, "id string"))
    fresh = found
    for column in ("new_id", "older_id"):
        fresh = fresh.join(there.withColumnRenamed("id", column), column, "left_anti")
    try:
        yield fresh.orderBy("seq", "id")
    finally:
        kept.unpersist()


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
