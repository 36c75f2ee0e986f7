"""The names of archive objects: which hour, which version, which content.

``s3://bucket/jobs/queue.json`` keeps its archive under ``jobs/queue/archive/``::

    jobs/queue/archive/2026-02-15T10/00000000000000000042-9f86d081884c7d65.jsonl
                       UTC hour      version of the queue  digest of the segment

The archive of an object ``jobs/queue`` lies under ``jobs/queue/archive/`` too. On a disk that is
impossible, because ``jobs/queue`` is a file: there it lies under ``jobs/queue.d/archive/``.

The digest makes a key stand for one content for ever: two processes that archive at the same
version write either the same bytes or other keys. ``compacted`` beside the hours is a table of its
own, told of in ``compacted.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

_SEGMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)/(\d{20})-([0-9a-f]{16})\.jsonl")
_DAY = "%Y-%m-%d"
_HOUR = "%Y-%m-%dT%H"
_COMPACTED = "compacted/"


def folder_of(store_url: str, queue_key: str) -> str:
    """Return the prefix of the keys of a queue's other objects; it ends in a slash."""
    stem = queue_key.removesuffix(".json")
    is_taken = stem == queue_key and store_url.startswith("file:")
    if is_taken or stem.rpartition("/")[2] == "":
        return f"{queue_key}.d/"
    return f"{stem}/"


@dataclass(frozen=True, slots=True)
class Segment:
    """One archive object."""

    key: str
    hour: datetime
    version: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of the archive of one queue."""

    root: str
    """What every key of it begins with, a slash at its end."""

    @classmethod
    def of(cls, store_url: str, queue_key: str) -> Layout:
        """Return the layout of the archive that belongs to a queue object in a store."""
        return cls(f"{folder_of(store_url, queue_key)}archive/")

    @property
    def compacted(self) -> str:
        """What every key of the compacted part begins with."""
        return self.root + _COMPACTED

    def owns(self, key: str) -> bool:
        """Whether a key is one of the archive's, and not somebody's note beside it."""
        return self.parse(key) is not None or key.startswith(self.compacted)

    def segment_key(self, hour: datetime, version: int, body: bytes) -> str:
        """The key of a segment."""
        digest = blake2b(body, digest_size=8).hexdigest()
        return f"{self.hour_prefix(hour)}{version:020d}-{digest}.jsonl"

    def hour_prefix(self, hour: datetime) -> str:
        """What the keys of an hour begin with."""
        return f"{self.root}{hour.astimezone(UTC).strftime(_HOUR)}/"

    def day_prefix(self, day: datetime) -> str:
        """What the keys of all hours of a day begin with."""
        return f"{self.root}{day.astimezone(UTC).strftime(_DAY)}T"

    def parse(self, key: str) -> Segment | None:
        """Read a key; None where it is not that of a segment."""
        found = _SEGMENT.fullmatch(key.removeprefix(self.root))
        if found is None or not key.startswith(self.root):
            return None
        try:
            hour = datetime.strptime(found[1], _HOUR).replace(tzinfo=UTC)
        except ValueError:
            return None
        return Segment(key, hour, int(found[2]))


def hour_of(moment: datetime) -> datetime:
    """The UTC hour that a moment lies in."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def hours_between(since: datetime, until: datetime) -> Iterator[datetime]:
    """The hours that a range of time touches; its end is not part of it."""
    hour = hour_of(since)
    while hour < until:
        yield hour
        hour += timedelta(hours=1)
