"""What ``import bucketq`` offers, name by name: a change here is a change for every user."""

from __future__ import annotations

import inspect

import bucketq
from bucketq import BucketQError

EXPORTS = [
    "AccessDeniedError",
    "Archive",
    "Backoff",
    "BatchState",
    "BlockingQueue",
    "BucketQError",
    "ClosedError",
    "ConsumerFencedError",
    "ConsumerInfo",
    "ConsumerState",
    "Context",
    "CorruptStateError",
    "Failure",
    "GiveUp",
    "InvalidRequestError",
    "Job",
    "JobBatch",
    "JobCancelled",
    "JobGoneError",
    "JobNotFoundError",
    "JobPage",
    "JobSpec",
    "KeyConflictError",
    "LeaseLostError",
    "LeaseRef",
    "NewerFormatError",
    "OverloadedError",
    "PayloadError",
    "PayloadTooLargeError",
    "Pulse",
    "Queue",
    "QueueFullError",
    "QueueNotFoundError",
    "RejectedError",
    "Retry",
    "Settings",
    "Snapshot",
    "Stats",
    "StoreRefusedError",
    "SupersededError",
    "Tls",
    "TokenInfo",
    "UnavailableError",
    "Worker",
    "connect",
    "connect_sync",
    "open_archive",
]


def test_the_public_names_are_these() -> None:
    assert bucketq.__all__ == EXPORTS


def test_every_public_name_is_there_and_says_what_it_is_for() -> None:
    for name in bucketq.__all__:
        assert (inspect.getdoc(getattr(bucketq, name)) or "").strip(), name


def test_every_error_that_is_raised_on_purpose_has_a_public_name() -> None:
    errors = {
        member
        for member in vars(bucketq.errors).values()
        if inspect.isclass(member) and issubclass(member, BucketQError)
    }
    assert errors == {
        member
        for name in bucketq.__all__
        if inspect.isclass(member := getattr(bucketq, name)) and issubclass(member, BucketQError)
    }


def test_an_error_is_caught_by_what_the_caller_does_about_it() -> None:
    branches = {
        bucketq.UnavailableError,
        bucketq.SupersededError,
        bucketq.RejectedError,
        bucketq.CorruptStateError,
    }
    assert set(BucketQError.__subclasses__()) >= branches
    for branch in branches:
        assert sum(issubclass(branch, other) for other in branches) == 1
