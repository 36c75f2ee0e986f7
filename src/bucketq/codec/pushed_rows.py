"""The rows of a large push, as they are written to segments before the push is committed.

A line has the fields of a push, and the place of the job in it as its number::

    {"id":"01J…","kind":"email","payload":{…},"seq":0}

So the bytes depend on no version, and nothing is written again if the commit is lost to another
writer. ``segment_lines.decode_jobs`` adds what the commit decides.
"""

from __future__ import annotations

from datetime import UTC

import msgspec
from msgspec.structs import replace

from bucketq.codec.segment_file import SegmentRow, SortFields
from bucketq.model.base import NewJob
from bucketq.model.segments import SegmentClass

_encode = msgspec.json.Encoder().encode


def class_of_new(job: NewJob) -> SegmentClass | None:
    """The class of segments that a job of a push can go to; None: it must go to the object.

    A delay counts from the commit, so that the place of the job is not known before; so does the
    time in which a job expires. A job that waits for others stays in the object.
    """
    if job.delay_s or job.expires_in_s is not None or job.after:
        return None
    return "ready" if job.run_at is None else "later"


def pushed_row(job: NewJob, place: int) -> SegmentRow:
    """Return the row of a valid job that is not delayed, with its place in the push."""
    run_at = None if job.run_at is None else job.run_at.astimezone(UTC)
    if run_at is not None or job.tags is not None or job.delay_s is not None:
        job = replace(job, run_at=run_at, tags=job.tags or None, delay_s=None)
    if job.unique is not None:  # How it was compared with others is not kept.
        job = replace(job, unique_scope=None, unique_s=None, replace=None)
    fields = SortFields(
        job.id, place, job.kind, job.priority, run_at, unique=job.unique, group=job.group
    )
    return SegmentRow(fields, b'%b,"seq":%d}' % (_encode(job)[:-1], place))
