"""Every request to a queue, as data.

One union of operations and one ``apply`` serve the direct queue, group commit, the wire, the
simulator and the benchmarks, so that each operation is written once. What is random or
local comes in with the operation (a job's id, a claim's secret); what depends on the order of
commits is decided by ``apply``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Raw, Struct, field

from bucketq.model.audit_records import ReadAudit
from bucketq.model.base import NewJob, Operation
from bucketq.model.history import HISTORY_CHANGES, PAST_READS, AnyHistory
from bucketq.model.job_batches import AnyBatch, ReadBatches
from bucketq.model.limits import AnyLimit, ReadLimits
from bucketq.model.numbered_batches import BATCH_CLAIMS, BATCH_READS, AnyBatchClaim, AnyNumbered
from bucketq.model.outbox import AnyOutbox, Archived, ReadOutbox
from bucketq.model.records import NOTHING, Encoding, JobRecord, Progress, Status
from bucketq.model.reservations import RESERVATIONS, AnyReservation
from bucketq.model.results import AnyWait, FindArchived, Wait
from bucketq.model.schedules import AnySchedule, Fire, ReadSchedules
from bucketq.model.segments import SEGMENT_CHANGES, AnySegmentChange, WrittenRows
from bucketq.model.settings import Settings
from bucketq.model.side_objects import TRANSFERS, AnySideObject, StageObject
from bucketq.model.tokens import Right, repr_without_digest
from bucketq.model.worker_records import Announce, AnyWorker, ReadWorkers


class LeaseRef(Struct, frozen=True, gc=False):
    """A job and the lease under which a worker holds it."""

    job: str
    lease: str


class Push(Operation, frozen=True):
    """Add jobs, all or none. Answers their ids."""

    jobs: tuple[NewJob, ...]


class Claim(Operation, frozen=True):
    """Take up to ``limit`` jobs of ``kinds`` (none given: of any). Answers the jobs."""

    worker: str
    secret: str
    """128 random bits; each lease is a hash of it, the job and the attempt."""
    kinds: tuple[str, ...] = ()
    limit: int = 1
    wait_s: float = 0.0
    """How long the committer may park it until there is a job. ``apply`` never waits."""
    lease_s: float | None = None
    """How long the worker of these attempts may be silent; None: as the settings say."""


class Heartbeat(Operation, frozen=True):
    """Report that jobs are still being worked on. Answers a ``Pulse`` for each."""

    leases: tuple[LeaseRef, ...]
    progress: dict[str, Progress] = field(default_factory=dict)
    """How far some of them have come, by job."""


class Complete(Operation, frozen=True):
    """Finish a job."""

    job: str
    lease: str
    result: Raw = NOTHING
    result_encoding: Encoding | None = None
    follow_ups: tuple[NewJob, ...] = ()
    """Jobs that are pushed in the same commit if it is granted, and only then."""


class Completion(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One job that is finished, among several."""

    job: str
    lease: str
    result: Raw = NOTHING
    result_encoding: Encoding | None = None
    follow_ups: tuple[NewJob, ...] = ()


class CompleteMany(Operation, frozen=True):
    """Finish jobs. Answers for each whether it is finished, or its lease was lost."""

    jobs: tuple[Completion, ...]


class Fail(Operation, frozen=True):
    """Report that an attempt failed. Answers the status that the job has now."""

    job: str
    lease: str
    error: str
    retry: bool = True
    """False: do not retry it, whatever attempts are left."""
    delay_s: float | None = None
    """How long it waits before it is retried; None: as its backoff says."""
    max_attempts: int | None = None
    """How many failures and lost leases the job may have from now on, if it does not say itself."""
    snooze: bool = False
    """It did not fail: it is put off for ``delay_s``, at no cost to its attempts, up to
    ``MAX_SNOOZES`` times. From then on it is a failure."""


class Release(Operation, frozen=True):
    """Release a job, at no cost to its attempts."""

    job: str
    lease: str
    delay_s: float = 0.0


