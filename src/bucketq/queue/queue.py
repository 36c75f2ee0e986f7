"""``Queue``: the verbs of a job queue, each written once.

A verb checks its arguments, builds an operation, and sends it to a committer. Whether the committer
writes the object itself or talks to a broker makes no difference here, so a worker, a test, a Spark
task and the command line run on any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack, cast

from msgspec.structs import replace

from bucketq.clock import Clock
from bucketq.commit.base import Committer
from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model import operations as ops
from bucketq.model.operations import CancelAnswer
from bucketq.model.queue_stats import Stats
from bucketq.model.records import Progress, Status
from bucketq.model.settings import Settings
from bucketq.queue.arguments import (
    MAX_WAIT_S,
    Duration,
    Names,
    as_names,
    as_plain,
    job_name,
    lease_seconds,
    seconds,
)
from bucketq.queue.batch_verbs import BatchVerbs
from bucketq.queue.history_verbs import HistoryVerbs
from bucketq.queue.job import Job, JobPage
from bucketq.queue.job_batch_verbs import JobBatchVerbs
from bucketq.queue.large.side_content import FilePayload
from bucketq.queue.large.side_reader import SideReader
from bucketq.queue.large.side_writer import SideWriter
from bucketq.queue.lease_verbs import LeaseVerbs
from bucketq.queue.limit_verbs import LimitVerbs
from bucketq.queue.operator_verbs import OperatorVerbs
from bucketq.queue.payload_verbs import PayloadVerbs
from bucketq.queue.push_options import PushOptions
from bucketq.queue.push_verbs import PushVerbs
from bucketq.queue.result_verbs import ResultVerbs
from bucketq.queue.schedule_verbs import ScheduleVerbs
from bucketq.queue.sender import Sender
from bucketq.queue.token_verbs import TokenVerbs

T = TypeVar("T")

_PAGE_JOBS = 300
"""How many dead jobs one request redrives or purges: its commit writes all of them, and other
requests wait for it. With payloads of 100 bytes it writes 75 KB. Spilling them takes as long as
five such commits on a busy machine, and until then they are in the object."""
_ANY_TAGS = Settings(max_tags=2**31)
"""A filter may name any number of tags."""


class Queue(
    PushVerbs[T],
    LeaseVerbs[T],
    PayloadVerbs,
    ResultVerbs,
    BatchVerbs[T],
    JobBatchVerbs[T],
    ScheduleVerbs[T],
    LimitVerbs,
    TokenVerbs,
    HistoryVerbs,
    OperatorVerbs,
    Generic[T],
):
    """A queue of jobs whose payloads are ``T``.

    A verb that changes something returns when the change is durable, and not before. Every
    verb may raise ``UnavailableError``: the outcome is unknown. Those that take ``request`` can
    then be called again with ``request=error.request``; both calls together take effect once.
    """

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        *,
        payload_type: Any = Any,
        worker: str = "worker",
        timeout_s: float = 60.0,
    ) -> None:
        """Make a queue over a committer; ``async with`` opens both.

        Args:
            committer: How requests are committed.
            clock: Time and entropy.
            payload_type: The type that payloads are decoded into.
            worker: The name under which jobs are claimed.
            timeout_s: How long a request is tried before its outcome is called unknown.
        """
        self._committer = committer
        self._sender = Sender(committer, clock, timeout_s)
        self._payload_type = payload_type
        self._worker = worker
        self._writer = SideWriter(self._sender)
        self._reader = SideReader(self._sender, payload_type)
        self._token_key = b""

    def __repr__(self) -> str:
        """Name the address and the mode."""
        return f"<Queue {self._committer.where} ({self._committer.mode})>"

    def _through(self, wrap: Callable[[Committer], Committer]) -> Queue[T]:
        """Return the same queue over another committer, which wraps its own; it is not open yet."""
        return Queue(
            wrap(self._committer),
            self._sender.clock,
            payload_type=self._payload_type,
            worker=self._worker,
            timeout_s=self._sender.timeout_s,
        )

    async def __aenter__(self) -> Queue[T]:
        """Open the queue."""
        await self._sender.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Commit pending requests, and close."""
        await self._sender.close()

    async def push_and_wait(
        self,
        kind: str,
        payload: T | FilePayload,
        *,
        timeout_s: Duration = 30.0,
        on_progress: Callable[[Progress], object] | None = None,
        **options: Unpack[PushOptions],
    ) -> Any:
        """Add a job, wait until it is over, and return its result: ``push`` and ``wait`` in one."""
        seconds(timeout_s, "timeout_s")
        job_id = await self.push(kind, payload, **options)
        return await self.wait(job_id, timeout_s=timeout_s, on_progress=on_progress)

    async def claim(
        self,
        kinds: Names = None,
        *,
        limit: int = 1,
        wait_s: Duration = 0.0,
        worker: str | None = None,
        lease_s: Duration | None = None,
        fetch: bool = True,
        request: str | None = None,
    ) -> list[Job[T]]:
        """Take jobs to work on: the most urgent, then the oldest, that are due.

        Waits up to ``wait_s`` for the first one. An empty answer has changed nothing. A job goes
        to another worker if this one is silent for ``lease_s`` (without it, what the settings say:
        30 s): call ``heartbeat`` until it is finished. If the caller is cancelled, jobs that the
        claim got are released.

        Large payloads of up to 16 MiB are fetched, unless ``fetch`` is False: then, and if they are
        larger, ``open_payload`` of the job reads them.
        """
        wait_s = seconds(wait_s, "wait_s")
        if wait_s > MAX_WAIT_S:
            message = f"wait_s must be at most {MAX_WAIT_S:.0f} seconds, got {wait_s:g}"
            raise InvalidRequestError(message)
        operation = ops.Claim(
            worker=self._worker if worker is None else worker,
            secret="",  # Derived from the id of the request.
            kinds=as_names(kinds, "kinds"),
            limit=limit,
            wait_s=wait_s,
            lease_s=lease_seconds(lease_s),
        )
        records = await self._sender.send_claim(operation, request)
        jobs = [self._reader.job(record) for record in records]
        if fetch and any(job.is_unfetched for job in jobs):
            await self._reader.fetch_claimed(jobs)
        return jobs

    async def cancel(self, job_id: str, *, request: str | None = None) -> CancelAnswer:
        """Cancel a waiting job; ask the worker of a running one to stop.

        Returns ``cancelled``, ``requested``, or ``finished`` if it has ended in another way.
        """
        operation = ops.Cancel(job=job_name(job_id))
        return cast("CancelAnswer", await self._sender.send(operation, request))

    async def set_priority(self, job_id: str, priority: int, *, request: str | None = None) -> None:
        """Give a job that waits another priority: the smaller number goes first.

        It may be delayed, or wait for other jobs. It keeps its place among the jobs of its new
        priority, by when it was pushed. A job that is running or over is refused.
        """
        await self._sender.send(ops.SetPriority(job=job_name(job_id), priority=priority), request)

    async def redrive(
        self,
        jobs: Names = None,
        *,
        kinds: Names = None,
        limit: int | None = None,
        request: str | None = None,
    ) -> int:
        """Queue dead jobs again, with no failures; return how many.

        Jobs that are not named are redriven in several commits if there are many.
        """
        if limit is not None:
            check.whole_number(limit, "limit", 1, 2**31)
        operation = ops.Redrive(
            jobs=as_names(jobs, "jobs"), kinds=as_names(kinds, "kinds"), limit=limit or 0
        )
        return await self._send_in_pages(operation, request)

    async def purge(
        self,
        jobs: Names = None,
        *,
        kinds: Names = None,
        older_than_s: Duration = 0.0,
        request: str | None = None,
    ) -> int:
        """Finish dead jobs for good; return how many.

        Jobs that are not named are purged in several commits if there are many.
        """
        operation = ops.Purge(
            jobs=as_names(jobs, "jobs"),
            kinds=as_names(kinds, "kinds"),
            older_than_s=seconds(older_than_s, "older_than_s"),
        )
        return await self._send_in_pages(operation, request)

    async def _send_in_pages(self, operation: ops.Redrive | ops.Purge, token: str | None) -> int:
        """Send an operation on dead jobs, page by page, and return how many it changed.

        The oldest deaths come first, so jobs that die meanwhile are behind those that were dead;
        it ends when as many were changed.
        """
        limit = operation.limit or _PAGE_JOBS
        if operation.jobs or limit < _PAGE_JOBS:
            return cast("int", await self._sender.send(operation, token))
        count = changed = await self._sender.send(replace(operation, limit=_PAGE_JOBS), token)
        if changed < _PAGE_JOBS:
            return cast("int", count)
        left = operation.limit - count if operation.limit else (await self.stats()).total("dead")
        while left > 0 and changed:
            page = min(left, _PAGE_JOBS) if operation.limit else _PAGE_JOBS
            changed = await self._sender.send(replace(operation, limit=page))
            count += changed
            left -= changed
        return cast("int", count)

    async def pause(self, kind: str | None = None, *, request: str | None = None) -> None:
        """Hand out no more jobs of a kind, or none at all."""
        await self._sender.send(ops.Pause(kind=kind), request)

    async def resume(self, kind: str | None = None, *, request: str | None = None) -> None:
        """Undo the pause of a kind, or every pause."""
        if kind is not None:
            check.kind(kind)
        await self._sender.send(ops.Resume(kind=kind), request)

    async def settings(self) -> Settings:
        """Read the settings that all processes of the queue share."""
        return cast("Settings", await self._sender.send(ops.Configure(changes={})))

    async def configure(self, /, *, request: str | None = None, **changes: object) -> Settings:
        """Change settings, all or none; return all of them."""
        if not changes:
            message = "configure needs a setting to change, as in configure(lease_s=60)"
            raise InvalidRequestError(message)
        return cast("Settings", await self._sender.send(ops.Configure(changes=changes), request))

    async def get(self, job_id: str) -> Job[T]:
        """Read one job of the queue.

        Raises:
            JobNotFoundError: It was never pushed, or has been archived, ``archive_after_s`` after
                it has finished: ``wait`` finds its result in the archive.
        """
        return self._reader.job(await self._sender.send(ops.Get(job=job_name(job_id))))

    async def jobs(
        self,
        *,
        statuses: Names = None,
        kinds: Names = None,
        tags: dict[str, str] | None = None,
        groups: Names = None,
        batch_id: str = "",
        after: int = 0,
        limit: int = 100,
        partial: bool = False,
    ) -> JobPage[T]:
        """Read a page of jobs, in the order of their pushes; with ``batch_id``, of one batch.

        There may be more although the page is not full: ``next_after`` says so. With ``partial`` a
        search for tags, groups or a batch in a deep queue answers after some 2,000 jobs, with
        those of them that match, so that a caller can show how far it is.
        """
        if tags is not None:
            check.tags(tags, _ANY_TAGS)
        operation = ops.List(
            statuses=cast("tuple[Status, ...]", as_names(statuses, "statuses")),
            kinds=as_names(kinds, "kinds"),
            tags=tags or {},
            groups=as_names(groups, "groups"),
            batch_id=as_plain(batch_id),
            after=after,
            limit=limit,
        )
        page: ops.Page = await self._sender.send(operation)
        found = [*page.jobs]
        while page.next_after is not None and len(found) < limit and not partial:
            # A search in a deep queue is made in steps, between which others have their turn.
            rest = replace(operation, after=page.next_after, limit=limit - len(found))
            page = await self._sender.send(rest)
            found += page.jobs
        return JobPage(tuple(map(self._reader.job, found)), page.next_after)

    async def stats(self, *, samples: bool = False) -> Stats:
        """Count the jobs; with ``samples`` a broker adds what it counted in the hours before."""
        return cast("Stats", await self._sender.send(ops.ReadStats(samples=samples)))

    async def flush_archive(self) -> int:
        """Archive everything that is finished now, and return how many jobs left by this call.

        All of them have left when this returns, even if another process archives at the same time.
        A queue that stays open archives by itself, ``archive_after_s`` after a job has finished,
        or up to 10 s later if nothing else is committed.
        """
        self._sender.check_open()
        return await self._committer.flush_archive()
