"""``LeaseVerbs``: the part of ``Queue`` for those who hold jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

from bucketq.commit.request_ids import RequestId
from bucketq.errors import InvalidRequestError
from bucketq.model import check
from bucketq.model import operations as ops
from bucketq.model.base import NewJob
from bucketq.model.job_ids import JobId
from bucketq.model.records import Progress, Status
from bucketq.model.requests.plain_jobs import completions
from bucketq.queue.arguments import (
    Duration,
    Held,
    as_several,
    completion,
    encode_result,
    lease_of,
    seconds,
)
from bucketq.queue.job import Job
from bucketq.queue.large.side_writer import SideWriter
from bucketq.queue.promised_jobs import FollowUps
from bucketq.queue.push_options import JobSpec
from bucketq.queue.sender import Sender

T = TypeVar("T")


class LeaseVerbs(Generic[T]):
    """What is said about jobs that were claimed, under their leases."""

    _sender: Sender
    _writer: SideWriter

    async def heartbeat(
        self,
        jobs: Held[T] | Iterable[Held[T]],
        *,
        progress: Mapping[str, Progress] | None = None,
    ) -> list[ops.Pulse]:
        """Report that jobs are still being worked on; the answer names those that are lost.

        ``progress`` says how far some of them have come, by their ids.
        """
        self._sender.check_open()
        several = [jobs] if isinstance(jobs, Job | ops.LeaseRef) else jobs
        leases = tuple(map(lease_of, as_several(several, "heartbeat takes jobs that were claimed")))
        if not leases:
            return []
        come = {str(job_id): each for job_id, each in (progress or {}).items()}
        for each in come.values():
            check.progress(each)
        return list(await self._sender.send(ops.Heartbeat(leases=leases, progress=come)))

    async def complete(
        self,
        job: Held[T],
        result: Any = None,
        *,
        push: Iterable[JobSpec[Any]] = (),
        request: str | None = None,
    ) -> list[JobId]:
        """Finish a job, with an optional result; return the ids of the jobs that it pushes.

        The jobs in ``push`` are added in the same commit: they exist if and only if this job was
        completed. At most 1,000, with 1 MiB of payloads together, besides those that are large; a
        full queue takes them too. One whose key, unique name or id is taken is not added.
        """
        request_id = self._sender.new_id(ops.Complete, request)
        try:
            lease = lease_of(job)
            raw, encoding = encode_result(result)
            pushed = () if push == () else _follow_ups(push, lease, request_id)
        except BaseException:
            self._sender.drop_id(request_id)
            raise
        done = ops.Complete(
            job=lease.job,
            lease=lease.lease,
            result=raw,
            result_encoding=encoding,
            follow_ups=pushed,
        )
        if self._writer.is_large_completion(done):
            await self._writer.complete(request_id, [done])
        else:
            await self._sender.send_as(request_id, done)
        return [JobId(new.id) for new in pushed]

    async def complete_many(
        self,
        jobs: Iterable[Held[T] | tuple[Held[T], Any] | tuple[Held[T], Any, tuple[NewJob, ...]]],
        *,
        request: str | None = None,
    ) -> list[bool]:
        """Finish jobs, each with an optional result, in one commit.

        Each is finished independently: the answer says of each, in order, whether it is done, or
        its lease was lost and another worker may have it.
        """
        several = as_several(jobs, "complete_many takes jobs that were claimed")
        finished = completions([*map(completion, several)])
        if not finished:
            return []
        request_id = self._sender.new_id(ops.CompleteMany, request)
        if self._writer.has_large_completion(finished):
            return list(await self._writer.complete(request_id, [*finished]))
        return list(await self._sender.send_as(request_id, ops.CompleteMany(jobs=finished)))

    async def fail(
        self,
        job: Held[T],
        error: str | BaseException,
        *,
        retry: bool = True,
        delay_s: Duration | None = None,
        max_attempts: int | None = None,
        request: str | None = None,
    ) -> Status:
        """Report that an attempt failed; return the job's new status.

        It waits for ``delay_s`` before it is tried again, or as long as its backoff says.
        ``max_attempts`` is the limit from now on for a job that was pushed without one. The status
        is ``queued`` again, ``dead``, or ``done`` if its cancellation was requested.
        """
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
        operation = ops.Fail(
            job=lease.job,
            lease=lease.lease,
            error=error,
            retry=retry,
            delay_s=None if delay_s is None else seconds(delay_s, "delay_s"),
            max_attempts=max_attempts,
        )
        return cast("Status", await self._sender.send(operation, request))

    async def snooze(
        self,
        job: Held[T],
        delay_s: Duration,
        *,
        reason: str = "",
        max_attempts: int | None = None,
        request: str | None = None,
    ) -> Status:
        """Put a job off for ``delay_s``, at no cost to its attempts; return the job's new status.

        That is possible 100 times (``job.snoozes``); from then on it counts as a failure, whose
        error has the ``reason``, and the job is ``dead`` if it may not fail again.
        """
        lease = lease_of(job)
        check.text(reason, "reason")
        operation = ops.Fail(
            job=lease.job,
            lease=lease.lease,
            error=reason,
            delay_s=seconds(delay_s, "delay_s"),
            max_attempts=max_attempts,
            snooze=True,
        )
        return cast("Status", await self._sender.send(operation, request))

    async def release(
        self, job: Held[T], *, delay_s: Duration = 0.0, request: str | None = None
    ) -> None:
        """Give a job back; that costs none of its attempts."""
        lease = lease_of(job)
        operation = ops.Release(
            job=lease.job, lease=lease.lease, delay_s=seconds(delay_s, "delay_s")
        )
        await self._sender.send(operation, request)

    async def release_many(
        self, jobs: Iterable[Held[T]], *, delay_s: Duration = 0.0, request: str | None = None
    ) -> list[bool]:
        """Give jobs back, in one commit; that costs none of their attempts.

        Each is released independently: the answer says of each, in order, whether it was given
        back, or its lease was lost and another worker may have it.
        """
        leases = tuple(map(lease_of, as_several(jobs, "release_many takes jobs that were claimed")))
        operation = ops.ReleaseMany(leases=leases, delay_s=seconds(delay_s, "delay_s"))
        if not leases:
            return []
        return list(await self._sender.send(operation, request))


def _follow_ups(
    push: Iterable[JobSpec[Any]], lease: ops.LeaseRef, request_id: RequestId
) -> tuple[NewJob, ...]:
    """Check and encode the jobs that a completion pushes."""
    specs = tuple(as_several(push, "push takes an iterable of JobSpec objects"))
    follow_ups = FollowUps(lease.lease, request_id.time)
    for spec in specs:
        follow_ups.add(spec)
    return follow_ups.jobs
