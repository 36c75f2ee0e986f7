"""``PushVerbs``: the part of ``Queue`` that adds jobs.

A job may wait for others that have left the queue for its archive. ``apply`` does not read the
archive, so it refuses such a push. Then the client looks them up, and pushes again with what it has
found. A retry looks them up before it is sent: what it asks for is the same at every try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, Unpack

from msgspec import Raw
from msgspec.structs import replace

from bucketq.commit.request_ids import RequestId
from bucketq.errors import AccessDeniedError, DependencyNotFoundError, JobNotFoundError
from bucketq.model.base import NewJob
from bucketq.model.job_ids import JobId
from bucketq.model.operations import Push
from bucketq.model.requests.plain_jobs import PlainJobs
from bucketq.model.results import FindArchived, JobEnd, Wait
from bucketq.queue.arguments import as_job_id, as_job_ids, as_several
from bucketq.queue.large.side_content import FilePayload, as_file
from bucketq.queue.large.side_writer import SideWriter
from bucketq.queue.push_options import JobSpec, PushOptions, new_job, new_jobs, plain_body
from bucketq.queue.sender import Sender
from bucketq.queue.trace_context import is_traced, push_span

T = TypeVar("T")

_AT_ONCE = 16
"""How many jobs are looked up at once in the archive, each of which may take some requests."""

Build = Callable[[RequestId], tuple[NewJob, ...]]
"""Makes the jobs of a push, with ids that follow from that of the request."""


class PushVerbs(Generic[T]):
    """Adding jobs."""

    _sender: Sender
    _writer: SideWriter
    _payload_type: Any

    async def push(
        self,
        kind: str,
        payload: T | FilePayload,
        *,
        request: str | None = None,
        **options: Unpack[PushOptions],
    ) -> JobId:
        """Add a job and return its id; ``PushOptions`` explains the options.

        A ``Path`` or a binary file stands for its bytes, and is never in memory as a whole.

        With a ``key`` that was used within its retention, nothing is added: the same content
        returns the id of the first job, whose ``duplicate`` is True, and other content is rejected
        with ``KeyConflictError``.
        """
        if not options and request is None and self._payload_type is Any and not is_traced():
            body = plain_body(kind, payload)
            if body is not None and len(body) <= self._writer.inline_bytes:
                request_id = self._sender.new_id(Push, None)
                job = NewJob(id=request_id.job_id(0), kind=kind, payload=Raw(body))
                answer = await self._sender.send_as(request_id, Push(jobs=PlainJobs((job,))))
                return as_job_id(answer[0])
        content = as_file(payload, self._payload_type)
        spec = JobSpec(kind=kind, payload=content, **options)

        def build(request_id: RequestId) -> tuple[NewJob, ...]:
            default_id = request_id.job_id(0) if spec.id is None else ""
            return (new_job(spec, default_id, self._payload_type, takes_files=True),)

        answer = await self._push(build, [content], request)
        return as_job_id(answer[0])

    async def push_many(
        self, jobs: Iterable[JobSpec[T]], *, request: str | None = None
    ) -> list[JobId]:
        """Add jobs, all or none, in one commit; return their ids in order."""
        several = list(as_several(jobs, "push_many takes an iterable of JobSpec objects"))
        payload_type = self._payload_type
        payloads: list[object] = []
        for place, job in enumerate(several):
            if isinstance(job, JobSpec):
                content = as_file(job.payload, payload_type)
                payloads.append(content)
                if content is not job.payload:
                    several[place] = replace(job, payload=content)

        def build(request_id: RequestId) -> tuple[NewJob, ...]:
            return new_jobs(several, [*islice(request_id.job_ids(), len(several))], payload_type)

        return as_job_ids(await self._push(build, payloads, request))

    async def _push(
        self, build: Build, payloads: Sequence[object], token: str | None
    ) -> Sequence[str]:
        """Push the jobs that ``build`` makes, in a span if the program traces."""
        if not is_traced():
            return await self._push_built(build, payloads, token)
        with push_span(self._sender.where, build) as build_in_span:
            return await self._push_built(build_in_span, payloads, token)

    async def _push_built(
        self, build: Build, payloads: Sequence[object], token: str | None
    ) -> Sequence[str]:
        """Push the jobs that ``build`` makes, under the id of a retry if there is one."""
        request_id, jobs = self._built(build, token)
        if not jobs:
            self._sender.drop_id(request_id)
            return ()
        is_large = self._writer.has_large_job(jobs, payloads)
        if (is_large or token is not None) and any(job.after for job in jobs):
            jobs = _with_ends(jobs, await self._find_ends(jobs))
        if is_large:
            return await self._writer.push(request_id, [*jobs], payloads)
        try:
            answer: tuple[str, ...] = await self._sender.send_as(request_id, Push(jobs=jobs))
        except DependencyNotFoundError:
            ends = await self._find_ends(jobs)
            if not ends:
                raise
        else:
            return answer
        # Nothing was pushed, and the answer has settled the id of that request.
        request_id, jobs = self._built(build, None)
        found: tuple[str, ...]
        found = await self._sender.send_as(request_id, Push(jobs=_with_ends(jobs, ends)))
        return found

    def _built(self, build: Build, token: str | None) -> tuple[RequestId, tuple[NewJob, ...]]:
        request_id = self._sender.new_id(Push, token)
        try:
            return request_id, build(request_id)
        except BaseException:
            self._sender.drop_id(request_id)
            raise

    async def _find_ends(self, jobs: Sequence[NewJob]) -> dict[str, bool]:
        """Find the jobs in the archive that others wait for; return whether they completed."""
        new = {job.id for job in jobs}
        names = [
            name for name in dict.fromkeys(n for job in jobs for n in job.after) if name not in new
        ]
        ends: dict[str, bool] = {}
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            found = await asyncio.gather(*map(self._find_end, some))
            ends |= {name: end for name, end in zip(some, found, strict=True) if end is not None}
        return ends

    async def _find_end(self, name: str) -> bool | None:
        """Whether a job in the archive completed; None: it is in the queue, or in neither."""
        try:
            await self._sender.send(Wait(job=name))
        except JobNotFoundError:
            pass
        except AccessDeniedError:
            return None  # A token that may push need not be one that may read.
        else:
            return None
        try:
            end: JobEnd = await self._sender.send(FindArchived(job=name))
        except JobNotFoundError:
            return None
        return end.outcome == "completed"


def _with_ends(jobs: Sequence[NewJob], ends: dict[str, bool]) -> tuple[NewJob, ...]:
    """Let jobs know how those ended that they wait for, and that are in the archive."""
    return tuple(
        [
            replace(job, ends={name: ends[name] for name in job.after if name in ends} or None)
            if job.after
            else job
            for job in jobs
        ]
    )
