"""A copy of a queue in one text, whose jobs are decoded some at a time: there may be millions.

Everything is checked before the first job is returned, as when an object is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import msgspec

from bucketq.codec.decode import check_format, check_frame, decode
from bucketq.codec.layout import END, OPENINGS, SEPARATOR
from bucketq.codec.segment_lines import decode_jobs
from bucketq.codec.table_checks import check_jobs
from bucketq.errors import CorruptStateError
from bucketq.model.records import JobRecord, Unknown
from bucketq.model.state import State

_OPENING = OPENINGS["jobs"]
_CLOSING = b"\n]"
"""How a table ends; no row begins like that."""
_UNREADABLE = (CorruptStateError, ValueError, msgspec.MsgspecError, RecursionError)


class CopiedJobs(NamedTuple):
    """Some jobs of a copy, in the order of their numbers."""

    jobs: list[JobRecord]
    unknown: dict[str, Unknown]
    """The unknown fields of those that have some, by id."""
    left_bytes: int
    """How many bytes the jobs take that follow."""


class CopiedQueue:
    """A copy of a queue that was checked."""

    def __init__(self, body: bytes, where: str, portion_bytes: int) -> None:
        """Check a copy; ``where`` is what an error calls it.

        Raises:
            NewerFormatError: A newer bucketq wrote it.
            CorruptStateError: It is not a copy that bucketq made.
        """
        check_format(body, where)
        check_frame(body, where)
        self._body = body
        self._where = where
        self._portion_bytes = portion_bytes
        self._start, self._end = _find_jobs(body)
        self.state: State
        """The queue, without the jobs that ``portions`` yields."""
        try:
            if self._end - self._start <= portion_bytes:
                raise ValueError("there are few jobs")
            self.state = decode(_without_jobs(body, self._start), where).state
            self._check()
        except _UNREADABLE:
            # It says what is wrong; if nothing is, all jobs are in the state.
            self.state = decode(body, where).state
            self._start = self._end

    def portions(self) -> Iterator[CopiedJobs]:
        """Yield the jobs, about as many bytes of them at a time as the caller wants."""
        start, end = self._start, self._end
        while start < end:
            stop = self._body.find(SEPARATOR, start + self._portion_bytes, end)
            stop = end if stop < 0 else stop
            text = self._body[start:stop]
            if not text.isascii():
                text.decode()
            jobs, found = decode_jobs(text.split(SEPARATOR), 0, self._where)
            unknown = {jobs[position].id: fields for position, fields in found.items()}
            start = stop + len(SEPARATOR)
            yield CopiedJobs(jobs, unknown, max(0, end - start))

    def _check(self) -> None:
        """Check all jobs. Raises ``ValueError``, or what decoding raises."""
        last, hashes = 0, array("q")
        for portion in self.portions():
            check_jobs(portion.jobs, self.state.next_seq)
            for job in portion.jobs:
                if job.seq <= last:
                    raise ValueError(f"number {job.seq} of {job.id!r} follows {last}")
                last = job.seq
                hashes.append(hash(job.id))
        if any(one == other for one, other in pairwise(sorted(hashes))):
            raise ValueError("two jobs seem to have one id")


def _find_jobs(body: bytes) -> tuple[int, int]:
    """Return where the lines of the jobs begin and end; nowhere, if the text has another form."""
    start, end = body.find(_OPENING), len(body) - len(END)
    start += len(_OPENING) + len(b"\n")
    is_last = body.endswith(END) and body.find(_CLOSING, start, end) < 0
    return (start, end) if start < end and is_last else (end, end)


def _without_jobs(body: bytes, start: int) -> bytes:
    """Return the text of the same queue without jobs."""
    rest = body[body.index(b"\n") + 1 : start - len(b"\n")] + END
    number = body[: body.index(b",")]
    return b'%s,"checksum":"crc32:%08x","bytes":%d,\n' % (number, crc32(rest), len(rest)) + rest
