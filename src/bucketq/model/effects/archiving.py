"""How finished jobs are read from the outbox, and removed once they are in the archive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from bucketq.model import check
from bucketq.model.effects.segment_changes import FORMAT
from bucketq.model.indexes.finished_jobs import FinishedJobs, finished_at
from bucketq.model.job_ids import made_at
from bucketq.model.outbox import Archived, Outbox, ReadOutbox
from bucketq.model.records import NOTHING, JobRecord
from bucketq.model.results import ResultRow, SpillResults, hashes_of
from bucketq.model.settings import KIB
from bucketq.model.state import State

_MOST_BYTES = 256 * KIB
"""How many bytes rows on results may take in the object. They move to objects long before, unless
the store refuses these."""


def read_outbox(state: State, operation: ReadOutbox, now: datetime) -> Outbox:
    """Read the finished jobs that are to be archived, in the order in which they finished."""
    check.delay(operation.min_age_s, "min_age_s")
    check.whole_number(operation.limit, "limit", 0)
    if operation.keep_bytes is not None:
        check.whole_number(operation.keep_bytes, "keep_bytes", 0)
    done, extra = state.done, state.extra
    chosen = list(islice(_leaving(done, operation, now), operation.limit or None))
    jobs = [(job, extra.get(("jobs", job.id)) if extra else None) for job in chosen]
    return Outbox(state.version, tuple(jobs), tuple(done.lines_of(chosen) or ()))


def is_due(done: FinishedJobs, age_s: float, now: datetime) -> bool:
    """Whether a finished job has waited for this long, or finished that far in the future."""
    oldest, newest, age = done.oldest(), done.newest(), timedelta(seconds=age_s)
    if oldest is None or newest is None:
        return False
    return now - finished_at(oldest) >= age or newest - now >= age


def _leaving(done: FinishedJobs, operation: ReadOutbox, now: datetime) -> Iterator[JobRecord]:
    age = timedelta(seconds=operation.min_age_s)
    newest = done.newest()
    is_any_ahead = newest is not None and newest - now >= age
    keep_bytes = operation.keep_bytes
    surplus_bytes = 0 if keep_bytes is None else done.size_bytes - keep_bytes
    for job in done:
        if surplus_bytes > 0:
            surplus_bytes -= done.bytes_of(job)
            yield job
        elif abs(now - finished_at(job)) >= age:
            yield job
        elif not is_any_ahead:
            return  # They come in order: the others are younger still.


def remove_archived(state: State, operation: Archived, now: datetime) -> int:
    """Remove jobs that are done, and note where their results are.

    A job that is gone already or not done is skipped, and so is a later job with the same id.
    """
    jobs, count = state.jobs.by_id, 0
    for part in operation.parts:
        ready = [
            job
            for job_id, seq in dict.fromkeys(part.jobs)
            if (job := jobs.get(job_id)) is not None and job.seq == seq and job.status == "done"
        ]
        if part.files and state.settings.result_retention_s:
            _note_results(state, ready, part.files, now)
        state.remove_archived(ready)
        count += len(ready)
    return count


def spill_results(state: State, operation: SpillResults, _now: datetime) -> int:
    """Replace rows by the name of the object that holds them, if all of them are unchanged."""
    by_id = state.results.by_id
    is_late = state.version + 1 > operation.until or state.settings.max_format < FORMAT
    if is_late or not all(by_id.get(row.id) == row for row in operation.rows):
        return 0
    state.results.move(operation.rows, operation.id)
    state.requires["segments"] = None
    state.changes.append(("results", operation.id))
    return len(operation.rows)


def _note_results(
    state: State, jobs: list[JobRecord], files: tuple[str, ...], now: datetime
) -> None:
    """Add a row for the jobs that have a result, and forget the oldest rows beyond the limits."""
    results, hides = state.results, bool(state.results)
    # The newest job with an id counts, so one without a result hides those before it.
    known = [job for job in jobs if _has_result(job) or (hides and made_at(job.id) is None)]
    if not known:
        return
    seq = results.next_seq
    row = ResultRow(
        id=f"{seq:08d}",
        seq=seq,
        at=now,
        count=len(known),
        files=files,
        hashes=hashes_of(job.id for job in known),
    )
    results.put(row)
    state.changes.append(("results", row.id))
    is_over = results.count > state.settings.max_results
    while (is_over or results.row_bytes > _MOST_BYTES) and (oldest := results.oldest()) is not row:
        assert oldest is not None  # noqa: S101 - the new row is there
        state.forget("results", oldest.id)
        is_over = results.count > state.settings.max_results


def _has_result(job: JobRecord) -> bool:
    return job.result is not NOTHING and bytes(job.result) not in (b"", b"null")