class Withdraw(Operation, frozen=True):
    """Undo a claim whose caller is gone: it waits no longer, and its jobs are released.

    Answers how many jobs were released. The claim is named by the id of its request; its secret
    proves that it is the caller's own.
    """

    session: str
    number: int
    secret: str


class ReleaseMany(Operation, frozen=True):
    """Release jobs. Answers for each whether it was held, or its lease was lost."""

    leases: tuple[LeaseRef, ...]
    delay_s: float = 0.0


CancelAnswer = Literal["cancelled", "requested", "finished"]
"""It is cancelled, now or before; its worker was asked to stop; it has ended in another way."""


class Cancel(Operation, frozen=True):
    """Cancel a job. Answers ``cancelled``, ``requested`` (it is running) or ``finished``."""

    job: str


class SetPriority(Operation, frozen=True):
    """Give a job that waits another priority; it keeps its number."""

    job: str
    priority: int


class Redrive(Operation, frozen=True):
    """Queue dead jobs again, oldest first. Answers how many."""

    jobs: tuple[str, ...] = ()
    """Only these; none given: all that ``kinds`` allows."""
    kinds: tuple[str, ...] = ()
    limit: int = 0
    """At most this many; 0: all."""


class Purge(Operation, frozen=True):
    """Finish dead jobs; they leave for the archive. Answers how many."""

    jobs: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    older_than_s: float = 0.0
    limit: int = 0
    """At most this many, oldest first; 0: all."""


class Pause(Operation, frozen=True):
    """Hand out no jobs of a kind, or none at all. Running jobs continue."""

    kind: str | None = None


class Resume(Operation, frozen=True):
    """Undo a pause of a kind, or every pause."""

    kind: str | None = None


class Configure(Operation, frozen=True):
    """Change settings. Answers all of them."""

    changes: dict[str, Any]


class GrantToken(Operation, frozen=True):
    """Accept clients that show a token with this digest. Answers a ``TokenInfo``."""

    id: str
    name: str
    digest: str
    """Only the digest is sent; the secret stays with the maker of the token."""
    rights: tuple[Right, ...]
    ttl_s: float = 0.0
    """How long it is valid, counted from the commit; 0: for ever."""

    def __repr__(self) -> str:
        """Leave the digest out."""
        return repr_without_digest(self)


class RevokeToken(Operation, frozen=True):
    """Revoke a token. Answers whether there was one."""

    id: str


class Expire(Operation, frozen=True):
    """End the lease of a silent worker, which the writer has found to be silent for too long."""

    job: str
    attempt: int


class Silence(Struct, frozen=True, gc=False):
    """How long a worker has been silent about a job, by the clock of the broker."""

    job: str
    attempt: int
    silent_s: float
    progress: Progress | None = None


class Persist(Operation, frozen=True):
    """Record the heartbeats that a broker received, for its successor."""

    silences: tuple[Silence, ...]


class Lead(Operation, frozen=True):
    """Become the broker of a queue that no other has taken since epoch ``after``.

    Answers the ``BrokerRecord``. It is rejected with ``SupersededError`` if another was first.
    """

    id: str
    address: str
    host: str
    after: int
    tls: bool = False


class Retire(Operation, frozen=True):
    """Stop being the broker, unless another has taken over already. Answers whether it was."""

    id: str
    epoch: int


class NoteTime(Operation, frozen=True):
    """Record the clock of the writer, so that ages are judged by several clocks."""


class Tidy(Operation, frozen=True):
    """Drop what has outlived its retention: keys, sessions, tokens, consumers, dead jobs, ..."""


class Get(Operation, frozen=True):
    """Read one job."""

    job: str


