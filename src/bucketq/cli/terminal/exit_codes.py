"""Exit codes: what a script can tell from them, and which error leads to which."""

from __future__ import annotations

from bucketq.errors import (
    BucketQError,
    CorruptStateError,
    InvalidRequestError,
    JobGoneError,
    JobNotFoundError,
    QueueNotFoundError,
    RejectedError,
    SupersededError,
    UnavailableError,
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
    UNEXPECTED: "something unexpected; `doctor` found a fault",
    USAGE: "the command, or a value in it, is wrong",
    NOTHING: "no such queue, job, token or consumer; nothing to claim",
    REJECTED: "refused: lease lost, queue full, no permission, changed meanwhile, ...",
    UNAVAILABLE: "the outcome is unknown; repeat it with --request where one is shown",
    CORRUPT: "the object, or the disk under it, cannot be trusted",
    INTERRUPTED: "stopped by Ctrl-C",
    PIPE_CLOSED: "whoever read the output has closed the pipe",
}

_CODES: tuple[tuple[type[BucketQError], int], ...] = (
    # For a worker it is a lost lease, whether the job is archived already or not yet.
    (JobGoneError, REJECTED),
    (JobNotFoundError, NOTHING),
    (QueueNotFoundError, NOTHING),
    (InvalidRequestError, USAGE),
    (RejectedError, REJECTED),
    (UnavailableError, UNAVAILABLE),
    (SupersededError, UNAVAILABLE),
    (CorruptStateError, CORRUPT),
)


def code_of(error: BucketQError) -> int:
    """The exit code of a command that ended with this error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)
