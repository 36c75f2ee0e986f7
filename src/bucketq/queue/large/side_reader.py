"""``SideReader``: reads large payloads and results, and makes jobs of records.

A payload is fetched by the worker that claims its job. One that is more than 16 MiB, and those of
jobs that no worker holds, are read in chunks when they are asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bucketq.errors import (
    BucketQError,
    LeaseLostError,
    PayloadError,
    PayloadLostError,
)
from bucketq.model import operations as ops
from bucketq.model.records import Encoding, JobRecord
from bucketq.model.results import JobEnd
from bucketq.model.side_objects import ReadPart, SideRef, is_side, read_ref
from bucketq.queue.job import Job
from bucketq.queue.large.payload_stream import PayloadStream, checked_parts, in_order
from bucketq.queue.large.side_content import content_bytes, inline_body
from bucketq.queue.sender import Sender

_FETCHED_AT_ONCE = 4
"""How many payloads a claim fetches at once."""
_BEAT_S = 2.0
"""How often a claim that fetches payloads sends heartbeats: several times in the shortest lease
that is of use."""


class SideReader:
    """Reads the large payloads and results of one queue."""

    def __init__(self, sender: Sender, payload_type: Any) -> None:
        """Read through ``sender``, and decode payloads into ``payload_type``."""
        self._sender = sender
        self._payload_type = payload_type

    def job(self, record: JobRecord) -> Job[Any]:
        """Return a job that can open its payload."""
        return Job(record, self._payload_type, self._open_stream)

    def _open_stream(self, job: Job[Any]) -> PayloadStream:
        return PayloadStream(self.payload_of(job.record), self._sender.loop)

    def payload_of(self, record: JobRecord) -> AsyncIterator[bytes]:
        """Yield the payload of a job in chunks."""
        what = f"payload of job {record.id}"
        return self._chunks(record, record.payload, record.payload_encoding, what)

    def result_of(self, record: JobRecord) -> AsyncIterator[bytes]:
        """Yield the result of a job in chunks."""
        what = f"result of job {record.id}"
        return self._chunks(record, record.result, record.result_encoding, what)

    async def fetch_claimed(self, jobs: Sequence[Job[Any]]) -> None:
        """Fetch the payloads of claimed jobs; heartbeats are sent until they are here."""
        large = [job for job in jobs if job.is_unfetched]
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

    async def fetched(self, records: Sequence[JobRecord]) -> list[Job[Any]]:
        """Return jobs with their payloads; others send their heartbeats."""
        jobs = [self.job(record) for record in records]
        large = [job for job in jobs if job.is_unfetched]
        async for _ in in_order(self._fill, large, _FETCHED_AT_ONCE):
            pass
        return jobs

    async def with_result(self, end: JobEnd) -> JobEnd:
        """Return how a job ended, with its result if that is a side object."""
        if not is_side(end.result_encoding):
            return end
        what = f"result of job {end.id}"
        data = await self._fetch(read_ref(end.result, what), what)
        raw, encoding = inline_body(data, end.result_encoding)
        return replace(end, result=raw, result_encoding=encoding)

    async def _chunks(
        self, record: JobRecord, raw: Raw, encoding: Encoding | None, what: str
    ) -> AsyncIterator[bytes]:
        if is_side(encoding):
            lease = record.lease or "" if record.status == "running" else ""
            async for chunk in self._stream(read_ref(raw, what), what, record.id, lease):
                yield chunk
        else:
            yield content_bytes(raw, encoding)

    def _stream(
        self, ref: SideRef, what: str, job: str = "", lease: str = ""
    ) -> AsyncIterator[bytes]:
        """Yield a side object part by part, and check it at the end."""

        async def read(part: int) -> bytes:
            operation = ReadPart(object=ref.object, part=part, job=job, lease=lease)
            data: bytes = await self._sender.send(operation)
            return data

        return checked_parts(read, ref, what)

    async def _fetch(self, ref: SideRef, what: str, job: str = "", lease: str = "") -> bytes:
        return b"".join([chunk async for chunk in self._stream(ref, what, job, lease)])

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