class List(Operation, frozen=True):
    """Read a page of jobs in the order of their pushes. Answers a ``Page``."""

    statuses: tuple[Status, ...] = ()
    kinds: tuple[str, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    batch_id: str = ""
    """Only jobs of this batch; empty: any."""
    after: int = 0
    """The ``seq`` of the last job of the page before."""
    limit: int = 100


class ReadStats(Operation, frozen=True):
    """Count the jobs. Answers ``Stats``."""

    samples: bool = False
    """Whether a broker adds what it counted before."""


class ReadSnapshot(Operation, frozen=True):
    """Read everything at one version. Answers a ``Snapshot``."""


class ReadTokens(Operation, frozen=True):
    """Read the valid tokens. Answers a ``TokenInfo`` for each, in order."""


AnyOperation = (
    Push
    | Claim
    | Heartbeat
    | Complete
    | CompleteMany
    | Fail
    | Release
    | Withdraw
    | ReleaseMany
    | Cancel
    | SetPriority
    | Redrive
    | Purge
    | Pause
    | Resume
    | Configure
    | GrantToken
    | RevokeToken
    | Expire
    | Persist
    | Lead
    | Retire
    | NoteTime
    | Tidy
    | Get
    | List
    | ReadStats
    | ReadSnapshot
    | ReadTokens
    | AnyNumbered
    | AnyReservation
    | AnySchedule
    | AnyLimit
    | AnyBatch
    | AnySegmentChange
    | AnyHistory
    | AnyWait
    | AnySideObject
    | AnyOutbox
    | AnyWorker
    | ReadAudit
)

AnyClaim = Claim | AnyBatchClaim
CLAIMS = (Claim, *BATCH_CLAIMS)
"""Operations that hand out jobs."""

WAITING = (Claim, Wait)
"""Operations that a committer may park, for up to ``wait_s``."""

READS = (
    *(ReadOutbox, Get, List, ReadStats, ReadSnapshot),
    *(ReadTokens, *BATCH_READS, ReadSchedules, ReadLimits, ReadBatches),
    *(Wait, StageObject, ReadWorkers, ReadAudit),
)
"""Operations that change nothing."""

HISTORY_READS = (*PAST_READS, FindArchived)
"""Reads of what is not in the state: committers answer them by themselves."""

REPEATABLE = (
    *READS,
    *HISTORY_READS,
    *TRANSFERS,
    *(*BATCH_CLAIMS, Heartbeat, Announce, Withdraw),
    *(Expire, Persist, Lead, Retire, NoteTime, Tidy, Archived),
    *RESERVATIONS,
    Fire,
    *SEGMENT_CHANGES,
    *HISTORY_CHANGES,
)
"""Operations that are idempotent by themselves: they need no id, and are not recorded."""


class Request(Struct, frozen=True, gc=False, omit_defaults=True):
    """An operation with the id that its client gave it.

    A retry has the same ``session`` and ``number``, and ``since``: a version of the object at
    which it had certainly not been applied. ``REPEATABLE`` operations need no id.
    """

    operation: AnyOperation
    session: str = ""
    number: int = 0
    acknowledged_below: int = 0
    since: int | None = None
    made_ms: int | None = None
    """When its client made it. Only the token for a retry carries it: the ids of pushed jobs begin
    with this time. It is never sent, and nothing is decided by it."""
    written: WrittenRows | None = None
    """Where the committer has put rows of a large push; it is never sent. None: it has not tried
    to. Rows that are in no segment go to the object."""
    numbers: tuple[int, ...] = ()
    """The numbers of requests that are joined in this one, if it is several: the operation has one
    job for each (a claim: ``limit``), and ``number`` is the first. ``Push`` and ``CompleteMany``
    stand for single pushes and completions. All are granted, or none."""
    counts: tuple[int, ...] = ()
    """How many jobs each of the joined pushes has, in a row; nothing: one each."""


class Pulse(Struct, frozen=True, gc=False):
    """The answer to a heartbeat of one job."""

    job: str
    held: bool
    """False: the lease is lost, stop working on it."""
    cancel_requested: bool = False


class Page(Struct, frozen=True):
    """Some jobs, and the start of the next page (None: there is none)."""

    jobs: tuple[JobRecord, ...]
    next_after: int | None


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything at one version."""

    version: int
    incarnation: str
    at: datetime
    settings: Settings
    paused: bool
    paused_kinds: tuple[str, ...]
    jobs: tuple[JobRecord, ...]
