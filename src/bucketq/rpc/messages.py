"""The messages between clients and brokers, independent of the transport.

A client opens a connection for one queue (``Hello``, answered by ``Welcome``) and sends calls, many
in one message. Answers come in any order, each with the tag of its call. A call carries the request
exactly as it is applied, including its id, so that it can be retried at this broker or another and
is applied at most once.

A ``Ping`` needs no connection. A broker answers it from memory, at once, even if its storage is
slow, so that clients can distinguish it from a dead one.

These are plain values. The receiver checks every message.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from bucketq.model import (
    audit_records,
    history,
    job_batches,
    limits,
    numbered_batches,
    results,
    schedules,
    side_objects,
    worker_records,
)
from bucketq.model import operations as ops
from bucketq.model.operations import Request

Role = Literal["leading", "cut off", "standing by", "retired"]
"""What a broker is for a queue. Cut off: it led, and can no longer prove that it does."""


OFFERED = (
    ops.Push,
    ops.Claim,
    ops.Heartbeat,
    ops.Complete,
    ops.CompleteMany,
    ops.Fail,
    ops.Release,
    ops.Withdraw,
    ops.ReleaseMany,
    ops.Cancel,
    ops.SetPriority,
    ops.Redrive,
    ops.Purge,
    ops.Pause,
    ops.Resume,
    ops.Configure,
    ops.Get,
    ops.List,
    ops.ReadStats,
    ops.ReadSnapshot,
    ops.GrantToken,
    ops.RevokeToken,
    ops.ReadTokens,
    numbered_batches.OpenConsumer,
    numbered_batches.ClaimBatch,
    numbered_batches.PrepareBatch,
    numbered_batches.ReadBatch,
    numbered_batches.AckBatch,
    numbered_batches.ReleaseBatch,
    numbered_batches.SettleBatch,
    numbered_batches.ReadConsumers,
    numbered_batches.RemoveConsumer,
    numbered_batches.Publish,
    history.ReadChanges,
    history.ReadCopy,
    history.ForgetHistory,
    results.Wait,
    results.FindArchived,
    schedules.SetSchedule,
    schedules.RemoveSchedule,
    schedules.PauseSchedule,
    schedules.ResumeSchedule,
    schedules.RunSchedule,
    schedules.ReadSchedules,
    limits.SetLimit,
    limits.RemoveLimit,
    limits.ReadLimits,
    side_objects.StageObject,
    side_objects.PutPart,
    side_objects.KeepObject,
    side_objects.ReadPart,
    job_batches.OpenBatch,
    job_batches.CloseBatch,
    job_batches.CancelBatch,
    job_batches.CancelJobs,
    job_batches.ReadBatches,
    worker_records.Announce,
    worker_records.DrainWorker,
    worker_records.ReadWorkers,
    audit_records.ReadAudit,
)
"""Operations that clients may send. The others are used by brokers only."""

ADDED = (
    *("release_many", "parts", "withdraw", "unique", "expiry", "snooze", "follow_ups"),
    *("groups", "payloads", "batches", "after", "jobs_of_batch", "ack_and_claim", "joined"),
    *("prepare_batch", "columns", "joined_batches"),
)
"""Features that the first brokers did not have, by their names on the wire: operations, that a
large message may come in parts, what jobs may be (unique, expiring, put off, of a group or a batch,
held back for others), jobs that a completion pushes, large payloads, that a claim of a batch may
acknowledge the one before, requests that are joined in one, batches that are prepared, and jobs and
completions that come by columns."""


class FlushArchive(Struct, frozen=True, tag="flush_archive"):
    """Archive all jobs that are finished now. The answer is how many were archived.

    A broker does that outside ``apply``, so it is not an operation of the model.
    """


class Hello(Struct, frozen=True, kw_only=True):
    """The first message of a connection: which queue, and which broker the client expects."""

    queue: str = ""
    """The name under which the broker serves the queue; may be empty if ``incarnation`` is set."""
    incarnation: str = ""
    """Which queue exactly, for clients that have read its object; empty: any with that name."""
    broker: str = ""
    """The id of the broker that the object names; empty: any."""
    client: str = ""
    """A name for the client, for logs."""
    token_id: str = ""
    """The id of the token that the client shows once the broker has proved itself; or empty."""
    partitions: int = 0
    """How many partitions the client knows the queue to have; 0: none."""
    nonce: bytes = b""
    """Random bytes, drawn for this connection, that the proof must cover."""
    token: str = ""
    """The token itself, in a unary call, which has no second message."""

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"Hello(queue={self.queue!r}, client={self.client!r}, token_id={self.token_id!r})"


class Welcome(Struct, frozen=True, kw_only=True):
    """The first answer of a broker that leads the queue."""

    incarnation: str
    broker: str
    epoch: int
    version: int
    """The version of the object that it has last seen or written."""
    proof: bytes = b""
    """Proves that it knows the digest of the named token; empty if none was named."""
    operations: tuple[str, ...] = ADDED
    """Which of ``ADDED`` it knows."""


class Call(Struct, frozen=True, gc=False):
    """One request to a broker."""

    tag: int
    """The client's own number for it, which comes back with the answer."""
    request: Request | FlushArchive
    ttl_s: float
    """How long the client waits for the answer. After that, the request is dropped if it was not
    applied yet."""


class Refusal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as data; ``refusals`` converts between the two."""

    kind: str
    """The name of the class in ``bucketq.errors``."""
    message: str
    retry_after_s: float | None = None
    """With ``OverloadedError``: how long to wait before a retry."""
    leader: str | None = None
    """With ``SupersededError``: the address of the broker that leads now, if it is known."""
    is_repeatable: bool = False
    """With ``UnavailableError``: whether a retry of the same request will get an answer."""


class Answer(Struct, frozen=True, gc=False):
    """The outcome of one call."""

    tag: int
    value: Any = None
    refusal: Refusal | None = None


class Answers(Struct, frozen=True):
    """Answers that are sent together, and the current version of the queue."""

    answers: list[Answer]
    version: int = 0


class Ping(Struct, frozen=True, kw_only=True):
    """Asks whether a broker serves this queue."""

    queue: str = ""
    incarnation: str = ""
    leads: int | None = None
    """How many queues the server that asks leads, if it stands by and shares them with others."""


class Pong(Struct, frozen=True, kw_only=True):
    """The answer of a broker that knows the queue, with its role."""

    incarnation: str
    broker: str
    """The id of the broker that answers."""
    role: Role
    epoch: int
    """The newest epoch that it knows; its own if it leads."""
    version: int = 0
    commit_age_s: float = 0.0
    """How long its write in flight has had no answer; large if the storage is slow."""
    leader: str = ""
    """The address of the broker that leads, if it is known."""
    partitions: int = 0
    """How many partitions the queue has; 0: none."""
