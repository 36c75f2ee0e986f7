"""``SideWriter``: writes large payloads and results, and sends the requests that name them.

What is larger than ``inline_bytes`` becomes a side object, which is written before the commit that
names it; what is not goes in its job. If a commit comes too late for an object, the object may have
been swept: it is written again under another name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from bucketq.commit.request_ids import RequestId
from bucketq.errors import BucketQError, UnavailableError, UploadExpiredError
from bucketq.model import operations as ops
from bucketq.model.base import NewJob
from bucketq.model.job_ids import JobId
from bucketq.model.partitions import place_of
from bucketq.model.records import NOTHING, Encoding
from bucketq.model.side_objects import (
    Content,
    KeepObject,
    PutPart,
    SideRef,
    Staged,
    StageObject,
    is_side,
    side_encoding,
    write_ref,
)
from bucketq.queue.arguments import as_job_ids
from bucketq.queue.large.payload_stream import in_order
from bucketq.queue.large.side_content import (
    FileContent,
    SideContent,
    content_bytes,
    inline_body,
    is_file,
)
from bucketq.queue.sender import Sender

A = TypeVar("A")

_SURELY_INLINE_BYTES = 1024
"""What is not larger is part of its job, whatever the settings say: it is not worth a request to
find out what they say."""
_NONCE_BYTES = 8
_TRIES = 4
"""How often something is written if it takes too long; each time it has twice the time."""


class Placed:
    """A payload or result that is to be pushed, and where it was written."""

    def __init__(self, content: SideContent, job: str, what: Content, place: str) -> None:
        """Place a content for a job; ``place`` decides in which partition that is."""
        self.content = content
        self.place = place
        self.job = job
        self.what = what
        self.object = ""
        """The name of the side object; empty: it goes in the job."""

    def body(self) -> tuple[Raw, Encoding | None]:
        """Return the reference, and how it is encoded."""
        ref = SideRef(self.object, self.content.size_bytes, self.content.digest)
        return write_ref(ref), side_encoding(self.content.encoding)


class SideWriter:
    """Writes the large payloads and results of one queue."""

    def __init__(self, sender: Sender) -> None:
        """Write through ``sender``."""
        self._sender = sender
        self.inline_bytes = _SURELY_INLINE_BYTES
        """How large a payload or result may be to go in its job, as far as is known."""

    def is_large_job(self, job: NewJob, payload: object = None) -> bool:
        """Whether a payload may be too large for its job, or is a file."""
        if len(memoryview(job.payload)) > self.inline_bytes:
            return not is_side(job.payload_encoding)
        return job.payload_encoding is not None and is_file(payload)

    def has_large_job(self, jobs: Sequence[NewJob], payloads: Sequence[object]) -> bool:
        """Whether ``is_large_job`` says so of any job."""
        most = self.inline_bytes
        # In one pass without calls: most pushes have none, and some have many jobs.
        is_worth_a_look = any(
            len(memoryview(job.payload)) > most or job.payload_encoding is not None for job in jobs
        )
        return is_worth_a_look and any(map(self.is_large_job, jobs, payloads))

    def is_large_completion(self, done: ops.Complete | ops.Completion) -> bool:
        """Whether a result, or the payload of a follow-up job, may be too large for its job."""
        return self._has_large_result(done) or (
            bool(done.follow_ups) and any(map(self.is_large_job, done.follow_ups))
        )

    def has_large_completion(self, completions: Sequence[ops.Completion]) -> bool:
        """Whether ``is_large_completion`` says so of any."""
        have_bodies = any(done.result is not NOTHING or done.follow_ups for done in completions)
        return have_bodies and any(map(self.is_large_completion, completions))

    def _has_large_result(self, done: ops.Complete | ops.Completion) -> bool:
        if done.result is NOTHING or len(memoryview(done.result)) <= self.inline_bytes:
            return False
        return not is_side(done.result_encoding)

    async def push(
        self, request_id: RequestId, jobs: list[NewJob], payloads: Sequence[object]
    ) -> list[JobId]:
        """Push jobs of which some have a large payload, or a file."""
        files: dict[int, FileContent] = {}
        is_sent = False

        async def send(new: tuple[NewJob, ...], tries: int) -> tuple[str, ...]:
            nonlocal is_sent
            is_sent = True
            operation = ops.Push(jobs=new)
            if not tries:
                answer: tuple[str, ...] = await self._sender.send_as(request_id, operation)
            else:
                answer = await self._sender.send(operation)
            return answer

        try:
            for place, payload in enumerate(payloads):
                if is_file(payload):
                    files[place] = await FileContent.open(payload, "payload")
            return as_job_ids(await self._send_jobs(jobs, files, send))
        except UnavailableError as error:
            if is_sent:
                raise
            is_sent = True
            raise self._sender.not_sent(request_id, ops.Push(jobs=()), error) from error
        finally:
            if not is_sent:
                self._sender.drop_id(request_id)
            for content in files.values():
                await content.close()

    async def complete(
        self, request_id: RequestId, jobs: list[ops.Complete] | list[ops.Completion]
    ) -> Any:
        """Complete jobs, some of which have a large result or push a job with a large payload."""
        done: list[Any] = [*jobs]
        is_sent = False
        results = [n for n, job in enumerate(done) if self._has_large_result(job)]
        pushed = [
            (n, k)
            for n, job in enumerate(done)
            for k, new in enumerate(job.follow_ups)
            if self.is_large_job(new)
        ]
        placed = [
            *(
                Placed(_result(done[n]), done[n].job, "result", f"lease={done[n].lease}")
                for n in results
            ),
            # They are where the job is that is completed.
            *(_placed(done[n].follow_ups[k], f"lease={done[n].lease}") for n, k in pushed),
        ]

        async def send_named(tries: int) -> Any:
            nonlocal is_sent
            is_sent = True
            for n, each in zip(results, placed, strict=False):
                if each.object:
                    raw, encoding = each.body()
                    done[n] = replace(done[n], result=raw, result_encoding=encoding)
            for (n, k), each in zip(pushed, placed[len(results) :], strict=True):
                if each.object:
                    raw, encoding = each.body()
                    new = [*done[n].follow_ups]
                    new[k] = replace(new[k], payload=raw, payload_encoding=encoding)
                    done[n] = replace(done[n], follow_ups=tuple(new))
            is_single = isinstance(done[0], ops.Complete)
            operation = done[0] if is_single else ops.CompleteMany(jobs=tuple(done))
            if tries:
                return await self._sender.send(operation)
            return await self._sender.send_as(request_id, operation)

        try:
            return await self._send_placed(placed, send_named, lambda _, place: placed[place].job)
        except UnavailableError as error:
            if is_sent:
                raise
            is_sent = True
            empty = done[0] if isinstance(done[0], ops.Complete) else ops.CompleteMany(jobs=())
            raise self._sender.not_sent(request_id, empty, error) from error
        finally:
            if not is_sent:
                self._sender.drop_id(request_id)

    async def _send_jobs(
        self,
        jobs: list[NewJob],
        files: dict[int, FileContent],
        send: Callable[[tuple[NewJob, ...], int], Awaitable[tuple[str, ...]]],
    ) -> tuple[str, ...]:
        places = [n for n, job in enumerate(jobs) if n in files or self.is_large_job(job)]
        placed = [_placed(jobs[n], place_of(jobs[n]), files.get(n)) for n in places]

        async def send_named(tries: int) -> tuple[str, ...]:
            for n, each in zip(places, placed, strict=True):
                if each.object:
                    raw, encoding = each.body()
                    jobs[n] = replace(jobs[n], payload=raw, payload_encoding=encoding)
                elif n in files:
                    raw, encoding = inline_body(await files[n].whole(), "object-bytes")
                    jobs[n] = replace(jobs[n], payload=raw, payload_encoding=encoding)
            return await send(tuple(jobs), tries)

        return await self._send_placed(
            placed, send_named, lambda answer, place: str(answer[places[place]])
        )

    async def _send_placed(
        self,
        placed: Sequence[Placed],
        send: Callable[[int], Awaitable[A]],
        job_of: Callable[[A, int], str],
    ) -> A:
        """Write side objects, send the request that names them, and have their markers deleted.

        ``send`` gets how often that has failed. ``job_of`` returns the job that should name a
        content now; if it does not, the marker stays, and a sweep decides.
        """
        for tries in range(_TRIES):
            try:
                for each in placed:
                    await self._place(each, tries)
                answer = await send(tries)
            except UploadExpiredError:
                if tries == _TRIES - 1:
                    raise
            else:
                break
        for place, each in enumerate(placed):
            if each.object:
                # A sweep finds out by itself, at a higher cost.
                with suppress(BucketQError):
                    job = job_of(answer, place)
                    keep = KeepObject(object=each.object, job=job, content=each.what)
                    await self._sender.send(keep)
        return answer

    async def _place(self, placed: Placed, tries: int) -> None:
        """Write a side object, or find out that the content is small enough for its job."""
        content = placed.content
        if content.size_bytes <= self.inline_bytes:
            return
        staged: Staged = await self._sender.send(
            StageObject(
                content=placed.what,
                bytes=content.size_bytes,
                digest=content.digest,
                nonce=self._sender.clock.entropy(_NONCE_BYTES).hex(),
                tries=tries,
                place=placed.place,
            )
        )
        self.inline_bytes = staged.inline_bytes
        placed.object = staged.object
        if not staged.object:
            return
        parts = SideRef(staged.object, content.size_bytes, content.digest).parts

        async def put(part: int) -> None:
            data = await content.part(part)
            await self._sender.send(
                PutPart(
                    object=staged.object,
                    part=part,
                    data=data,
                    job=placed.job,
                    content=placed.what,
                )
            )

        await put(0)  # It comes with the marker, without which nothing else may be there.
        async for _ in in_order(put, range(1, parts)):
            pass


def _placed(job: NewJob, place: str, content: SideContent | None = None) -> Placed:
    if content is None:
        encoding = job.payload_encoding
        content = SideContent(content_bytes(job.payload, encoding), encoding)
    # A push that replaces the payload of another job does not know which one.
    return Placed(content, job.id if job.replace in (None, "run_at") else "", "payload", place)


def _result(done: ops.Complete | ops.Completion) -> SideContent:
    encoding = done.result_encoding
    return SideContent(content_bytes(done.result, encoding), encoding)
