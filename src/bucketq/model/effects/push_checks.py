"""Checks of a push that depend on no other job of the queue: how large it is, and each of its jobs.

Pushes that are joined in one request have the limits of a batch each, because none of them is
larger than its caller may make it. What they have together has a limit, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from bucketq.errors import InvalidRequestError, PayloadTooLargeError
from bucketq.model import check
from bucketq.model.base import LINE_BYTES, NewJob
from bucketq.model.operations import Request
from bucketq.model.requests.plain_jobs import PlainJobs, check_plain
from bucketq.model.settings import MIB, Settings

_id = attrgetter("id")

_MOST_JOINED_JOBS = 10_000
_MOST_JOINED_BYTES = 2 * MIB
"""What joined pushes may have together if the limits of one batch are smaller: nothing else is done
while they are applied. Clients join 1 MiB of rows."""


def check_push(settings: Settings, jobs: tuple[NewJob, ...], request: Request) -> tuple[int, bool]:
    """Check a push, or several that are joined.

    Returns the same as ``row_bytes``, and whether no job has options, as in most pushes.
    """
    counts = request.counts or (1,) * len(request.numbers)
    most_jobs = max(counts, default=len(jobs))
    if most_jobs > settings.max_batch_jobs:
        raise InvalidRequestError(
            f"{most_jobs} jobs in one push, at most {settings.max_batch_jobs} are allowed "
            "(max_batch_jobs): push them in several batches"
        )
    most_joined = max(settings.max_batch_jobs, _MOST_JOINED_JOBS)
    if len(jobs) > most_joined:
        raise InvalidRequestError(
            f"{len(jobs)} jobs in joined pushes, at most {most_joined} are allowed: join fewer"
        )
    most_bytes = min(settings.max_payload_bytes, MIB)
    if isinstance(jobs, PlainJobs):
        size_bytes, is_plain = check_plain(jobs, most_bytes), True
    else:
        size_bytes, is_plain = _check_each(jobs, settings, most_bytes)
    if len(jobs) > 1:
        _check_different(list(map(_id, jobs)), "job id")
    if size_bytes > settings.max_batch_bytes:
        _check_bytes(jobs, counts, size_bytes, settings.max_batch_bytes)
    return LINE_BYTES * len(jobs) + size_bytes, is_plain


def _check_bytes(
    jobs: tuple[NewJob, ...], counts: Sequence[int], size_bytes: int, limit_bytes: int
) -> None:
    """Check payloads that have more bytes together than one push may have."""
    largest = max(sum(len(job.payload) for job in part) for part in parts_of(jobs, counts))
    if largest > limit_bytes:
        raise PayloadTooLargeError(
            f"{largest:,} bytes of payload in one push, at most {limit_bytes:,} are allowed "
            "(max_batch_bytes): push several batches"
        )
    most_joined = max(limit_bytes, _MOST_JOINED_BYTES)
    if size_bytes > most_joined:
        raise PayloadTooLargeError(
            f"{size_bytes:,} bytes of payload in joined pushes, at most {most_joined:,} are "
            "allowed: join fewer"
        )


def parts_of(jobs: tuple[NewJob, ...], counts: Sequence[int]) -> Iterator[Sequence[NewJob]]:
    """Yield the jobs of each of the pushes that are joined; without ``counts``, all."""
    start = 0
    for count in counts or (len(jobs),):
        yield jobs[start : start + count]
        start += count


def _check_each(jobs: tuple[NewJob, ...], settings: Settings, most_bytes: int) -> tuple[int, bool]:
    size_bytes, is_plain = 0, True
    for job in jobs:
        if check.has_options(job):
            check.options(job, settings)
            is_plain = False
        size_bytes += check.plain_job(job, most_bytes)
    if len(jobs) > 1 and not is_plain:
        _check_different([job.key for job in jobs if job.key is not None], "idempotency key")
    return size_bytes, is_plain


def _check_different(names: list[str], what: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise InvalidRequestError(f"{what} {twice!r} stands twice in one push")
