"""How jobs come in exactly once, however often a writer repeats what it publishes.

A writer numbers what it publishes by batch and part, and goes forward only. The object holds the
last position, written in the commit that holds the jobs: what is not behind it was published.
"""

from __future__ import annotations

from datetime import datetime

from bucketq.errors import RejectedError
from bucketq.model import check, pushes
from bucketq.model.numbered_batches import Publish, WriterRecord
from bucketq.model.state import State


def publish(state: State, operation: Publish, now: datetime) -> bool:
    """Add jobs, all or none, unless the position was published; return whether it was new."""
    check.name(operation.writer, "writer")
    check.whole_number(operation.batch, "batch", 0)
    check.whole_number(operation.part, "part", 0)
    known = state.writers.get(operation.writer)
    if known is not None and (operation.batch, operation.part) <= known.position:
        return False
    limit = state.settings.max_writers
    if known is None and len(state.writers) >= limit:
        message = (
            f"too many writers: the queue remembers {len(state.writers):,}, {limit:,} are allowed "
            "(max_writers); use a name again, or shorten writer_retention_s"
        )
        raise RejectedError(message)
    pushes.add(state, operation.jobs, now)
    state.put_writer(
        WriterRecord(
            id=operation.writer,
            seq=state.writers.next_seq if known is None else known.seq,
            batch=operation.batch,
            part=operation.part,
            at=now,
        )
    )
    return True
