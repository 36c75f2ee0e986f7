"""A job as its user sees it: the record in the object, with its payload as a typed value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from msgspec import Struct

from bucketq.errors import PayloadError, PayloadLostError
from bucketq.model.operations import LeaseRef
from bucketq.model.records import (
    Backoff,
    BatchCounts,
    Failure,
    JobRecord,
    Outcome,
    Progress,
    Status,
)
from bucketq.model.side_objects import is_side, read_ref
from bucketq.queue import payload as payloads

if TYPE_CHECKING:
    from bucketq.queue.large.payload_stream import PayloadStream  # It imports asyncio.

T = TypeVar("T")

OpenPayload = Callable[["Job[Any]"], "PayloadStream"]

FETCH_BYTES = 16 * 1024 * 1024
"""Up to this size a claim fetches payloads: memory holds one for each job of a worker."""
_UNREAD = object()
"""Stands for a payload that was not decoded yet."""


class Job(Generic[T]):
    """A job at the moment at which it was read or claimed. It does not change by itself.

    ``payload`` is decoded when it is first asked for, so that a payload that does not fit its
    type fails only when it is read.
    """

    def __init__(
        self, record: JobRecord, payload_type: Any, open_payload: OpenPayload | None = None
    ) -> None:
        """Wrap a record; ``payload_type`` is what its payload is decoded into."""
        self.record = record
        self._payload_type = payload_type
        self._open_payload = open_payload
        self._payload: Any = _UNREAD
        self._lost: Exception | None = None
        """Why a large payload could not be fetched."""

    def __repr__(self) -> str:
        """Name the job, without its payload, which may be large or secret."""
        record = self.record
        return f"<Job {record.id} {record.kind} {record.status} attempt {record.attempt}>"

    def __eq__(self, other: object) -> bool:
        """Jobs are equal if their records are."""
        return isinstance(other, Job) and other.record == self.record

    def __hash__(self) -> int:
        """Hash by what never changes."""
        return hash(self.record.id)

    @property
    def payload(self) -> T:
        """What was pushed.

        Raises:
            PayloadError: It is not of the queue's type; or it is large, and was not fetched: only
                a claim does that, up to 16 MiB. ``open_payload`` reads it.
            PayloadLostError: It is large, and missing or damaged.
        """
        # Not a cached_property, which takes a lock, and costs more than decoding a short payload.
        if self._payload is _UNREAD:
            record = self.record
            what = f"payload of job {record.id}"
            if is_side(record.payload_encoding):
                self._raise_unfetched(what)
            self._payload = payloads.decode(
                record.payload, record.payload_encoding, self._payload_type, what
            )
        value: T = self._payload
        return value

    @cached_property
    def result(self) -> Any:
        """What ``complete`` was given, as plain values; None if there is none.

        Raises ``PayloadError`` if it is large: ``Queue.wait`` and ``Queue.open_result`` read it.
        """
        record = self.record
        what = f"result of job {record.id}"
        if is_side(record.result_encoding):
            message = f"{what} is large: read it with `queue.wait` or `queue.open_result`"
            raise PayloadError(message)
        return payloads.decode_result(record.result, record.result_encoding, what)

    def open_payload(self) -> PayloadStream:
        """Return the payload in chunks, whatever its size: the bytes that were pushed, or its JSON.

        ``async for chunk in job.open_payload()``; or ``for``, in a thread or without asyncio.

        Raises:
            PayloadLostError: It is missing or damaged.
        """
        if self._open_payload is None:
            message = f"the payload of job {self.id} cannot be read here: use `queue.open_payload`"
            raise PayloadError(message)
        return self._open_payload(self)

    def as_type(self, payload_type: Any) -> Job[Any]:
        """Return the same job with its payload decoded into another type."""
        job: Job[Any] = Job(self.record, payload_type, self._open_payload)
        job._lost = self._lost
        return job

    @property
    def is_unfetched(self) -> bool:
        """Whether its payload is large and not here, and a claim fetches it."""
        record = self.record
        encoding = record.payload_encoding
        if encoding is None or not is_side(encoding) or self._lost is not None:
            return False
        try:
            return read_ref(record.payload, "payload").bytes <= FETCH_BYTES
        except PayloadError:
            return True

    def lose_payload(self, reason: Exception) -> None:
        """Note why its payload cannot be read: asking for it raises that."""
        self._lost = reason

    def _raise_unfetched(self, what: str) -> NoReturn:
        if self._lost is not None:
            raise self._lost
        ref = read_ref(self.record.payload, what)
        is_here = self._open_payload is not None  # It was not wanted yet, and can be read.
        if ref.bytes <= FETCH_BYTES and self.record.lease is not None and not is_here:
            message = f"{what} is lost: the side object {ref.object} could not be fetched"
            raise PayloadLostError(message)
        message = f"{what} has {ref.bytes:,} bytes and was not fetched: read it with `open_payload`"
        raise PayloadError(message)

    @property
    def id(self) -> str:
        """Its id."""
        return self.record.id

    @property
    def kind(self) -> str:
        """Which handler it is for."""
        return self.record.kind

    @property
    def status(self) -> Status:
        """Where it is in its life."""
        return self.record.status

    @property
    def attempt(self) -> int:
        """How often it was claimed, this time included; pass it on to systems that you write to."""
        return self.record.attempt

    @property
    def failures(self) -> int:
        """How often a worker reported that it failed, since it was pushed or redriven."""
        return self.record.failures

    @property
    def lost_leases(self) -> int:
        """How often its worker fell silent, since it was pushed or redriven."""
        return self.record.lost_leases

    @property
    def snoozes(self) -> int:
        """How often it was put off at no cost, since it was pushed or redriven."""
        return self.record.snoozes

    @property
    def max_attempts(self) -> int | None:
        """How many failures and lost leases it may have; None: what the settings say."""
        return self.record.max_attempts

    @property
    def backoff(self) -> Backoff | None:
        """How long it waits after a failure; None: what the settings say."""
        return self.record.backoff

    @property
    def priority(self) -> int:
        """Lower goes first."""
        return self.record.priority

    @property
    def worker(self) -> str | None:
        """The name of the worker that holds it."""
        return self.record.worker

    @property
    def tags(self) -> dict[str, str]:
        """Its tags."""
        return dict(self.record.tags or {})

    @property
    def key(self) -> str | None:
        """Its idempotency key."""
        return self.record.key

    @property
    def unique(self) -> str | None:
        """Its unique name among the jobs of its kind."""
        return self.record.unique

    @property
    def expires_at(self) -> datetime | None:
        """When it ends as ``expired``, unless a worker has claimed it before."""
        return self.record.expires_at

    @property
    def group(self) -> str | None:
        """With which jobs it shares turns and limits; None: it has no group."""
        return self.record.group or None

    @property
    def batch_id(self) -> str | None:
        """The batch that it belongs to."""
        return self.record.batch_id

    @property
    def after(self) -> tuple[str, ...]:
        """The jobs that it still waits for; of a dead job, those that had not completed."""
        return self.record.after

    @property
    def is_held(self) -> bool:
        """Whether it is queued, and waits for other jobs."""
        return self.record.is_held

    @property
    def done_batch(self) -> BatchCounts | None:
        """The batch that it was pushed at the end of, and how the jobs of that have ended."""
        return self.record.done_batch

    @property
    def traceparent(self) -> str | None:
        """The span in which it was pushed, as W3C Trace Context writes it."""
        return self.record.traceparent

    @property
    def errors(self) -> tuple[Failure, ...]:
        """Its last failures, oldest first."""
        return self.record.errors

    @property
    def outcome(self) -> Outcome | None:
        """How it ended."""
        return self.record.outcome

    @property
    def pushed_at(self) -> datetime:
        """When it was pushed."""
        return self.record.pushed_at

    @property
    def run_at(self) -> datetime | None:
        """When it can be claimed at the earliest."""
        return self.record.run_at

    @property
    def claimed_at(self) -> datetime | None:
        """When it was last claimed."""
        return self.record.claimed_at

    @property
    def heartbeat_at(self) -> datetime | None:
        """When its last heartbeat came, by the clock of the process that recorded it."""
        return self.record.heartbeat_at

    @property
    def lease_s(self) -> float | None:
        """How long its worker may be silent; None: what the settings say."""
        return self.record.lease_s

    @property
    def progress(self) -> Progress | None:
        """How far its handler has come, as it reported; None: it has not, or does not run."""
        return self.record.progress

    @property
    def cancel_requested(self) -> bool:
        """Whether its worker was asked to stop."""
        return self.record.cancel_requested

    @property
    def finished_at(self) -> datetime | None:
        """When it became done, or dead."""
        return self.record.finished_at

    @property
    def lease(self) -> LeaseRef:
        """The lease of this attempt."""
        return LeaseRef(self.record.id, self.record.lease or "")


class JobPage(Struct, Generic[T], frozen=True):
    """Some jobs, and what to pass as ``after`` for the next page (None: there is none)."""

    jobs: tuple[Job[T], ...]
    next_after: int | None


class JobBatch(Struct, Generic[T], frozen=True):
    """A slice of a batch, in the order of its claim."""

    jobs: tuple[Job[T], ...]
    lost: tuple[str, ...]
    """The ids of jobs in the slice that no longer belong to the batch."""
    next_start: int | None
    """What to pass as ``start`` for the next slice; None: there is none."""
