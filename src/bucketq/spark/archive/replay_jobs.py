"""Replays jobs: finished and dead jobs that match a condition are pushed again, once.

The new jobs name the old ones (``replay_of``). The id of a new job follows from the name of the
replay and from the id and number of the old job, so a replay that was killed or is run again finds
what it has pushed already: in the queue, or in the archive if it is done. The queue is read before
the archive, because jobs move that way.

A job with a large payload gets a copy of it: the old one is deleted with the line of the old job.

A replay takes jobs of the archive that finished in a time range, and dead jobs that are still in
the queue. The old jobs stay as they are; a dead one can still be redriven or purged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError, PayloadLostError
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import SideRef, write_ref
from bucketq.queue.job import Job
from bucketq.queue.large.payload_copy import PayloadCopy
from bucketq.queue.push_options import JobSpec
from bucketq.spark.archive.archive_frame import check_range, read_archive
from bucketq.spark.large_bodies import LargeRef
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.registration import register
from bucketq.spark.session.spark_errors import translate_errors, translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PREFIX = "replay-"
_OWN = f"concat('{_PREFIX}', left(sha2(replay_name, 256), 12), '-')"
"""The prefix of the ids of all jobs of one replay, as SQL."""
_NEW_ID = f"concat({_OWN}, left(sha2(concat(replay_name, '/', id, '/', seq), 256), 32))"
# Older versions made ids from the id of the old job alone, and pushed only one job of each id.
# What they have pushed is not pushed again.
_OLDER_ID = f"concat('{_PREFIX}', left(sha2(concat(replay_name, '/', {{}}), 256), 32))"
_BATCH_JOBS = 1000
_BATCH_BYTES = 4 << 20
"""A commit of that size takes well below a second, and is below every default limit of a queue."""
_NAME_BYTES = 8
"""64 bits, so that two conditions never get the same name."""
_COPIED = ("kind", "payload", "payload_bytes", "payload_ref", "priority", "max_attempts", "tags")
_decode_ref = msgspec.json.Decoder(LargeRef).decode
_KEPT = ("id", "seq", *_COPIED, "replay_of", "is_wanted")


@dataclass
class ReplayedJobs:
    """What a replay has pushed."""

    name: str
    pushed: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """The number of jobs of each kind."""


class _Again(NamedTuple):
    """A job to push again."""

    spec: JobSpec[Any]
    size_bytes: int
    large: LargeRef | None
    """Where its payload is, if that is not in the job."""


@dataclass(frozen=True)
class _Selection:
    """Which jobs to replay."""

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
    on_progress: Callable[[int], None] | None = None,
) -> ReplayedJobs:
    """Push the jobs that match, except those that a replay of this name has pushed before.

    Args:
        spark: A session.
        url: The address of the queue.
        where: A SQL condition over the columns of the archive, like ``"kind = 'index'"``.
        since: The start of the range in which jobs finished.
        until: Its end, not included; by default now.
        name: Replays of one name push a job once; by default it follows from the condition.
        dry_run: Whether to count only.
        timeout_s: How long to retry while the queue is unavailable.
        on_progress: Called with the number of jobs that were pushed so far.

    Raises:
        InvalidRequestError: Spark does not understand the condition.
        QueueFullError: The queue is full; run it again later with the same name.
    """
    register(spark)
    check_range(since, until)
    done = ReplayedJobs(name or name_of(where))
    with QueueAccess(url, timeout_s).open() as queue, translate_errors():
        waiting = _read_queue(spark, url, timeout_s)
        now = SystemClock().now()
        chosen = _Selection(where, since, until or now, done.name)
        with _matching(spark, url, chosen, waiting, now) as rows:
            for some in _batches(map(_again, rows.toLocalIterator())):
                if not dry_run:
                    _push(queue, some)
                done.pushed += len(some)
                for again in some:
                    done.kinds[again.spec.kind] = done.kinds.get(again.spec.kind, 0) + 1
                if on_progress:
                    on_progress(done.pushed)
    return done


def name_of(*words: str) -> str:
    """Return a name that follows from the words of a condition, whatever the space between them."""
    text = "\n".join(" ".join(each.split()) for each in words)
    return blake2b(text.encode(), digest_size=_NAME_BYTES).hexdigest()


def _read_queue(spark: SparkSession, url: str, timeout_s: float) -> DataFrame:
    """Read the dead jobs of a queue, and those that replays have pushed.

    They are read now, and kept: a frame that was computed again after the archive was read could
    miss what moves there meanwhile. Executors look through the queue, which may be deep.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    reader = spark.read.format("bucketq").option("timeoutSeconds", timeout_s)
    is_own = f.col("id").startswith(_PREFIX)
    found = reader.load(url).where((f.col("status") == "dead") | is_own)
    # Over Connect, a frame without rows cannot be made without its columns.
    return spark.createDataFrame(found.toArrow(), found.schema)


