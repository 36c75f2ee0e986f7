"""The keys of archive files: hour, version and content.

``s3://bucket/jobs/queue.json`` keeps its archive under ``jobs/queue/archive/``::

    jobs/queue/archive/2026-02-15T10/00000000000000000042-9f86d081884c7d65.jsonl
                       UTC hour      version of the queue  digest of the archive file

``store.queue_folder`` says which folder belongs to which queue.

With the digest, a key always stands for one content: two processes that archive at the same version
write the same bytes or different keys. ``compacted.py`` has the keys of the table beside the hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from msgspec import Struct

from bucketq.store.queue_folder import shared_folder_of

_ARCHIVE_FILE = r"([0-9]{4}(?:-[0-9]{2}){2}T[0-9]{2})/([0-9]{20})-([0-9a-f]{16})\.jsonl"
_DAY = "%Y-%m-%d"
_HOUR = "%Y-%m-%dT%H"
_COMPACTED = "compacted/"


class ArchiveFile(Struct, frozen=True):
    """The parts of the key of an archive file."""

    key: str
    hour: datetime
    version: int


class Layout(Struct, frozen=True):
    """The keys of the archive of one queue."""

    root: str
    """The prefix of every key; it ends in a slash."""

    @classmethod
    def of(cls, store_url: str, queue_key: str) -> Layout:
        """Return the layout of the archive that belongs to a queue object in a store."""
        return cls(f"{shared_folder_of(store_url, queue_key)}archive/")

    @property
    def compacted(self) -> str:
        """The prefix of every key of the compacted table."""
        return self.root + _COMPACTED

    def owns(self, key: str) -> bool:
        """Whether a key belongs to the archive, and is not another object in its folder."""
        return self.parse(key) is not None or key.startswith(self.compacted)

    def file_key(self, hour: datetime, version: int, body: bytes) -> str:
        """Return the key of an archive file."""
        digest = blake2b(body, digest_size=8).hexdigest()
        return f"{self.hour_prefix(hour)}{version:020d}-{digest}.jsonl"

    def hour_prefix(self, hour: datetime) -> str:
        """Return the prefix of the keys of an hour."""
        return f"{self.root}{hour.astimezone(UTC).strftime(_HOUR)}/"

    def day_prefix(self, day: datetime) -> str:
        """Return the prefix of the keys of all hours of a day."""
        return f"{self.root}{day.astimezone(UTC).strftime(_DAY)}T"

    def parse(self, key: str) -> ArchiveFile | None:
        """Parse a key; return None if it is not the key of an archive file."""
        found = re.fullmatch(_ARCHIVE_FILE, key.removeprefix(self.root))
        if found is None or not key.startswith(self.root):
            return None
        try:
            hour = datetime.strptime(found[1], _HOUR).replace(tzinfo=UTC)
        except ValueError:
            return None
        return ArchiveFile(key, hour, int(found[2]))


def hour_of(moment: datetime) -> datetime:
    """Return the UTC hour of a moment."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def hours_between(since: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the hours that overlap a range of time; its end is exclusive."""
    hour = hour_of(since)
    while hour < until:
        yield hour
        hour += timedelta(hours=1)
