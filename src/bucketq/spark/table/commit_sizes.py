"""Splits the jobs of a write into commits, and rejects one that is too large before any push."""

from __future__ import annotations

from collections.abc import Sequence

from bucketq.errors import InvalidRequestError, PayloadTooLargeError
from bucketq.model.settings import Settings

_HINT = 'push in several commits with option("maxJobsPerCommit", "{}")'


def commit_sizes(
    sizes: Sequence[int], jobs_per_commit: int | None, settings: Settings
) -> list[int]:
    """Return the number of jobs of each commit, in order.

    They follow from the number of jobs and the option alone, so that a write that is resumed is
    split as before, even if the settings of the queue have changed.
    """
    total = len(sizes)
    each = jobs_per_commit or total
    if min(each, total) > settings.max_batch_jobs:
        what = "the write has" if jobs_per_commit is None else "option maxJobsPerCommit asks for"
        hint = _HINT.format(settings.max_batch_jobs)
        message = (
            f"nothing was pushed: {what} {each:,} jobs in one commit, and the queue takes "
            f"{settings.max_batch_jobs:,} (max_batch_jobs); {hint}"
        )
        raise InvalidRequestError(message)
    counts = []
    for first in range(0, total, each or 1):
        some = sizes[first : first + each]
        if sum(some) > settings.max_batch_bytes:
            # Half of what fits on average leaves room for rows that are larger than the average.
            fitting = max(1, settings.max_batch_bytes * len(some) // (2 * sum(some)))
            message = (
                f"nothing was pushed: {len(some):,} jobs with {sum(some):,} bytes of payload would "
                f"go in one commit, and the queue takes {settings.max_batch_bytes:,} "
                f"(max_batch_bytes); {_HINT.format(fitting)}"
            )
            raise PayloadTooLargeError(message)
        counts.append(len(some))
    return counts
