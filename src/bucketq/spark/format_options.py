"""The options of the format ``bucketq``, checked before Spark reads or writes anything.

There are sets for a batch read, a batch write, each stream that reads, and a stream that writes.
Each function here raises ``InvalidRequestError`` that names the wrong option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Literal, get_args

from bucketq.model import check
from bucketq.model.records import STATUSES
from bucketq.spark import format_values as values
from bucketq.spark.format_values import refuse
from bucketq.spark.queue_access import QueueAccess

TableName = Literal["jobs", "archive", "changes"]
_TABLES: tuple[TableName, ...] = get_args(TableName)

_SHARED = ("path", "token", "timeoutSeconds")
_PAST = ("version", "timestamp")
_FETCH = "fetchBytes"
_VERSIONS = ("startingVersion", "endingVersion")
_CHOICE = ("table", "status", "kind", "from", "to", "numPartitions", _FETCH)
_READ = (*_SHARED, *_CHOICE, *_PAST, *_VERSIONS)
_CHANGES_STREAM = (*_SHARED, "table", "startingVersion", "maxVersionsPerTrigger", "failOnDataLoss")
_ARCHIVE_STREAM_ONLY = ("maxHoursPerTrigger", "settleSeconds")
_ARCHIVE_STREAM = (
    *(*_SHARED, "table", "status", "kind", "from", "numPartitions", _FETCH),
    *_ARCHIVE_STREAM_ONLY,
)
_WRITE = (*_SHARED, "kind", "payloadColumns", "maxJobsPerCommit", "writeId", "bulk")
_STREAM_ONLY = (
    *("consumer", "maxJobsPerTrigger", "minPartitions", "leaseSeconds", "failOnLostClaim"),
    *("maxBatchFailures", "maxBytesPerTrigger"),
)
_STREAM = (*_SHARED, "kind", *_STREAM_ONLY, _FETCH)
_BATCH_WRITE_ONLY = ("writeId", "maxJobsPerCommit", "bulk")
_SPARK_OWN = ("checkpointlocation", "queryname")
"""Options of Spark's own that it passes on to the sink of a stream."""
_STORED = ("provider", "owner")
"""What Spark passes on of a table that is to be stored in a catalog."""
_PURPOSES = {
    **dict.fromkeys(_STREAM_ONLY, "streams with the option consumer"),
    "consumer": "streams (spark.readStream)",
    **dict.fromkeys(_ARCHIVE_STREAM_ONLY, "streams of the archive"),
    **dict.fromkeys(set(_READ) - set(_SHARED), "reading tables"),
    **dict.fromkeys(set(_WRITE) - set(_READ), "writing"),
}
"""What options are for that not every read and write has."""
_VIEW = (
    "create a temporary view instead, as in CREATE TEMPORARY VIEW jobs USING bucketq "
    "OPTIONS (path 's3://bucket/jobs/queue.json')"
)
_SIMILARITY = 0.8
"""Up to two wrong letters in ten are taken for a typing error."""

ALL_COLUMNS = "*"
"""The value of ``payloadColumns`` for all columns that are not fields of a job."""

_RANGE_MAX = timedelta(days=366 * 20)
"""A longer range of the archive is listed by so many days that it is more likely a mistake."""
_PARTITIONS_MAX = 10_000
"""More tasks than that cost Spark's scheduler more than they gain."""
_VERSION_MAX = 2**62
_VERSIONS_PER_TRIGGER = 100_000
"""Some ten to a hundred megabytes of changes."""
_HOURS_PER_TRIGGER = 168
"""A week of the archive: years of it are read in some hundred micro-batches."""
_SETTLE_S = 300.0
"""As much as clocks may differ by default (``clock_margin_s``)."""
_JOBS_MAX = 100_000
"""The largest value that ``max_batch_jobs`` of a queue can have."""
_JOBS_PER_TRIGGER = 10_000
"""The default of ``max_batch_jobs``; such a micro-batch takes about half a second."""
_BATCH_FAILURES = 3
"""As often as a job may fail by default."""
_FAILURES_MAX = 1000
"""More restarts than that are more likely a mistake."""
_FETCH_BYTES_MAX = 1 << 30
"""Arrow has columns of up to 2 GiB, and a payload is in two of them."""
_LEASE_S = 300.0
"""Long enough to restart a driver, so that it finds its micro-batch unchanged."""
_WRITE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class ReadOptions:
    """What a batch read returns."""

    access: QueueAccess
    table: TableName
    statuses: tuple[str, ...]
    kinds: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    partitions: int | None
    version: int | None = None
    """Jobs as they were at this version; None: now."""
    at: datetime | None = None
    """Jobs as they were at this time; None: now."""
    fetch_bytes: int = 0
    """How large a payload or result may be to be fetched if it is not in its job: none is, because
    a query that does not need them would read them, too."""
    first: int | None = None
    last: int | None = None
    """The versions of a read of changes; None: from the first, and to the last there is."""
    is_empty: bool = False
    """Whether no row can pass the filters of the query."""


