"""A job as the object holds it, and the statuses that it passes through.

::

            push                claim                 complete
    (none) ------> queued ---------------> running -----------> done
                   ^  ^  |                  | | |                ^
                   |  |  | cancel, expiry   | | | cancel asked,  |
                   |  |  +------------------|-|-+-- then the ----+
                   |  |     release, retry, | |     lease ends   |
                   |  +---- lease lost -----+ |                  |
                   |  redrive                 | no attempts left |
                   +------------------ dead <-+                  |
                                        |     purge, age         |
                                        +------------------------+

Records are immutable: a change makes a new one, so that an answer, a reader and the encoder
can share one without a copy.
"""

from datetime import datetime
from typing import Literal

from msgspec import Raw, Struct

Status = Literal["queued", "running", "done", "dead"]
Outcome = Literal["completed", "cancelled", "dead", "expired"]
Encoding = Literal["base64", "object", "object-bytes"]
"""How a payload or result is encoded, if it is not JSON as it is: bytes as base64, or a reference
to a side object that holds JSON or bytes."""
OnFailed = Literal["run"]
"""A job runs although a job that it waited for was not completed."""

Unknown = dict[str, Raw]
"""Fields of a row that this version of bucketq does not know."""

STATUSES: tuple[Status, ...] = ("queued", "running", "done", "dead")
NOTHING = Raw(b"")
"""A result that was not given; one object, so that the encoder leaves it out."""
HEARD = 0.0
"""The silence of a worker that was just heard; one object, so that the encoder leaves it out."""


MAX_SNOOZES = 100
"""How often a job is put off at no cost: enough to wait for hours, and a handler that always puts
its job off is noticed in the end."""


class Backoff(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """How long a failed job waits: ``base_s * factor ** (failures - 1)``, at most ``max_s``."""

    base_s: float = 1.0
    factor: float = 2.0
    max_s: float = 3600.0


class Failure(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a job's history: an error that a worker reported, or a lease that was lost."""

    at: datetime
    attempt: int
    cause: Literal["failed", "lost"]
    error: str
    worker: str | None = None


class Progress(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """How far the handler of a running job has come, as it says itself."""

    done: int | float
    total: int | float | None = None
    """What ``done`` will be at the end; None: it is not known."""
    note: str = ""
    """What is counted, or what is being done."""


class BatchCounts(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """How the jobs of a batch have ended."""

    id: str
    """The batch."""
    jobs: int = 0
    """How many jobs it has."""
    completed: int = 0
    cancelled: int = 0
    dead: int = 0
    expired: int = 0

    @property
    def failed(self) -> int:
        """How many ended without being completed."""
        return self.cancelled + self.dead + self.expired

    @property
    def open(self) -> int:
        """How many have not ended."""
        return self.jobs - self.completed - self.failed


class JobRecord(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One job, field for field as its line in the object."""

    id: str
    """Made by the client that pushes it, so that a retried push is recognised."""
    kind: str
    """Which handler it is for."""
    status: Status
    seq: int
    """Its place in the order of pushes, given at commit. It never changes."""
    payload: Raw
    """JSON; or a JSON string of base64 or a ``SideRef`` if ``payload_encoding`` says so."""
    pushed_at: datetime
    payload_encoding: Encoding | None = None
    priority: int = 0
    """Lower goes first; within a priority groups take turns, and in a group the smaller ``seq``."""
    run_at: datetime | None = None
    """Not to be claimed before. None: at once."""
    attempt: int = 0
    """How often it was claimed. It never falls, not even by a redrive."""
    failures: int = 0
    lost_leases: int = 0
    """With ``failures`` it meets ``max_attempts``; a redrive sets both to zero."""
    snoozes: int = 0
    """How often its handler put it off at no cost; a redrive sets it to zero."""
    max_attempts: int | None = None
    """None: what the queue's settings say."""
    backoff: Backoff | None = None
    """None: what the queue's settings say."""
    key: str | None = None
    tags: dict[str, str] | None = None
    unique: str | None = None
    """Its unique name among the jobs of its kind; None: it has none."""
    expires_at: datetime | None = None
    """If it was not claimed by then it never is. None: it waits for as long as it takes."""
    group: str = ""
    """With which jobs it shares turns and limits; empty: with all others that have no group."""
    lease: str | None = None
    """The token of the current attempt. A done job keeps it, to answer a repeated complete."""
    worker: str | None = None
    claimed_at: datetime | None = None
    heartbeat_at: datetime | None = None
    """For people. Staleness is judged by clocks that cannot jump."""
    silent_s: float = HEARD
    """How long its worker had been silent when a broker last wrote that down: a duration, so that
    the next broker can continue from it without any wall clock."""
    lease_s: float | None = None
    """How long the worker of this attempt may be silent. None: what the queue's settings say."""
    cancel_requested: bool = False
    errors: tuple[Failure, ...] = ()
    """The last few failures, oldest first."""
    finished_at: datetime | None = None
    outcome: Outcome | None = None
    result: Raw = NOTHING
    result_encoding: Encoding | None = None
    replay_of: str | None = None
    """The archived job that this one repeats."""
    progress: Progress | None = None
    """What the handler of the current attempt reported last."""
    batch_id: str | None = None
    """The batch that it belongs to; None: it belongs to none."""
    after: tuple[str, ...] = ()
    """The jobs that it waits for: those that have completed are taken off. A dead job keeps those
    that had not."""
    on_failed: OnFailed | None = None
    """What happens if one of them does not complete. None: it is dead."""
    done_batch: BatchCounts | None = None
    """The batch that it was pushed at the end of."""
    traceparent: str | None = None
    """The span in which it was pushed, as W3C Trace Context writes it; None: it was not traced."""

    @property
    def is_held(self) -> bool:
        """Whether it waits for other jobs, and cannot be claimed."""
        return self.status == "queued" and bool(self.after)

    @property
    def order(self) -> tuple[int, int]:
        """What a claim sorts the jobs of a group by."""
        return (self.priority, self.seq)

    def has_expired(self, now: datetime) -> bool:
        """Whether it waits in vain: it was never claimed, and its time is over."""
        return (
            self.expires_at is not None
            and self.expires_at <= now
            and self.attempt == 0
            and self.status == "queued"
        )


class KeyRecord(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """An idempotency key, the job that it stands for, and a digest of what was pushed."""

    id: str
    seq: int
    job: str
    digest: str
    at: datetime


class AgreedTime(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the clocks of the writers show, see ``timekeeping``."""

    at: datetime
    """The time that they agree on."""
    ahead_since: datetime | None = None
    """What a clock that is further ahead showed first; None: there is none."""
    ahead_until: datetime | None = None
    """What it showed last."""


class BrokerRecord(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The broker that serves this queue, or the last one that did."""

    address: str
    """``host:port``; empty once it has retired, when no broker serves the queue."""
    id: str
    """New at each start of a broker: an address may be used again by something else."""
    epoch: int
    """One more at each takeover. It never falls, so it outlives the broker."""
    since: datetime
    host: str = ""
    """The host that it runs on. A loopback address is valid only there."""
    tls: bool = False
    """Whether clients must connect with TLS."""