@contextmanager
def _matching(
    spark: SparkSession, url: str, chosen: _Selection, waiting: DataFrame, now: datetime
) -> Iterator[DataFrame]:
    """Return the jobs to push, in the order in which they were pushed the first time.

    The archive is read once: only the jobs that match, and those that replays have pushed, are
    kept in Spark while they are compared and sorted.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    # Up to now, whatever the range: jobs that this replay pushed may have finished after it.
    everything = read_archive(spark, url, chosen.since, now)
    # Jobs of the archive have an outcome, and a condition may use it.
    dead = waiting.where("status = 'dead'").withColumn("outcome", f.lit("dead"))
    everything = everything.unionByName(dead)
    ended = f.col("finished_at")
    is_in_time = (ended >= f.lit(chosen.since)) & (ended < f.lit(chosen.until))
    try:
        everything.where(chosen.where)  # Reads nothing: checks that this is a condition.
        is_wanted = f.coalesce(is_in_time & f.expr(chosen.where), f.lit(False))  # noqa: FBT003 - SQL's
        everything = everything.withColumn("is_wanted", is_wanted)
    except Exception as error:
        message = f"the condition {chosen.where!r} cannot be used: {translated(error)}"
        raise InvalidRequestError(message) from error
    is_own = f.col("id").startswith(_PREFIX)
    kept = everything.where(f.col("is_wanted") | is_own).select(*_KEPT).persist()
    found = (
        kept.where("is_wanted")
        .dropDuplicates(["id", "seq"])
        .withColumn("replay_name", f.lit(chosen.name))
        # A job that this replay has pushed may match too, and must not be replayed again.
        .where(~f.col("id").startswith(f.expr(_OWN)))
        .where(f.col("replay_of").isNull() | (f.expr(_OLDER_ID.format("replay_of")) != f.col("id")))
        .withColumn("new_id", f.expr(_NEW_ID))
        .withColumn("older_id", f.expr(_OLDER_ID.format("id")))
    )
    there = kept.where(is_own).select("id").unionByName(waiting.where(is_own).select("id"))
    fresh = found
    for column in ("new_id", "older_id"):
        fresh = fresh.join(there.withColumnRenamed("id", column), column, "left_anti")
    try:
        yield fresh.orderBy("seq", "id")
    finally:
        kept.unpersist()


def _again(row: Row) -> _Again:
    large = None if row.payload_ref is None else _decode_ref(row.payload_ref)
    payload: Any = None
    if large is None:
        payload = bytes(row.payload_bytes) if row.payload is None else Raw(row.payload.encode())
    spec = JobSpec[Any](
        id=row.new_id,
        kind=row.kind,
        payload=payload,
        priority=row.priority,
        max_attempts=row.max_attempts,
        tags=dict(row.tags) if row.tags else None,
        replay_of=row.id,
    )
    return _Again(spec, len(payload) if large is None else large.bytes, large)


def _push(queue: BlockingQueue[Any], some: list[_Again]) -> None:
    """Push jobs, with copies of their large payloads."""
    with ExitStack() as copies:
        specs = []
        for spec, _, large in some:
            payload = spec.payload
            if large is not None:
                copy = PayloadCopy(large.encoding)
                copies.callback(copy.close)
                for chunk in _read(queue, spec, large):
                    copy.add(chunk)
                payload = copy.payload()
            specs.append(replace(spec, payload=payload))
        queue.push_many(specs)


def _read(queue: BlockingQueue[Any], spec: JobSpec[Any], large: LargeRef) -> Iterator[bytes]:
    """Read the payload of an old job."""
    old = JobRecord(
        id=spec.replay_of or "",
        kind=spec.kind,
        status="done",
        seq=0,
        payload=write_ref(SideRef(large.object, large.bytes, large.digest, large.part_bytes)),
        payload_encoding=large.encoding,
        pushed_at=SystemClock().now(),
    )
    try:
        yield from queue.open_payload(Job(old, Any))
    except PayloadLostError as error:
        hint = f"leave job {old.id} out: add \"and id <> '{old.id}'\" to the condition, and a name"
        raise PayloadLostError(f"{error}; {hint}") from error


def _batches(jobs: Iterator[_Again]) -> Iterator[list[_Again]]:
    """Yield batches of jobs, each for one commit."""
    some: list[_Again] = []
    size_bytes = 0
    for again in jobs:
        if some and (len(some) == _BATCH_JOBS or size_bytes + again.size_bytes > _BATCH_BYTES):
            yield some
            some, size_bytes = [], 0
        some.append(again)
        size_bytes += again.size_bytes
    if some:
        yield some