@dataclass(frozen=True)
class ChangesStreamOptions:
    """Which changes a stream reads."""

    access: QueueAccess
    first: int | None
    """The version that a query without a checkpoint begins with; None: the first there is."""
    max_versions: int
    fail_on_loss: bool
    """Whether it is an error if versions were forgotten before they were read."""


@dataclass(frozen=True)
class ArchiveStreamOptions:
    """Which finished jobs a stream reads."""

    read: ReadOptions
    """How those of a range of time are read."""
    longest: timedelta
    """The range of a micro-batch."""
    settle: timedelta
    """How long ago a job must have finished."""

    @property
    def access(self) -> QueueAccess:
        """The queue that they belong to."""
        return self.read.access

    @property
    def first(self) -> datetime | None:
        """The time that a query without a checkpoint begins with; None: the first job there is."""
        return self.read.since


@dataclass(frozen=True)
class WriteOptions:
    """How rows are pushed."""

    access: QueueAccess
    kind: str | None
    payload_columns: tuple[str, ...]
    jobs_per_commit: int | None
    """None: all rows in one commit."""
    write_id: str | None
    """None: a new one is made."""
    bulk: bool | None = None
    """Whether executors write segments, which one commit adds; None: if it is possible, and if
    there are many rows."""


@dataclass(frozen=True)
class StreamOptions:
    """Which jobs a stream claims, and how."""

    access: QueueAccess
    consumer: str
    kinds: tuple[str, ...]
    max_jobs: int
    """The largest number of jobs in a micro-batch."""
    partitions: int
    """The smallest number of partitions of a micro-batch that has as many jobs."""
    lease_s: float
    """How long the jobs of a micro-batch stay claimed after its driver was last heard of."""
    fail_on_lost: bool
    """Whether it is an error if a repeated micro-batch misses some of its jobs."""
    max_failures: int = 0
    """How often a micro-batch may fail before it is taken apart; 0: as often as it does."""
    fetch_bytes: int | None = None
    """How large a payload may be to be fetched if it is not in its job; None: 16 MiB, and a larger
    one is an error."""
    max_bytes: int = 0
    """How many bytes the payloads of a micro-batch may have, unless it has one job; 0: any."""


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a batch read."""
    found = _named(given, _READ, "reading")
    table = found.get("table", "jobs")
    if table not in _TABLES:
        refuse(f"unknown table {table!r}: the option table is one of {', '.join(_TABLES)}")
    since, until = _time_range(found, table)
    _check_past(found, table)
    return ReadOptions(
        version=values.whole_number(found, "version", _VERSION_MAX),
        at=values.moment(found, "timestamp"),
        first=values.whole_number(found, "startingVersion", _VERSION_MAX),
        last=values.whole_number(found, "endingVersion", _VERSION_MAX),
        access=_access(found),
        table=table,
        statuses=_statuses(found),
        kinds=_kinds(found),
        since=since,
        until=until,
        partitions=values.whole_number(found, "numPartitions", _PARTITIONS_MAX),
        fetch_bytes=values.byte_count(found, _FETCH, _FETCH_BYTES_MAX) or 0,
    )


def changes_stream_options(given: Mapping[str, str]) -> ChangesStreamOptions:
    """Check the options of a stream of changes."""
    found = _named(given, _CHANGES_STREAM, "streams of changes")
    return ChangesStreamOptions(
        access=_access(found),
        first=values.whole_number(found, "startingVersion", _VERSION_MAX),
        max_versions=values.whole_number(found, "maxVersionsPerTrigger", _VERSION_MAX)
        or _VERSIONS_PER_TRIGGER,
        fail_on_loss=values.switch(found, "failOnDataLoss", default=True),
    )


def archive_stream_options(given: Mapping[str, str]) -> ArchiveStreamOptions:
    """Check the options of a stream of the archive."""
    found = _named(given, _ARCHIVE_STREAM, "streams of the archive")
    read = ReadOptions(
        access=_access(found),
        table="archive",
        statuses=_statuses(found),
        kinds=_kinds(found),
        since=values.moment(found, "from"),
        until=None,
        partitions=values.whole_number(found, "numPartitions", _PARTITIONS_MAX),
        fetch_bytes=values.byte_count(found, _FETCH, _FETCH_BYTES_MAX) or 0,
    )
    most = _RANGE_MAX // timedelta(hours=1)
    hours = values.whole_number(found, "maxHoursPerTrigger", most) or _HOURS_PER_TRIGGER
    settle_s = values.seconds(found, "settleSeconds", _SETTLE_S)
    return ArchiveStreamOptions(read, timedelta(hours=hours), timedelta(seconds=settle_s))


def is_of(given: Mapping[str, str], table: TableName) -> bool:
    """Return whether the option table asks for a table."""
    return any(name.lower() == "table" and value == table for name, value in given.items())


def is_archive_stream(given: Mapping[str, str]) -> bool:
    """Return whether options are of a stream of the archive, and not of a batch read of it."""
    names = {name.lower() for name in given}
    own = {name.lower() for name in _ARCHIVE_STREAM_ONLY}
    return is_of(given, "archive") and bool("from" not in names or names & own)


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a batch write."""
    found = _named(given, _WRITE, "writing")
    kind = found.get("kind")
    if kind is not None:
        check.kind(kind)
    write_id = found.get("writeId")
    if write_id is not None and not _WRITE_ID.fullmatch(write_id):
        refuse(
            f"option writeId: {write_id!r} is not a valid id; use 1 to 64 letters, digits and "
            ". _ -, beginning with a letter or digit"
        )
    jobs_per_commit = values.whole_number(found, "maxJobsPerCommit", _JOBS_MAX)
    bulk = None if "bulk" not in found else values.switch(found, "bulk", default=False)
    if bulk and jobs_per_commit is not None:
        refuse("the options bulk and maxJobsPerCommit exclude each other: bulk is one commit")
    return WriteOptions(
        access=_access(found),
        kind=kind,
        payload_columns=values.name_list(found, "payloadColumns"),
        jobs_per_commit=jobs_per_commit,
        write_id=write_id,
        bulk=False if jobs_per_commit is not None else bulk,
    )


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Check the options of a stream that reads."""
    found = _named(given, _STREAM, "streams")
    consumer = found.get("consumer", "").strip()
    if not consumer:
        refuse(
            "the option consumer is missing: a name for this stream alone, under which the queue "
            'keeps its claims, as in option("consumer", "indexer")'
        )
    check.name(consumer, "consumer")
    return StreamOptions(
        access=_access(found),
        consumer=consumer,
        kinds=_kinds(found),
        max_jobs=values.whole_number(found, "maxJobsPerTrigger", _JOBS_MAX) or _JOBS_PER_TRIGGER,
        partitions=values.whole_number(found, "minPartitions", _PARTITIONS_MAX) or 1,
        lease_s=values.seconds(found, "leaseSeconds", _LEASE_S),
        fail_on_lost=values.switch(found, "failOnLostClaim", default=True),
        max_failures=_failures(found),
        fetch_bytes=values.byte_count(found, _FETCH, _FETCH_BYTES_MAX),
        max_bytes=values.size(found, "maxBytesPerTrigger") or 0,
    )


def stream_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a stream that writes."""
    for name in given:
        if name.lower() in map(str.lower, _BATCH_WRITE_ONLY):
            refuse(
                f"the option {name} is not for streams: each micro-batch of a query is pushed in "
                "one commit, under the id of the query and its own number; leave it out"
            )
    return write_options({name: given[name] for name in given if name.lower() not in _SPARK_OWN})


