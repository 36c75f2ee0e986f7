"""Exit codes: what they mean to a script, and which error leads to which."""

from __future__ import annotations

from bucketq.errors import (
    BatchNotFoundError,
    BucketQError,
    CorruptStateError,
    InvalidRequestError,
    JobGoneError,
    JobNotFoundError,
    QueueNotFoundError,
    RejectedError,
    ScheduleNotFoundError,
    SupersededError,
    UnavailableError,
    WorkerNotFoundError,
)

OK = 0
UNEXPECTED = 1
USAGE = 2
NOTHING = 3
REJECTED = 4
UNAVAILABLE = 5
CORRUPT = 6
INTERRUPTED = 130
PIPE_CLOSED = 141

MEANING = {
    OK: "done",
    UNEXPECTED: "unexpected error; `doctor` found a fault",
    USAGE: "usage error: the command or a value in it is invalid",
    NOTHING: "no such queue, job, token, worker, batch, ...; nothing to claim; job not over",
    REJECTED: "rejected: lease lost, queue full, no permission, the job failed, ...",
    UNAVAILABLE: "the outcome is unknown; retry with --request if one is shown",
    CORRUPT: "the object, or the disk under it, is damaged",
    INTERRUPTED: "stopped by Ctrl-C",
    PIPE_CLOSED: "the reader closed the output pipe",
}

_CODES: tuple[tuple[type[BucketQError], int], ...] = (
    # To a worker this is a lost lease, whether or not the job is archived yet.
    (JobGoneError, REJECTED),
    (JobNotFoundError, NOTHING),
    (QueueNotFoundError, NOTHING),
    (ScheduleNotFoundError, NOTHING),
    (BatchNotFoundError, NOTHING),
    (WorkerNotFoundError, NOTHING),
    (InvalidRequestError, USAGE),
    (RejectedError, REJECTED),
    (UnavailableError, UNAVAILABLE),
    (SupersededError, UNAVAILABLE),
    (CorruptStateError, CORRUPT),
)


def code_of(error: BucketQError) -> int:
    """The exit code of a command that ended with this error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)
