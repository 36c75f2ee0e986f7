"""``HandlerPayloads``: large payloads of jobs whose handlers run on an executor.

They are fetched before the handler begins. One that is too large for memory goes to a temporary
file, so that it is also there in a forked child, which cannot use connections of its parent.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import IO, Any, Self

from bucketq.errors import BucketQError, PayloadLostError
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import PART_BYTES
from bucketq.queue.job import FETCH_BYTES, Job
from bucketq.queue.large.payload_stream import PayloadStream
from bucketq.queue.large.side_content import content_bytes
from bucketq.spark.large_bodies import ReadBody, opened_bodies, size_of, with_body
from bucketq.spark.queue_access import QueueAccess


class FetchedJob:
    """A job with its payload."""

    def __init__(self, record: JobRecord) -> None:
        self.record = record
        self.lost: PayloadLostError | None = None
        """Why its payload is not here."""
        self.file: IO[bytes] | None = None
        """Has a payload that is too large for the record."""

    def job(self, loop_of: Callable[[], asyncio.AbstractEventLoop] | None = None) -> Job[Any]:
        """Return the job for a handler, which reads its payload on a loop: the running one."""
        loop_of = loop_of or partial(_same, asyncio.get_running_loop())
        job: Job[Any] = Job(self.record, Any, lambda _: PayloadStream(self._chunks(), loop_of()))
        if self.lost is not None:
            job.lose_payload(self.lost)
        return job

    def close(self) -> None:
        """Delete the file."""
        if self.file is not None:
            self.file.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        if self.lost is not None:
            raise self.lost
        file, at = self.file, 0
        if file is None:
            yield content_bytes(self.record.payload, self.record.payload_encoding)
        while file and (data := await asyncio.to_thread(os.pread, file.fileno(), PART_BYTES, at)):
            at += len(data)
            yield data


class HandlerPayloads:
    """Fetches payloads for the jobs of one task. Use it as ``async with``."""

    def __init__(self, access: QueueAccess | None) -> None:
        """Fetch from a queue; None: executors cannot reach it."""
        self._access = access
        self._stack = AsyncExitStack()
        self._read: ReadBody | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open nothing yet: few jobs have large payloads."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close what was opened."""
        await self._stack.aclose()

    async def fetch(self, record: JobRecord) -> FetchedJob:
        """Return a job with its payload; if that is lost, reading it fails the attempt."""
        fetched = FetchedJob(record)
        what = f"payload of job {record.id}"
        try:
            size_bytes = size_of(record, "payload")
            if not size_bytes:
                return fetched
            read = await self._opened()
            if size_bytes <= FETCH_BYTES:
                fetched.record = await with_body(read, record, "payload")
            else:
                fetched.file = await _to_file(read(record, "payload"))
        except PayloadLostError as error:
            fetched.lost = error
        except (BucketQError, OSError) as error:
            fetched.lost = PayloadLostError(f"{what} could not be fetched by the executor: {error}")
        return fetched

    async def _opened(self) -> ReadBody:
        async with self._opening:
            if self._access is None:
                message = (
                    "it was given a store or a credential provider of the driver; give the worker "
                    "an address that executors can open"
                )
                raise PayloadLostError(
                    f"executors cannot reach the queue of this worker: {message}"
                )
            if self._read is None:
                self._read = await self._stack.enter_async_context(opened_bodies(self._access))
            return self._read


def _same(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    return loop


async def _to_file(chunks: AsyncIterator[bytes]) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - `FetchedJob.close` closes it
    try:
        async for chunk in chunks:
            await asyncio.to_thread(file.write, chunk)
        await asyncio.to_thread(file.flush)
    except BaseException:
        file.close()
        raise
    return file