def has_stream_option(given: Mapping[str, str]) -> bool:
    """Return whether there is an option that only streams have."""
    own = {name.lower() for name in _STREAM_ONLY}
    return any(name.lower() in own for name in given)


def check_not_stored(given: Mapping[str, str]) -> None:
    """Raise ``InvalidRequestError`` for ``CREATE TABLE``."""
    if set(_STORED) <= {name.lower() for name in given}:
        refuse(
            "a table of the format bucketq cannot be stored in a catalog, because Spark forgets "
            f"its options: {_VIEW}"
        )


def check_shared(url: str) -> None:
    """Raise ``InvalidRequestError`` for a queue that Spark's processes do not share."""
    if url.lower().startswith("memory:"):
        refuse(
            "a memory:// queue is seen by one process alone, and Spark has several: use a file or "
            "an object store"
        )


def _named(given: Mapping[str, str], known: tuple[str, ...], purpose: str) -> dict[str, str]:
    """Return the options under our spelling of their names; Spark ignores case."""
    by_lower = {name.lower(): name for name in known}
    found = {}
    for name, value in given.items():
        spelled = by_lower.get(name.lower())
        if spelled is None:
            refuse(
                f"unknown option {name!r}: {_suggestion(name, known)}for {purpose}, the format "
                f"bucketq has {', '.join(known)}"
            )
        found[spelled] = value
    return found


