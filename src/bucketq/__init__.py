"""bucketq: a distributed job queue whose whole state is one JSON object on object storage."""

from bucketq.client.archive import Archive, open_archive
from bucketq.client.blocking import BlockingQueue, connect_sync
from bucketq.client.connect import connect
from bucketq.errors import (
    AccessDeniedError,
    BucketQError,
    ClosedError,
    ConsumerFencedError,
    CorruptStateError,
    InvalidRequestError,
    JobGoneError,
    JobNotFoundError,
    KeyConflictError,
    LeaseLostError,
    NewerFormatError,
    NotDurableError,
    OverloadedError,
    PayloadError,
    PayloadTooLargeError,
    QueueFullError,
    QueueNotFoundError,
    RejectedError,
    StoreRefusedError,
    SupersededError,
    UnavailableError,
)
from bucketq.model.bulk import BatchState, ConsumerInfo, ConsumerState
from bucketq.model.job import Backoff, Failure
from bucketq.model.operations import LeaseRef, Pulse, Snapshot, Stats
from bucketq.model.settings import Settings
from bucketq.model.tokens import TokenInfo
from bucketq.queue.base import Queue
from bucketq.queue.job import Job, JobBatch, JobPage, JobSpec
from bucketq.rpc.credentials import Tls
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import GiveUp, JobCancelled, Retry
from bucketq.worker.worker import Worker

__all__ = [
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
    "NotDurableError",
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
