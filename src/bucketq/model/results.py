"""Waiting for the end of a job: the operations, and what is answered.

A committer parks a ``Wait`` for a job that is not over, and answers it in the commit that ends the
job. A job that has left the queue is looked for in the archive, beside the commits.

A job that leaves with a result that is not null leaves a hash of its id behind, beside the names of
the archive files that its commit has written. So its line is found by reading one file, for
``result_retention_s``; after that the archive is searched. A row stands for all jobs that left
together: five bytes for each, and nothing in a queue whose jobs return nothing. This index is a
help and no promise of its own: if a part of it is missing, the archive is searched.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b

import msgspec
from msgspec import Raw, Struct

from bucketq.model.base import Operation
from bucketq.model.records import (
    NOTHING,
    Encoding,
    Failure,
    JobRecord,
    Outcome,
    Progress,
    Status,
)

_encode = msgspec.json.Encoder().encode
_HASH_BYTES = 4
"""With 100,000 results, one of 40,000 searches reads a file in vain."""
_ROW_BYTES = 100
"""About what a row takes beside the names of files and the hashes."""


class Wait(Operation, frozen=True):
    """Read how a job ended. Answers a ``JobEnd``, or None if it is not over.

    With ``seen`` it is also answered with a ``Progress``, if the job has come further.
    """

    job: str
    wait_s: float = 0.0
    """How long the committer may park it until the job is over. ``apply`` never waits."""
    seen: str = ""
    """The progress that its caller knows, as JSON (``null``: none); empty: it asks for none."""


class FindArchived(Operation, frozen=True):
    """Read how a job ended that has left the queue. Answers a ``JobEnd``."""

    job: str


AnyWait = Wait | FindArchived


class JobEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job ended: done, with its outcome and result, or dead."""

    id: str
    seq: int
    status: Status
    outcome: Outcome | None = None
    error: Failure | None = None
    """Its last failure."""
    result: Raw = NOTHING
    result_encoding: Encoding | None = None


def end_of(job: JobRecord) -> JobEnd | None:
    """Return how a job ended; None: it is not over."""
    if job.status not in ("done", "dead"):
        return None
    return JobEnd(
        id=job.id,
        seq=job.seq,
        status=job.status,
        outcome=job.outcome,
        error=job.errors[-1] if job.errors else None,
        result=job.result,
        result_encoding=job.result_encoding,
    )


def news_of(wait: Wait, progress: Progress | None) -> Progress | None:
    """Return the progress of a job if the caller of a wait does not know it yet."""
    if not wait.seen or progress is None or progress_text(progress) == wait.seen:
        return None
    return progress


def progress_text(progress: Progress | None) -> str:
    """Return a progress as JSON."""
    return _encode(progress).decode()


class ResultRow(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Results that left together, or the object to which such rows have moved."""

    id: str
    """Of a row that has moved, the name of the object that holds it."""
    seq: int
    at: datetime
    """When the latest of them left."""
    count: int
    files: tuple[str, ...] = ()
    """Archive files, from the folder of the archive on; none: it has moved."""
    hashes: str = ""
    """Hashes of the ids of jobs, in base64."""

    @property
    def has_moved(self) -> bool:
        """Whether this stands for rows in an object of their own."""
        return not self.files

    @property
    def size_bytes(self) -> int:
        """About how many bytes it takes in the queue object."""
        return _ROW_BYTES + len(self.hashes) + sum(map(len, self.files))

    @property
    def is_sound(self) -> bool:
        """Whether there is a hash for each result."""
        try:
            return len(b64decode(self.hashes, validate=True)) == _HASH_BYTES * self.count
        except ValueError:
            return False

    def may_have(self, job_id: str) -> bool:
        """Whether the result of a job may be in the files; hardly ever it is not, if so."""
        hashes, wanted, place = b64decode(self.hashes), _hash(job_id), -1
        while (place := hashes.find(wanted, place + 1)) >= 0:
            if place % _HASH_BYTES == 0:
                return True
        return False


class SpillResults(Operation, frozen=True):
    """Replace rows, which are the same as in the object ``id``, by its name. Answers how many."""

    id: str
    until: int
    """The last version that may introduce the object."""
    rows: tuple[ResultRow, ...]


def hashes_of(job_ids: Iterable[str]) -> str:
    """Return the hashes of ids, as a row has them."""
    return b64encode(b"".join(map(_hash, job_ids))).decode()


def _hash(job_id: str) -> bytes:
    return blake2b(job_id.encode(), digest_size=_HASH_BYTES).digest()
