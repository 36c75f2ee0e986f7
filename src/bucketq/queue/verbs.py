"""The verbs of a queue, written once: each builds an operation and submits it.

A subclass says how an operation is committed; nothing else differs between queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, cast

from bucketq.clock import Clock, new_token
from bucketq.commit.request_ids import RequestId, RequestIds, is_unjudged, parse_token
from bucketq.errors import BucketQError, InvalidRequestError, RejectedError
from bucketq.model import check
from bucketq.model import operations as ops
from bucketq.model.base import NewJob
from bucketq.model.job import Backoff, Status
from bucketq.model.operators import CancelAnswer
from bucketq.model.settings import Settings
from bucketq.queue import payload as payloads
from bucketq.queue.arguments import as_names, as_several, completion, lease_of
from bucketq.queue.base import MAX_WAIT_S, Held, Names
from bucketq.queue.bulk import BulkVerbs
from bucketq.queue.give_back import give_back
from bucketq.queue.job import Job, JobPage, JobSpec

T = TypeVar("T")


class Verbs(BulkVerbs[T], Generic[T]):
    """The ``Queue`` protocol over one way to commit an operation."""

    def __init__(
        self,
        where: str,
        clock: Clock,
        *,
        payload_type: Any = Any,
        worker: str = "worker",
        timeout_s: float = 60.0,
    ) -> None:
        """Make the verbs of a queue.

        Args:
            where: What messages call the queue.
            clock: Time and entropy.
            payload_type: What payloads are decoded into.
            worker: The name under which jobs are claimed.
            timeout_s: How long an operation is tried before its outcome is called unknown.
        """
        super().__init__(where, clock, timeout_s=timeout_s)
        self._payload_type = payload_type
        self._worker = worker
        self._ids = RequestIds(clock)
        self._patient: list[RequestIds] = []
        """Sessions for claims that wait: one claim each, for it would hold up a shared floor."""

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
        """Add a job and return its id."""
        self._guard()
        request_id = self._ids.give() if request is None else parse_token(request, ops.Push)
        try:
            new = self._new_job(
                request_id.job_id(0) if id is None else id,
                kind,
                payload,
                priority=priority,
                delay_s=delay_s,
                run_at=run_at,
                max_attempts=max_attempts,
                backoff=backoff,
                key=key,
                tags=tags,
            )
        except BaseException:
            self._ids.settle(request_id)
            raise
        answer = await self._submit_as(request_id, ops.Push(jobs=(new,)), self._ids)
        return cast("str", answer[0])

    async def push_many(
        self, jobs: Iterable[JobSpec[T]], *, request: str | None = None
    ) -> list[str]:
        """Add jobs, all or none, in one commit; return their ids in order."""
        self._guard()
        request_id = self._ids.give() if request is None else parse_token(request, ops.Push)
        try:
            several = as_several(jobs, "push_many takes an iterable of JobSpec objects")
            ids = request_id.job_ids()
            new = tuple([self._specified(job, next(ids)) for job in several])
        except BaseException:
            self._ids.settle(request_id)
            raise
        if not new:
            self._ids.settle(request_id)
            return []
        return list(await self._submit_as(request_id, ops.Push(jobs=new), self._ids))

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
        """Take jobs to work on, waiting up to ``wait_s`` for the first."""
        self._guard()
        check.lease(lease_s)
        check.delay(wait_s, "wait_s")
        if wait_s > MAX_WAIT_S:
            message = f"wait_s must be at most {MAX_WAIT_S:.0f} seconds, got {wait_s:g}"
            raise InvalidRequestError(message)
        operation = ops.Claim(
            worker=self._worker if worker is None else worker,
            secret=new_token(self._clock),
            kinds=as_names(kinds, "kinds"),
            limit=limit,
            wait_s=wait_s,
            lease_s=lease_s,
        )
        records = await self._claim_once(operation, request)
        return [Job(record, self._payload_type) for record in records]

    async def heartbeat(self, jobs: Held[T] | Iterable[Held[T]]) -> list[ops.Pulse]:
        """Say that jobs are still being worked on; the answer tells which are lost."""
        self._guard()
        several = [jobs] if isinstance(jobs, Job | ops.LeaseRef) else jobs
        leases = tuple(map(lease_of, as_several(several, "heartbeat takes jobs that were claimed")))
        if not leases:
            return []
        return list(await self._do(ops.Heartbeat(leases=leases), None))

    async def complete(
        self,
        job: Held[T],
        result: Any = None,
        *,
        request: str | None = None,
    ) -> None:
        """Finish a job, with an optional result."""
        lease = lease_of(job)
        if result is None:
            await self._do(ops.Complete(job=lease.job, lease=lease.lease), request)
            return
        raw, encoding = payloads.encode(result, "result")
        operation = ops.Complete(
            job=lease.job, lease=lease.lease, result=raw, result_encoding=encoding
        )
        await self._do(operation, request)

    async def complete_many(
        self, jobs: Iterable[Held[T] | tuple[Held[T], Any]], *, request: str | None = None
    ) -> list[bool]:
        """Finish jobs, each for itself; tell of each whether its lease was still held."""
        several = as_several(jobs, "complete_many takes jobs that were claimed")
        completions = tuple(map(completion, several))
        if not completions:
            return []
        return list(await self._do(ops.CompleteMany(jobs=completions), request))

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
        """Report that an attempt failed; return what the job is now."""
        lease = lease_of(job)
        if isinstance(error, BaseException):
            # An error about a file name that is not text must not keep its job from failing.
            text = f"{type(error).__name__}: {error}"
            error = text.encode(errors="backslashreplace").decode()
        if not isinstance(error, str):
            message = f"error must be a string or an exception, got {type(error).__name__}"
            raise InvalidRequestError(message)
        if not isinstance(retry, bool):
            message = f"retry must be True or False, got {type(retry).__name__}"
            raise InvalidRequestError(message)
        if delay_s is not None:
            check.delay(delay_s)
        operation = ops.Fail(
            job=lease.job,
            lease=lease.lease,
            error=error,
            retry=retry,
            delay_s=delay_s,
            max_attempts=max_attempts,
        )
        return cast("Status", await self._do(operation, request))

    async def release(
        self, job: Held[T], *, delay_s: float = 0.0, request: str | None = None
    ) -> None:
        """Give a job back unharmed."""
        lease = lease_of(job)
        check.delay(delay_s)
        await self._do(ops.Release(job=lease.job, lease=lease.lease, delay_s=delay_s), request)

    async def release_many(
        self, jobs: Iterable[Held[T]], *, delay_s: float = 0.0, request: str | None = None
    ) -> list[bool]:
        """Give jobs back unharmed, in one commit; say of each whether its lease was still held."""
        leases = tuple(map(lease_of, as_several(jobs, "release_many takes jobs that were claimed")))
        check.delay(delay_s)
        if not leases:
            return []
        return list(await self._do(ops.ReleaseMany(leases=leases, delay_s=delay_s), request))

    async def cancel(self, job_id: str, *, request: str | None = None) -> CancelAnswer:
        """Cancel a waiting job; ask the worker of a running one to stop."""
        check.name(job_id, "job id")
        return cast("CancelAnswer", await self._do(ops.Cancel(job=job_id), request))

    async def redrive(
        self,
        jobs: Names = None,
        *,
        kinds: Names = None,
        limit: int | None = None,
        request: str | None = None,
    ) -> int:
        """Give dead jobs a new life; return how many."""
        if limit is not None:
            check.whole_number(limit, "limit", 1, 2**31)
        operation = ops.Redrive(
            jobs=as_names(jobs, "jobs"), kinds=as_names(kinds, "kinds"), limit=limit or 0
        )
        return cast("int", await self._do(operation, request))

    async def purge(
        self,
        jobs: Names = None,
        *,
        kinds: Names = None,
        older_than_s: float = 0.0,
        request: str | None = None,
    ) -> int:
        """Finish dead jobs for good; return how many."""
        operation = ops.Purge(
            jobs=as_names(jobs, "jobs"), kinds=as_names(kinds, "kinds"), older_than_s=older_than_s
        )
        return cast("int", await self._do(operation, request))

    async def pause(self, kind: str | None = None, *, request: str | None = None) -> None:
        """Hand out no more jobs of a kind, or none at all."""
        await self._do(ops.Pause(kind=kind), request)

    async def resume(self, kind: str | None = None, *, request: str | None = None) -> None:
        """Undo the pause of a kind, or every pause."""
        if kind is not None:
            check.kind(kind)
        await self._do(ops.Resume(kind=kind), request)

    async def config(self, /, *, request: str | None = None, **changes: object) -> Settings:
        """Change settings, or read them; return all of them."""
        return cast("Settings", await self._do(ops.Configure(changes=changes), request))

    async def get(self, job_id: str) -> Job[T]:
        """Read one job."""
        check.name(job_id, "job id")
        return Job(await self._do(ops.Get(job=job_id), None), self._payload_type)

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
        if tags is not None:
            check.tags(tags, _LARGEST)
        operation = ops.List(
            statuses=cast("tuple[Status, ...]", as_names(statuses, "statuses")),
            kinds=as_names(kinds, "kinds"),
            tags=tags or {},
            after=after,
            limit=limit,
        )
        page: ops.Page = await self._do(operation, None)
        jobs = tuple(Job[T](record, self._payload_type) for record in page.jobs)
        return JobPage(jobs, page.next_after)

    async def stats(self) -> ops.Stats:
        """Count the jobs."""
        return cast("ops.Stats", await self._do(ops.ReadStats(), None))

    async def snapshot(self) -> ops.Snapshot:
        """Read everything at one version."""
        return cast("ops.Snapshot", await self._do(ops.ReadSnapshot(), None))

    def _specified(self, job: JobSpec[T], job_id: str) -> NewJob:
        if not isinstance(job, JobSpec):
            message = f"push_many takes JobSpec objects, got {type(job).__name__}"
            raise InvalidRequestError(message)
        return self._new_job(
            job_id if job.id is None else job.id,
            job.kind,
            job.payload,
            priority=job.priority,
            delay_s=job.delay_s,
            run_at=job.run_at,
            max_attempts=job.max_attempts,
            backoff=job.backoff,
            key=job.key,
            tags=job.tags,
            replay_of=job.replay_of,
        )

    def _new_job(
        self,
        job_id: str,
        kind: str,
        payload: T,
        *,
        priority: int,
        delay_s: float | timedelta | None,
        run_at: datetime | None,
        max_attempts: int | None,
        backoff: Backoff | None,
        key: str | None,
        tags: dict[str, str] | None,
        replay_of: str | None = None,
    ) -> NewJob:
        """Encode a job, and see that its payload will come out as it is to come out."""
        raw, encoding = payloads.encode(payload, "payload", self._payload_type)
        new = NewJob(
            id=job_id,
            kind=kind,
            payload=raw,
            payload_encoding=encoding,
            priority=priority,
            delay_s=delay_s.total_seconds() if isinstance(delay_s, timedelta) else delay_s,
            run_at=run_at,
            max_attempts=max_attempts,
            backoff=backoff,
            key=key,
            # A copy: the state keeps it, and the caller may go on with his own.
            tags=dict(tags) if isinstance(tags, dict) else tags,
            replay_of=replay_of,
        )
        check.new_job(new, _LARGEST)
        return new

    async def _do(self, operation: ops.AnyOperation, token: str | None) -> Any:
        """Give an operation its id, submit it, and keep the books of what is outstanding."""
        self._guard()
        if isinstance(operation, ops.REPEATABLE):
            return await self._submit(ops.Request(operation))
        if token is not None:
            request_id = parse_token(token, type(operation))
            return await self._submit_as(request_id, operation, self._ids)
        if not (isinstance(operation, ops.Claim) and operation.wait_s):
            return await self._submit_as(self._ids.give(), operation, self._ids)
        ids = self._patient.pop() if self._patient else RequestIds(self._clock)
        try:
            return await self._submit_as(ids.give(), operation, ids)
        finally:
            self._patient.append(ids)

    async def _submit_as(
        self, request_id: RequestId, operation: ops.AnyOperation, ids: RequestIds
    ) -> Any:
        request = request_id.request(operation)
        try:
            answer = await self._submit(request)
        except RejectedError as error:
            if is_unjudged(error, request):
                ids.abandon(request_id)
                raise self._still_unknown(request, error) from error
            ids.settle(request_id)
            raise
        except BaseException:
            # Unknown, given up, or a fault of ours: no answer will come under this id.
            ids.abandon(request_id)
            raise
        ids.settle(request_id)
        return answer

    async def _claim_once(self, operation: ops.Claim, token: str | None) -> Any:
        """Claim in a task of its own, so that a caller who is cancelled strands no jobs."""
        self._guard()
        task = asyncio.get_running_loop().create_task(self._do(operation, token))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self.withdraw(operation)
                self._give_back_later(task)
            raise

    def _give_back_later(self, task: asyncio.Task[Any]) -> None:
        async def later() -> None:
            with suppress(BucketQError):
                await give_back(self, await task)

        self._finish_later(asyncio.get_running_loop().create_task(later()))


_LARGEST = Settings(max_payload_bytes=2**31, max_tags=2**31)
"""The queue's own limits are known only when the operation is applied."""
