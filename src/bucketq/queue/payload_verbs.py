"""``PayloadVerbs``: the part of ``Queue`` that moves large payloads and results.

Above ``inline_bytes`` they are written to a side object before the commit that names it, and
fetched by the worker that claims the job.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from bucketq.commit.request_ids import RequestId
from bucketq.errors import (
    BucketQError,
    CorruptStateError,
    LeaseLostError,
    PayloadError,
    PayloadLostError,
    UnavailableError,
    UploadExpiredError,
)
from bucketq.model import operations as ops
from bucketq.model.base import NewJob
from bucketq.model.job_ids import JobId
from bucketq.model.records import Encoding, JobRecord
from bucketq.model.results import JobEnd
from bucketq.model.side_objects import (
    Content,
    KeepObject,
    PutPart,
    ReadPart,
    SideRef,
    Staged,
    StageObject,
    is_side,
    new_digest,
    read_ref,
    side_encoding,
    write_ref,
)
from bucketq.queue.arguments import as_job_id
from bucketq.queue.job import Job
from bucketq.queue.payload_stream import PayloadStream, in_order
from bucketq.queue.result_verbs import ResultVerbs
from bucketq.queue.sender import Sender
from bucketq.queue.side_content import FileContent, SideContent, inline_body, is_file

A = TypeVar("A")

SURELY_INLINE_BYTES = 1024
"""What is not larger is part of its job, whatever the settings say: it is not worth a request to
find out what they say."""
_NONCE_BYTES = 8
_TRIES = 4
"""How often something is written if it takes too long; each time it has twice the time."""
_FETCHED_AT_ONCE = 4
"""How many payloads a claim fetches at once."""
_BEAT_S = 2.0
"""How often a claim that fetches payloads sends heartbeats: several times in the shortest lease
that is of use."""


class Placed:
    """A payload or result that is to be pushed, and where it was written."""

    def __init__(self, content: SideContent, job: str, what: Content) -> None:
        """Place a content for a job."""
        self.content = content
        self.job = job
        self.what = what
        self.object = ""
        """The name of the side object; empty: it goes in the job."""

    def body(self) -> tuple[Raw, Encoding | None]:
        """Return the reference, and how it is encoded."""
        ref = SideRef(self.object, self.content.size_bytes, self.content.digest)
        return write_ref(ref), side_encoding(self.content.encoding)


class PayloadVerbs(ResultVerbs):
    """Writing and reading large payloads and results."""

    _sender: Sender
    _payload_type: Any
    _inline_bytes: int
    """How large a payload or result may be to go in its job, as far as is known."""

    async def open_payload(self, job: Job[Any] | str) -> AsyncIterator[bytes]:
        """Yield the payload of a job in chunks: the bytes that were pushed, or its JSON.

        It works for payloads of any size; what is more than 16 MiB is read in no other way. Pass a
        job that was claimed, or any other job or id if you may read the queue.

        Raises:
            PayloadLostError: It is missing or damaged.
        """
        record = await self._record_of(job)
        what = f"payload of job {record.id}"
        async for chunk in self._chunks(record, record.payload, record.payload_encoding, what):
            yield chunk

    async def open_result(self, job: Job[Any] | str) -> AsyncIterator[bytes]:
        """Yield the result of a job in chunks, as ``open_payload`` does its payload."""
        record = await self._record_of(job)
        if not bytes(record.result):
            message = f"job {record.id} has no result"
            raise PayloadError(message)
        what = f"result of job {record.id}"
        async for chunk in self._chunks(record, record.result, record.result_encoding, what):
            yield chunk

    async def _record_of(self, job: Job[Any] | str) -> JobRecord:
        if isinstance(job, Job):
            return job.record
        record: JobRecord = await self._sender.send(ops.Get(job=str(job)))
        return record

    async def _chunks(
        self, record: JobRecord, raw: Raw, encoding: Encoding | None, what: str
    ) -> AsyncIterator[bytes]:
        if is_side(encoding):
            lease = record.lease or "" if record.status == "running" else ""
            async for chunk in self._stream(read_ref(raw, what), what, record.id, lease):
                yield chunk
        elif encoding == "base64":
            yield base64.b64decode(msgspec.json.decode(raw, type=str))
        else:
            yield bytes(raw)

    def _wrap(self, record: JobRecord) -> Job[Any]:
        """Return a job that can open its payload."""
        return Job(record, self._payload_type, self._open_stream)

    def _open_stream(self, job: Job[Any]) -> PayloadStream:
        return PayloadStream(self.open_payload(job), self._sender.loop)

    def _is_large(self, raw: Raw, encoding: Encoding | None) -> bool:
        """Whether a payload or result may be too large for its job."""
        return len(memoryview(raw)) > self._inline_bytes and not is_side(encoding)

    async def _place(self, placed: Placed, tries: int) -> None:
        """Write a side object, or find out that the content is small enough for its job."""
        content = placed.content
        if content.size_bytes <= self._inline_bytes:
            return
        staged: Staged = await self._sender.send(
            StageObject(
                content=placed.what,
                bytes=content.size_bytes,
                digest=content.digest,
                nonce=self._sender.clock.entropy(_NONCE_BYTES).hex(),
                tries=tries,
            )
        )
        self._inline_bytes = staged.inline_bytes
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

    async def _stream(
        self, ref: SideRef, what: str, job: str = "", lease: str = ""
    ) -> AsyncIterator[bytes]:
        """Yield a side object part by part, and check it at the end."""
        digest, size_bytes = new_digest(), 0

        async def read(part: int) -> bytes:
            operation = ReadPart(object=ref.object, part=part, job=job, lease=lease)
            data: bytes = await self._sender.send(operation)
            return data

        try:
            async for data in in_order(read, range(ref.parts)):
                digest.update(data)
                size_bytes += len(data)
                yield data
        except (CorruptStateError, PayloadLostError) as error:
            message = f"{what} is lost: {error}"
            raise PayloadLostError(message) from error
        if digest.hexdigest() != ref.digest or size_bytes != ref.bytes:
            message = (
                f"{what} is damaged: the side object {ref.object} has {size_bytes:,} bytes with "
                f"another digest than the {ref.bytes:,} that were written"
            )
            raise PayloadLostError(message)

    async def _fetch(self, ref: SideRef, what: str, job: str = "", lease: str = "") -> bytes:
        return b"".join([chunk async for chunk in self._stream(ref, what, job, lease)])

    async def _with_payloads(self, records: Sequence[JobRecord]) -> list[Job[Any]]:
        """Return claimed jobs with their payloads; heartbeats are sent until they are here."""
        jobs = [self._wrap(record) for record in records]
        large = [job for job in jobs if job.is_unfetched]
        if not large:
            return jobs
        leases = tuple(job.lease for job in jobs)
        beating = asyncio.get_running_loop().create_task(self._beat(leases))
        try:
            async for _ in in_order(self._fill, large, _FETCHED_AT_ONCE):
                pass
        except BaseException:
            self._sender.send_later(ops.ReleaseMany(leases=leases))
            raise
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        return jobs

    async def _fetched(self, records: Sequence[JobRecord]) -> list[Job[Any]]:
        """Return jobs with their payloads; others send their heartbeats."""
        jobs = [self._wrap(record) for record in records]
        large = [job for job in jobs if job.is_unfetched]
        async for _ in in_order(self._fill, large, _FETCHED_AT_ONCE):
            pass
        return jobs

    async def _fill(self, job: Job[Any]) -> None:
        """Fetch a payload; if it is lost, reading it raises that."""
        record = job.record
        what = f"payload of job {record.id}"
        try:
            ref = read_ref(record.payload, what)
            data = await self._fetch(ref, what, record.id, record.lease or "")
        except (PayloadLostError, PayloadError, LeaseLostError) as error:
            job.lose_payload(error)
            return
        except BucketQError as error:
            # Raising it would leave the jobs of this claim to their leases.
            job.lose_payload(PayloadLostError(f"{what} could not be fetched: {error}"))
            return
        raw, encoding = inline_body(data, record.payload_encoding)
        job.record = replace(record, payload=raw, payload_encoding=encoding)

    async def _beat(self, leases: tuple[ops.LeaseRef, ...]) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            with suppress(BucketQError):
                await self._sender.send(ops.Heartbeat(leases=leases))

    async def _with_result(self, end: JobEnd) -> JobEnd:
        """Return how a job ended, with its result if that is a side object."""
        if not is_side(end.result_encoding):
            return end
        what = f"result of job {end.id}"
        data = await self._fetch(read_ref(end.result, what), what)
        raw, encoding = inline_body(data, end.result_encoding)
        return replace(end, result=raw, result_encoding=encoding)

    async def _push_large(
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
            return [*map(as_job_id, await self._send_jobs(jobs, files, send))]
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

    async def _send_jobs(
        self,
        jobs: list[NewJob],
        files: dict[int, FileContent],
        send: Callable[[tuple[NewJob, ...], int], Awaitable[tuple[str, ...]]],
    ) -> tuple[str, ...]:
        places = [n for n, job in enumerate(jobs) if n in files or self._is_large_job(job)]
        placed = [
            # A push that replaces the payload of another job does not know which one.
            Placed(files.get(n) or _content(jobs[n]), _job_of(jobs[n]), "payload")
            for n in places
        ]

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

    def _is_large_job(self, job: NewJob, payload: object = None) -> bool:
        """Whether a payload may be too large for its job, or is a file."""
        if len(memoryview(job.payload)) > self._inline_bytes:
            return not is_side(job.payload_encoding)
        return job.payload_encoding is not None and is_file(payload)

    async def _complete_large(
        self, request_id: RequestId, jobs: list[ops.Complete] | list[ops.Completion]
    ) -> Any:
        """Complete one job with a large result, or several of which some have one."""
        done: list[Any] = [*jobs]
        is_sent = False
        places = [
            n for n, job in enumerate(done) if self._is_large(job.result, job.result_encoding)
        ]
        placed = [
            Placed(_decoded(done[n].result, done[n].result_encoding), done[n].job, "result")
            for n in places
        ]

        async def send_named(tries: int) -> Any:
            nonlocal is_sent
            is_sent = True
            for n, each in zip(places, placed, strict=True):
                if each.object:
                    raw, encoding = each.body()
                    done[n] = replace(done[n], result=raw, result_encoding=encoding)
            is_single = isinstance(done[0], ops.Complete)
            operation = done[0] if is_single else ops.CompleteMany(jobs=tuple(done))
            if tries:
                return await self._sender.send(operation)
            return await self._sender.send_as(request_id, operation)

        try:
            return await self._send_placed(
                placed, send_named, lambda _, place: str(done[places[place]].job)
            )
        except UnavailableError as error:
            if is_sent:
                raise
            is_sent = True
            empty = done[0] if isinstance(done[0], ops.Complete) else ops.CompleteMany(jobs=())
            raise self._sender.not_sent(request_id, empty, error) from error
        finally:
            if not is_sent:
                self._sender.drop_id(request_id)


def _content(job: NewJob) -> SideContent:
    return _decoded(job.payload, job.payload_encoding)


def _decoded(raw: Raw, encoding: Encoding | None) -> SideContent:
    body = bytes(raw)
    return SideContent(body if encoding is None else base64.b64decode(body[1:-1]), encoding)


def _job_of(job: NewJob) -> str:
    return job.id if job.replace in (None, "run_at") else ""
