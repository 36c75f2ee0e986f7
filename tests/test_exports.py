"""What ``import bucketq`` offers, name by name: a change here is a change for every user."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest

import bucketq
from bucketq import BucketQError
from tests.environ import SPILL_BYTES

EXPORTS = [
    "AccessDeniedError",
    "Archive",
    "AuditEntry",
    "Backoff",
    "Batch",
    "BatchCounts",
    "BatchInfo",
    "BatchNotFoundError",
    "BatchState",
    "BlockingBatch",
    "BlockingQueue",
    "BucketQError",
    "Change",
    "ChangeRequest",
    "ClosedError",
    "CommitStats",
    "ConsumerFencedError",
    "ConsumerInfo",
    "ConsumerState",
    "Context",
    "CorruptStateError",
    "DependencyNotFoundError",
    "Failure",
    "FoundQueue",
    "GiveUp",
    "HistoryGapError",
    "HistoryRange",
    "InvalidRequestError",
    "Job",
    "JobBatch",
    "JobCancelled",
    "JobCancelledError",
    "JobChange",
    "JobExpiredError",
    "JobFailedError",
    "JobGoneError",
    "JobId",
    "JobNotFoundError",
    "JobPage",
    "JobSpec",
    "KeyConflictError",
    "LeaseLostError",
    "LeaseRef",
    "LimitInfo",
    "NewerFormatError",
    "NotDurableError",
    "OverloadedError",
    "PayloadError",
    "PayloadLostError",
    "PayloadTooLargeError",
    "Progress",
    "Pulse",
    "PushOptions",
    "Queue",
    "QueueFullError",
    "QueueNotFoundError",
    "RejectedError",
    "Retry",
    "Schedule",
    "ScheduleNotFoundError",
    "ScheduleOptions",
    "Settings",
    "SettledJob",
    "Snapshot",
    "Snooze",
    "Stats",
    "StatsSample",
    "StoreRefusedError",
    "SupersededError",
    "Tls",
    "TokenInfo",
    "UnavailableError",
    "UploadExpiredError",
    "Worker",
    "WorkerInfo",
    "WorkerNotFoundError",
    "connect",
    "connect_sync",
    "list_queues",
    "open_archive",
]


def test_the_public_names_are_these() -> None:
    assert bucketq.__all__ == EXPORTS


def test_every_public_name_is_there_and_says_what_it_is_for() -> None:
    for name in bucketq.__all__:
        assert (inspect.getdoc(getattr(bucketq, name)) or "").strip(), name


@pytest.mark.skipif(bool(SPILL_BYTES), reason="what makes queues deep imports modules itself")
def test_importing_the_package_imports_nothing_else() -> None:
    """Ctrl-C during a long import would print a traceback, and short commands would be slow."""
    program = (
        "import sys; before = set(sys.modules); import bucketq; "
        "print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["__future__", "bucketq"], ran


def test_the_version_is_that_of_the_installed_package() -> None:
    assert bucketq.__version__ == version("bucketq")
    assert {"__version__", *bucketq.__all__} <= set(dir(bucketq))


def test_a_name_that_does_not_exist_is_reported_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'bucketq' has no attribute 'conect'"):
        bucketq.conect  # type: ignore[attr-defined]  # noqa: B018 - mypy rejects it too


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


def test_the_public_names_for_spark_are_these_and_cost_no_spark() -> None:
    names = [
        *("StreamBatch", "compact", "export_metrics", "finish", "for_each_batch", "page"),
        *("register", "replay", "report", "run", "settle"),
    ]
    look = (
        "import sys, bucketq.spark as spark; "
        f"assert spark.__all__ == {names}; "
        "assert all(callable(getattr(spark, name)) for name in spark.__all__); "
        "assert all(getattr(spark, name).__doc__ for name in spark.__all__); "
        "print(*sorted({'pyspark', 'pyarrow', 'py4j', 'pandas'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "\n"), ran
