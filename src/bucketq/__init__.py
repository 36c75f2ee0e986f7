"""bucketq: a distributed job queue on object storage, in one JSON object and files beside it.

A name is imported when it is first used, so that ``import bucketq`` costs next to nothing: a
short command, or a process that is given handlers, needs only a few of them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # As in typing, which this need not import.
if TYPE_CHECKING:
    from bucketq.client.archive import Archive, open_archive
    from bucketq.client.blocking import connect_sync
    from bucketq.client.blocking_batch import BlockingBatch
    from bucketq.client.blocking_queue import BlockingQueue
    from bucketq.client.connect import connect
    from bucketq.client.queue_listing import list_queues
    from bucketq.errors import (
        AccessDeniedError,
        BatchNotFoundError,
        BucketQError,
        ClosedError,
        ConsumerFencedError,
        CorruptStateError,
        DependencyNotFoundError,
        HistoryGapError,
        InvalidRequestError,
        JobCancelledError,
        JobExpiredError,
        JobFailedError,
        JobGoneError,
        JobNotFoundError,
        KeyConflictError,
        LeaseLostError,
        NewerFormatError,
        NotDurableError,
        OverloadedError,
        PayloadError,
        PayloadLostError,
        PayloadTooLargeError,
        QueueFullError,
        QueueNotFoundError,
        RejectedError,
        ScheduleNotFoundError,
        StoreRefusedError,
        SupersededError,
        UnavailableError,
        UploadExpiredError,
        WorkerNotFoundError,
    )
    from bucketq.model.audit_records import AuditEntry
    from bucketq.model.job_ids import JobId
    from bucketq.model.limits import LimitInfo
    from bucketq.model.numbered_batches import (
        BatchState,
        ConsumerInfo,
        ConsumerState,
        SettledJob,
    )
    from bucketq.model.operations import LeaseRef, Pulse, Snapshot
    from bucketq.model.queue_stats import CommitStats, Stats, StatsSample
    from bucketq.model.records import Backoff, BatchCounts, Failure, Progress
    from bucketq.model.settings import Settings
    from bucketq.model.tokens import TokenInfo
    from bucketq.model.worker_records import WorkerInfo
    from bucketq.queue.change import Change, ChangeRequest, HistoryRange, JobChange
    from bucketq.queue.job import Job, JobBatch, JobPage
    from bucketq.queue.job_batch import Batch, BatchInfo
    from bucketq.queue.push_options import JobSpec, PushOptions
    from bucketq.queue.queue import Queue
    from bucketq.queue.schedule import Schedule, ScheduleOptions
    from bucketq.rpc.credentials import Tls
    from bucketq.store.queue_search import FoundQueue
    from bucketq.worker.context import Context
    from bucketq.worker.handler_exceptions import GiveUp, JobCancelled, Retry, Snooze
    from bucketq.worker.worker import Worker

__all__ = [
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

__version__: str

_NAMES = {
    "bucketq.client.archive": "Archive open_archive",
    "bucketq.client.blocking": "connect_sync",
    "bucketq.client.blocking_batch": "BlockingBatch",
    "bucketq.client.blocking_queue": "BlockingQueue",
    "bucketq.client.connect": "connect",
    "bucketq.client.queue_listing": "list_queues",
    "bucketq.model.audit_records": "AuditEntry",
    "bucketq.model.job_ids": "JobId",
    "bucketq.model.numbered_batches": "BatchState ConsumerInfo ConsumerState SettledJob",
    "bucketq.model.records": "Backoff BatchCounts Failure Progress",
    "bucketq.model.operations": "LeaseRef Pulse Snapshot",
    "bucketq.model.queue_stats": "CommitStats Stats StatsSample",
    "bucketq.model.settings": "Settings",
    "bucketq.model.tokens": "TokenInfo",
    "bucketq.model.worker_records": "WorkerInfo",
    "bucketq.queue.queue": "Queue",
    "bucketq.queue.change": "Change ChangeRequest HistoryRange JobChange",
    "bucketq.queue.job": "Job JobBatch JobPage",
    "bucketq.queue.job_batch": "Batch BatchInfo",
    "bucketq.queue.push_options": "JobSpec PushOptions",
    "bucketq.model.limits": "LimitInfo",
    "bucketq.queue.schedule": "Schedule ScheduleOptions",
    "bucketq.rpc.credentials": "Tls",
    "bucketq.worker.context": "Context",
    "bucketq.worker.handler_exceptions": "GiveUp JobCancelled Retry Snooze",
    "bucketq.store.queue_search": "FoundQueue",
    "bucketq.worker.worker": "Worker",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
"""The module of each public name but the errors, which are all in ``bucketq.errors``."""


if not TYPE_CHECKING:  # Or a type checker would accept any name.

    def __getattr__(name: str) -> object:
        """Import a public name; Python asks here for what the module does not have yet."""
        if name == "__version__":
            from importlib.metadata import version

            found = version("bucketq")
        elif name in __all__:
            from importlib import import_module

            found = getattr(import_module(_MODULES.get(name, "bucketq.errors")), name)
        else:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
