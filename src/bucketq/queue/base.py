"""The ``Queue`` protocol: what a direct queue, group commit and a remote client all are.

A worker, a test, a Spark task and the command line run on any of them, and every one passes
the suites ``tests/contract/test_queue_*.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from bucketq.model.base import NewJob
from bucketq.model.job import Backoff, Status
from bucketq.model.numbered_batches import BatchState, ConsumerInfo, ConsumerState
from bucketq.model.operations import LeaseRef, Pulse, Snapshot, Stats
from bucketq.model.operators import CancelAnswer
from bucketq.model.settings import Settings
from bucketq.model.tokens import Right, TokenInfo
from bucketq.queue.job import Job, JobBatch, JobPage
from bucketq.queue.new_jobs import JobSpec

T = TypeVar("T")

MAX_WAIT_S = 3600.0
"""How long a claim may wait."""

Held = Job[T] | LeaseRef
"""A job that was claimed, or what shows that it was."""
Names = str | Iterable[str] | None
"""One name, several, or None for all."""


class Queue(Protocol[T]):
    """A queue of jobs whose payloads are ``T``.

    A verb that changes something returns when the change is durable, and not before. Every
    verb may raise ``UnavailableError``: the outcome is unknown. Those that take ``request`` can
    then be called again with ``request=error.request``, to the effect of one call.
    """

    async def push(
        self,
        kind: str,
        payload: T,
        *,
        id: str | None = None,  # noqa: A002 - the word that everybody looks for
        priority: int = 0,
        delay_s: float | timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        request: str | None = None,
    ) -> str:
        """Add a job and return its id.

        With a ``key`` that was used within its retention, nothing is added: the same content
        returns the id of the job that is there (or was), other content is refused with
        ``KeyConflictError``.
        """
        ...

    async def push_many(
        self, jobs: Iterable[JobSpec[T]], *, request: str | None = None
    ) -> list[str]:
        """Add jobs, all or none, in one commit; return their ids in order."""
        ...

    async def claim(
        self,
        kinds: Names = None,
        *,
        limit: int = 1,
        wait_s: float = 0.0,
        worker: str | None = None,
        lease_s: float | None = None,
        request: str | None = None,
    ) -> list[Job[T]]:
        """Take jobs to work on: the most urgent, then the oldest, that are due.

        Waits up to ``wait_s`` for the first one. An empty answer has changed nothing. With
        ``lease_s`` the worker may be silent for that long, and not for as long as the settings say.
        """
        ...

    async def heartbeat(self, jobs: Held[T] | Iterable[Held[T]]) -> list[Pulse]:
        """Say that jobs are still being worked on; the answer tells which are lost."""
        ...

    async def complete(
        self,
        job: Held[T],
        result: Any = None,
        *,
        request: str | None = None,
    ) -> None:
        """Finish a job, with an optional result."""
        ...

    async def complete_many(
        self, jobs: Iterable[Held[T] | tuple[Held[T], Any]], *, request: str | None = None
    ) -> list[bool]:
        """Finish jobs, each with an optional result, in one commit.

        Each is finished for itself: the answer tells of each, in order, whether it is done, or
        its lease was lost and another worker may have it.
        """
        ...

    async def fail(
        self,
        job: Held[T],
        error: str | BaseException,
        *,
        retry: bool = True,
        delay_s: float | None = None,
        max_attempts: int | None = None,
        request: str | None = None,
    ) -> Status:
        """Report that an attempt failed; return what the job is now.

        It waits for ``delay_s`` before it is tried again, or as long as its backoff says.
        ``max_attempts`` is the limit from now on for a job that was pushed without one. It is
        ``queued`` again, ``dead``, or ``done`` where its cancellation was asked for.
        """
        ...

    async def release(
        self, job: Held[T], *, delay_s: float = 0.0, request: str | None = None
    ) -> None:
        """Give a job back unharmed; it costs none of its attempts."""
        ...

    async def release_many(
        self, jobs: Iterable[Held[T]], *, delay_s: float = 0.0, request: str | None = None
    ) -> list[bool]:
        """Give jobs back unharmed, in one commit.

        Each is released for itself: the answer says of each, in order, whether it was given back,
        or its lease was lost and another worker may have it.
        """
        ...

    async def cancel(self, job_id: str, *, request: str | None = None) -> CancelAnswer:
        """Cancel a waiting job; ask the worker of a running one to stop."""
        ...

    async def redrive(
        self,
        jobs: Names = None,
        *,
        kinds: Names = None,
        limit: int | None = None,
        request: str | None = None,
    ) -> int:
        """Give dead jobs a new life; return how many."""
        ...

    async def purge(
        self,
        jobs: Names = None,
        *,
        kinds: Names = None,
        older_than_s: float = 0.0,
        request: str | None = None,
    ) -> int:
        """Finish dead jobs for good; return how many."""
        ...

    async def pause(self, kind: str | None = None, *, request: str | None = None) -> None:
        """Hand out no more jobs of a kind, or none at all."""
        ...

    async def resume(self, kind: str | None = None, *, request: str | None = None) -> None:
        """Undo the pause of a kind, or every pause."""
        ...

    async def config(self, /, *, request: str | None = None, **changes: object) -> Settings:
        """Change settings, or with none given read them; return all of them."""
        ...

    async def create_token(
        self,
        name: str,
        rights: Right | Iterable[Right],
        *,
        ttl_s: float | timedelta | None = None,
        request: str | None = None,
    ) -> str:
        """Let in whoever shows a new token, and return it; it cannot be read again.

        It bears a name for people, allows what its rights say (``push``, ``claim``, ``read``, or
        ``admin`` for everything), and never expires where no ``ttl_s`` is given. From the first
        token on, brokers ask for tokens (setting ``require_token``). To go on after an
        ``UnavailableError``, use the same open queue: no other can make the same token again.
        """
        ...

    async def tokens(self) -> list[TokenInfo]:
        """Read which tokens are good, in the order in which they were created."""
        ...

    async def revoke_token(self, token_id: str, *, request: str | None = None) -> bool:
        """Take a token back; return whether there was one.

        The queue does not open by that, not even with the last token.
        """
        ...

    async def open_consumer(self, consumer: str, *, request: str | None = None) -> ConsumerState:
        """Take a consumer over, or make it; the answer tells its epoch and its last batch.

        A consumer is a name under which batches are claimed one after the other. Whoever opened it
        before is refused from now on, with ``ConsumerFencedError``.
        """
        ...

    async def claim_batch(
        self,
        consumer: str,
        epoch: int,
        batch: int,
        kinds: Names = None,
        *,
        limit: int = 1000,
        worker: str | None = None,
        lease_s: float | None = None,
    ) -> BatchState:
        """Take the next batch of jobs, or the one that is open again: the identical set.

        Batches are numbered from 1. A number is used up when it finds jobs, and stays open until
        it is acknowledged or released. Asking again with the same number does no harm, whoever
        asks: jobs whose lease ran out meanwhile are taken back, and those that are in other hands,
        finished or gone are told as ``lost``. Heartbeat the jobs as usual.
        """
        ...

    async def read_batch(
        self, consumer: str, batch: int, *, start: int = 0, limit: int = 1000
    ) -> JobBatch[T]:
        """Read a slice of the open batch, in the order of its claim; it needs no epoch."""
        ...

    async def ack_batch(
        self, consumer: str, epoch: int, batch: int, *, request: str | None = None
    ) -> BatchState:
        """Complete every job that still belongs to a batch, in one commit, and close it.

        The answer tells how many that were. For a batch that was closed before it is 0.
        """
        ...

    async def release_batch(
        self, consumer: str, epoch: int, batch: int, *, request: str | None = None
    ) -> BatchState:
        """Give the jobs of a batch back unharmed, and close it; its number is used up."""
        ...

    async def consumers(self) -> list[ConsumerInfo]:
        """Read which consumers there are, in the order in which they were first opened."""
        ...

    async def remove_consumer(self, consumer: str, *, request: str | None = None) -> bool:
        """Give back what a consumer holds, and forget it; return whether there was one."""
        ...

    async def publish(
        self,
        writer: str,
        batch: int,
        jobs: Iterable[JobSpec[T] | NewJob],
        *,
        part: int = 0,
        request: str | None = None,
    ) -> bool:
        """Add jobs, all or none, once for each position of a writer; return whether it was now.

        A writer goes forward only, by batch and then by part. What is not behind the last position
        that it published changes nothing, however often it comes, and returns False. A ``NewJob``
        is encoded already, and goes in as it is.
        """
        ...

    async def get(self, job_id: str) -> Job[T]:
        """Read one job."""
        ...

    async def jobs(
        self,
        *,
        statuses: Names = None,
        kinds: Names = None,
        tags: dict[str, str] | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> JobPage[T]:
        """Read a page of jobs, in the order of their pushes."""
        ...

    async def stats(self) -> Stats:
        """Count the jobs."""
        ...

    async def snapshot(self) -> Snapshot:
        """Read everything at one version."""
        ...

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call.

        All of it has left when this returns, also if another process archives at the same time.
        A queue that stays open does that by itself, ``archive_after_s`` after a job has finished.
        """
        ...
