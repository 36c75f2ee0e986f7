"""The options of the format ``bucketq``, checked: a wrong one is named before anything happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Literal, get_args

from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model.job import STATUSES

Table = Literal["jobs", "archive"]
TABLES: tuple[Table, ...] = get_args(Table)

_SHARED = ("path", "token", "timeoutSeconds")
_READ = (*_SHARED, "table", "status", "kind", "from", "to", "numPartitions")
_WRITE = (*_SHARED, "kind", "payloadColumns", "maxJobsPerCommit", "writeId")
STREAM_ONLY = ("consumer", "maxJobsPerTrigger", "minPartitions", "leaseSeconds", "failOnLostClaim")
_USES = {
    **dict.fromkeys(STREAM_ONLY, "streams with the option consumer"),
    "consumer": "streams (spark.readStream)",
    **dict.fromkeys(set(_READ) - set(_SHARED), "reading tables"),
    **dict.fromkeys(set(_WRITE) - set(_READ), "writing"),
}
"""What an option is for that is not known everywhere."""
_ALIKE = 0.8

EVERY_COLUMN = "*"
"""What ``payloadColumns`` says for all columns that have no meaning of their own."""

_LONGEST_S = 3600.0
_LONGEST_RANGE = timedelta(days=366 * 20)
_MOST_PARTITIONS = 10_000
_MOST_JOBS = 100_000
_WRITE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Access:
    """How the queue is reached."""

    url: str
    timeout_s: float
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ReadOptions:
    """What to read."""

    access: Access
    table: Table
    statuses: tuple[str, ...]
    kinds: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    partitions: int | None


@dataclass(frozen=True)
class WriteOptions:
    """How to push."""

    access: Access
    kind: str | None
    payload_columns: tuple[str, ...]
    jobs_per_commit: int | None
    """None: all rows in one commit."""
    write_id: str | None
    """None: one is made."""


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read. Raises ``InvalidRequestError`` that names the wrong one."""
    found = named(given, _READ, "reading")
    table = found.get("table", "jobs")
    if table not in TABLES:
        message = f"unknown table {table!r}: the option table is one of {', '.join(TABLES)}"
        raise InvalidRequestError(message)
    statuses = _names(found, "status")
    for status in statuses:
        if status not in STATUSES:
            message = f"unknown status {status!r}: the option status is of {', '.join(STATUSES)}"
            raise InvalidRequestError(message)
    since, until = _range(found, table)
    return ReadOptions(
        access=access(found),
        table=table,
        statuses=statuses,
        kinds=kinds(found),
        since=since,
        until=until,
        partitions=count(found, "numPartitions", _MOST_PARTITIONS),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Raises ``InvalidRequestError`` that names the wrong one."""
    found = named(given, _WRITE, "writing")
    kind = found.get("kind")
    if kind is not None:
        check.kind(kind)
    write_id = found.get("writeId")
    if write_id is not None and not _WRITE_ID.fullmatch(write_id):
        message = (
            f"option writeId: {write_id!r} is no name; use 1 to 64 letters, digits and . _ -, "
            "beginning with a letter or digit"
        )
        raise InvalidRequestError(message)
    return WriteOptions(
        access=access(found),
        kind=kind,
        payload_columns=_names(found, "payloadColumns"),
        jobs_per_commit=count(found, "maxJobsPerCommit", _MOST_JOBS),
        write_id=write_id,
    )


def named(given: Mapping[str, str], known: tuple[str, ...], doing: str) -> dict[str, str]:
    """The options under the names that we give them; Spark does not heed case."""
    by_lower = {name.lower(): name for name in known}
    found = {}
    for name, value in given.items():
        right = by_lower.get(name.lower())
        if right is None:
            message = (
                f"unknown option {name!r}: {_meant(name, known)}for {doing}, the format bucketq "
                f"has {', '.join(known)}"
            )
            raise InvalidRequestError(message)
        found[right] = value
    return found


def _meant(name: str, known: tuple[str, ...]) -> str:
    """What somebody may have meant who named an option that is not known here."""
    by_lower = {each.lower(): each for each in (*_USES, *known)}
    alike = get_close_matches(name.lower(), by_lower, n=1, cutoff=_ALIKE)
    if not alike:
        return ""
    right = by_lower[alike[0]]
    use = "" if right in known else f", which is for {_USES[right]}"
    if right.lower() == name.lower():
        return f"it is for {_USES[right]}; "
    return f"did you mean {right}{use}? "


def access(found: Mapping[str, str]) -> Access:
    """How the queue is reached."""
    url = found.get("path", "").strip()
    if not url:
        message = (
            "the option path is missing: the address of the queue, as in "
            'option("path", "s3://bucket/jobs/queue.json")'
        )
        raise InvalidRequestError(message)
    if url.lower().startswith("memory:"):
        message = (
            "a memory:// queue is seen by one process alone, and Spark has several: use a file or "
            "an object store"
        )
        raise InvalidRequestError(message)
    return Access(url, seconds(found, "timeoutSeconds", 60.0), found.get("token") or None)


def kinds(found: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds to choose by."""
    chosen = _names(found, "kind")
    check.kinds(chosen)
    return chosen


def count(found: Mapping[str, str], name: str, most: int) -> int | None:
    """A whole number from 1 on, or None where it is not given."""
    text = found.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        message = f"option {name}: {text!r} is no whole number from 1 to {most:,}"
        raise InvalidRequestError(message)
    return int(text)


def seconds(found: Mapping[str, str], name: str, otherwise: float) -> float:
    """A number of seconds."""
    text = found.get(name)
    try:
        value = otherwise if text is None else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_S:
        message = f"option {name}: {text!r} is no number of seconds up to {_LONGEST_S:.0f}"
        raise InvalidRequestError(message)
    return value


def check_range(since: datetime | None, until: datetime | None) -> None:
    """Raise ``InvalidRequestError`` where a time is none or has no zone, or the range no length."""
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and getattr(moment, "tzinfo", None) is None:
            what = "has no time zone" if isinstance(moment, datetime) else f"is {moment!r}"
            message = f"{name} {what}: write datetime(2026, 11, 1, tzinfo=UTC)"
            raise InvalidRequestError(message)
    if since is not None and until is not None and since >= until:
        message = f"since ({since}) is not before until ({until})"
        raise InvalidRequestError(message)


def _range(
    found: Mapping[str, str], table: str
) -> tuple[datetime, datetime | None] | tuple[None, None]:
    """The time to read; only the archive is read by time."""
    since, until = _moment(found, "from"), _moment(found, "to")
    if table == "jobs":
        if since or until:
            message = (
                "the options from and to are for the archive: leave them out, or add "
                'option("table", "archive")'
            )
            raise InvalidRequestError(message)
        return None, None
    if since is None:
        message = (
            "reading the archive needs the option from, the first moment to read, as in "
            'option("from", "2026-11-01")'
        )
        raise InvalidRequestError(message)
    if until is not None and until < since:
        message = f"the option to ({found['to']}) is before the option from ({found['from']})"
        raise InvalidRequestError(message)
    if until is not None and until - since > _LONGEST_RANGE:
        message = f"a range of {(until - since).days:,} days is too long: read it in parts"
        raise InvalidRequestError(message)
    return since, until


def _names(found: Mapping[str, str], name: str) -> tuple[str, ...]:
    names = (each.strip() for each in found.get(name, "").split(","))
    return tuple(each for each in names if each)


def _moment(found: Mapping[str, str], name: str) -> datetime | None:
    text = found.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        # A time without a zone is one of UTC, whatever the zone of the session or the machine.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"option {name}: {text!r} is no time; write 2026-11-01 or 2026-11-01T10:00:00Z"
        raise InvalidRequestError(message) from error
