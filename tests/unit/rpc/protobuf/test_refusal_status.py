"""Errors as statuses: what any client understands, and what ours needs to raise the same error."""

from __future__ import annotations

import pytest

from bucketq import errors
from bucketq.rpc.messages import Refusal
from bucketq.rpc.protobuf.refusal_status import code_of, details_of, metadata_of, read_refusal
from bucketq.rpc.refusals import error_of, refusal_of

CODES = {
    "BucketQError": "UNAVAILABLE",
    "UnavailableError": "UNAVAILABLE",
    "SupersededError": "ABORTED",
    "RejectedError": "FAILED_PRECONDITION",
    "InvalidRequestError": "INVALID_ARGUMENT",
    "PayloadLostError": "FAILED_PRECONDITION",
    "UploadExpiredError": "FAILED_PRECONDITION",
    "PayloadError": "INVALID_ARGUMENT",
    "PayloadTooLargeError": "INVALID_ARGUMENT",
    "QueueFullError": "RESOURCE_EXHAUSTED",
    "OverloadedError": "RESOURCE_EXHAUSTED",
    "KeyConflictError": "ALREADY_EXISTS",
    "JobNotFoundError": "NOT_FOUND",
    "JobFailedError": "FAILED_PRECONDITION",
    "JobCancelledError": "FAILED_PRECONDITION",
    "JobExpiredError": "FAILED_PRECONDITION",
    "LeaseLostError": "FAILED_PRECONDITION",
    "JobGoneError": "FAILED_PRECONDITION",
    "AccessDeniedError": "PERMISSION_DENIED",
    "ConsumerFencedError": "FAILED_PRECONDITION",
    "HistoryGapError": "FAILED_PRECONDITION",
    "QueueNotFoundError": "NOT_FOUND",
    "ScheduleNotFoundError": "NOT_FOUND",
    "BatchNotFoundError": "NOT_FOUND",
    "DependencyNotFoundError": "NOT_FOUND",
    "WorkerNotFoundError": "NOT_FOUND",
    "StoreRefusedError": "FAILED_PRECONDITION",
    "ClosedError": "FAILED_PRECONDITION",
    "CorruptStateError": "DATA_LOSS",
    "NewerFormatError": "DATA_LOSS",
    "NotDurableError": "DATA_LOSS",
}


def test_every_error_has_its_status() -> None:
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.BucketQError)
    }
    assert {name: code_of(refusal_of(kind("x"))) for name, kind in kinds.items()} == CODES


@pytest.mark.parametrize(
    "error",
    [
        errors.JobGoneError("lease lost"),
        errors.OverloadedError("slow down", retry_after_s=0.25),
        errors.SupersededError("gone", leader="10.0.0.1:7700"),
        errors.SupersededError("gone"),
        errors.UnavailableError("größer"),
    ],
    ids=repr,
)
def test_an_error_is_read_from_its_status(error: errors.BucketQError) -> None:
    refusal = refusal_of(error)
    read = read_refusal(details_of(refusal), metadata_of(refusal))
    assert read == refusal
    assert type(error_of(read)) is type(error)


def test_a_status_of_another_service_is_not_a_refusal() -> None:
    assert read_refusal("x", [("grpc-something", "y"), ("bin-bin", b"z")]) is None


def test_an_error_of_a_later_version_means_unknown() -> None:
    refusal = Refusal(kind="OfTomorrowError", message="x")
    assert code_of(refusal) == "UNAVAILABLE"
    assert type(error_of(refusal)) is errors.UnavailableError


def test_a_hint_that_is_not_a_number_is_left_out() -> None:
    metadata = [("bucketq-error", "OverloadedError"), ("bucketq-retry-after-ms", "soon")]
    assert read_refusal("x", metadata) == Refusal(kind="OverloadedError", message="x")


def test_details_are_cut_to_what_a_header_holds() -> None:
    details = details_of(Refusal(kind="RejectedError", message="ß" * 10_000))
    assert len(details.encode()) < 1600
    assert details.endswith("ß...")


def test_a_leader_that_no_header_can_hold_is_left_out() -> None:
    refusal = Refusal(kind="SupersededError", message="x", leader="h\n:1")
    assert metadata_of(refusal) == (("bucketq-error", "SupersededError"),)
