"""The outbox, which is the finished jobs of a queue: how they are read, and how they leave."""

from __future__ import annotations

from msgspec import Raw, Struct

from bucketq.model.base import Operation
from bucketq.model.records import JobRecord


class ArchivedPart(Struct, frozen=True):
    """Finished jobs, and the archive files with them that have landed."""

    jobs: tuple[tuple[str, int], ...]
    """The id and ``seq`` of each: another job may have the same id by now."""
    files: tuple[str, ...] = ()
    """From the folder of the archive on; mostly one, and one more for a change of the hour."""


class Archived(Operation, frozen=True):
    """Remove finished jobs whose archive files have landed. Answers how many."""

    parts: tuple[ArchivedPart, ...]
    """To find a result, the files of one part are read."""


class ReadOutbox(Operation, frozen=True):
    """Read finished jobs that wait for the archive, oldest first. Answers an ``Outbox``."""

    min_age_s: float = 0.0
    """Only those that finished so long ago; or so far ahead, for then a clock was set back."""
    keep_bytes: int | None = None
    """Younger ones too, as long as the rest of them takes more bytes than this."""
    limit: int = 0
    """At most this many; 0: all."""


AnyOutbox = Archived | ReadOutbox


class Outbox(Struct, frozen=True):
    """Finished jobs, each with its fields that this bucketq does not know, and the version."""

    version: int
    jobs: tuple[tuple[JobRecord, dict[str, Raw] | None], ...]
    lines: tuple[bytes, ...]
    """The line of each, without such fields."""