def _suggestion(name: str, known: tuple[str, ...]) -> str:
    """Suggest the option that was meant by an unknown name, if one is similar."""
    by_lower = {each.lower(): each for each in (*_PURPOSES, *known)}
    similar = get_close_matches(name.lower(), by_lower, n=1, cutoff=_SIMILARITY)
    if not similar:
        return ""
    option = by_lower[similar[0]]
    if option.lower() == name.lower():
        return f"it is for {_PURPOSES[option]}; "
    purpose = "" if option in known else f", which is for {_PURPOSES[option]}"
    return f"did you mean {option}{purpose}? "


def _access(found: Mapping[str, str]) -> QueueAccess:
    url = found.get("path", "").strip()
    if not url:
        refuse(
            "the option path is missing: the address of the queue, as in "
            'option("path", "s3://bucket/jobs/queue.json"). Spark forgets the options of a table '
            f"that is stored in a catalog; if this is one, {_VIEW}"
        )
    check_shared(url)
    timeout_s = values.seconds(found, "timeoutSeconds", QueueAccess.timeout_s)
    return QueueAccess(url, timeout_s, found.get("token") or None)


def _kinds(found: Mapping[str, str]) -> tuple[str, ...]:
    chosen = values.name_list(found, "kind")
    check.kinds(chosen)
    return chosen


def _statuses(found: Mapping[str, str]) -> tuple[str, ...]:
    chosen = values.name_list(found, "status")
    for status in chosen:
        if status not in STATUSES:
            refuse(
                f"unknown status {status!r}: the option status is a list of {', '.join(STATUSES)}"
            )
    return chosen


def _failures(found: Mapping[str, str]) -> int:
    if found.get("maxBatchFailures") == "0":
        return 0
    return values.whole_number(found, "maxBatchFailures", _FAILURES_MAX) or _BATCH_FAILURES


def _time_range(
    found: Mapping[str, str], table: str
) -> tuple[datetime, datetime | None] | tuple[None, None]:
    """Return the time range of a read of the archive; a read of the queue has none."""
    since, until = values.moment(found, "from"), values.moment(found, "to")
    if table != "archive":
        if since or until:
            refuse(
                "the options from and to are for the archive: leave them out, or add "
                'option("table", "archive")'
            )
        return None, None
    if since is None:
        refuse(
            "reading the archive needs the option from, the start of the time range, as in "
            'option("from", "2026-11-01")'
        )
    if until is not None and until < since:
        refuse(f"the option to ({found['to']}) is before the option from ({found['from']})")
    if until is not None and until - since > _RANGE_MAX:
        refuse(f"a range of {(until - since).days:,} days is too long: read it in parts")
    return since, until


def _check_past(found: Mapping[str, str], table: str) -> None:
    """Refuse options of the past with a table that does not have them."""
    if table != "jobs" and any(name in found for name in _PAST):
        refuse('the options version and timestamp are for option("table", "jobs")')
    if all(name in found for name in _PAST):
        refuse("give the option version or timestamp, not both")
    if table != "changes" and any(name in found for name in _VERSIONS):
        refuse('startingVersion and endingVersion are for option("table", "changes")')
    if table == "changes" and any(name in found for name in ("status", "kind")):
        refuse("a change has no status and no kind: filter the rows instead")
    if table == "changes" and _FETCH in found:
        refuse("fetchBytes is for jobs and the archive: a change has references")
