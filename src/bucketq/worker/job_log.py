"""What a worker logs about its jobs: never their payloads.

Most jobs are logged at levels that are off, so nothing is formatted before that is known.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from bucketq.queue.job import Job
from bucketq.worker.attempt import Attempt, Ended, is_expected
from bucketq.worker.failure import name_of
from bucketq.worker.lease_renewal import LeaseEvent

_log = logging.getLogger("bucketq.worker")

_QUIET = frozenset({"done", "released", "snoozed", "cancelled"})
"""Ends that need no attention."""
LEASE_NOTICES: dict[LeaseEvent, str] = {
    "lost": "lease lost",
    "silent": "lease in doubt",
    "cancel": "cancel asked",
}
"""The log event when a handler is stopped."""


def log_end(attempt: Attempt, ended: Ended) -> None:
    """Log how an attempt ended."""
    is_quiet = ended.end in _QUIET or is_expected(ended.error)
    # A dead job needs an operator, even if its handler gave up on purpose.
    level = logging.INFO if is_quiet and ended.end != "dead" else logging.WARNING
    if not _log.isEnabledFor(level):
        return
    facts: dict[str, object] = {"took_s": round(attempt.took_s, 6)}
    if ended.error is not None:
        # Not the message: it may quote the payload, and is recorded in the job.
        facts["error"] = name_of(ended.error)
    shown = ended.error if _log.isEnabledFor(logging.DEBUG) and not is_quiet else None
    log_job(level, ended.end, attempt.job, facts, shown)


def log_job(
    level: int,
    event: str,
    job: Job[Any],
    facts: Mapping[str, object] | None = None,
    error: BaseException | None = None,
) -> None:
    """Log an event of a job."""
    if _log.isEnabledFor(level):
        fields = {"job": job.id, "kind": job.kind, "attempt": job.attempt, **(facts or {})}
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        facts = {"event": event, **fields}
        _log.log(level, "%s %s", event, text, extra={"bucketq": facts}, exc_info=error)
