"""``PayloadVerbs``: the part of ``Queue`` that reads payloads and results of any size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from bucketq.errors import PayloadError
from bucketq.model import operations as ops
from bucketq.model.records import JobRecord
from bucketq.queue.job import Job
from bucketq.queue.large.side_reader import SideReader
from bucketq.queue.sender import Sender


class PayloadVerbs:
    """Reading payloads and results in chunks."""

    _sender: Sender
    _reader: SideReader

    async def open_payload(self, job: Job[Any] | str) -> AsyncIterator[bytes]:
        """Yield the payload of a job in chunks: the bytes that were pushed, or its JSON.

        It works for payloads of any size; what is more than 16 MiB is read in no other way. Pass a
        job that was claimed, or any other job or id if you may read the queue.

        Raises:
            PayloadLostError: It is missing or damaged.
        """
        record = await self._record_of(job)
        async for chunk in self._reader.payload_of(record):
            yield chunk

    async def open_result(self, job: Job[Any] | str) -> AsyncIterator[bytes]:
        """Yield the result of a job in chunks, as ``open_payload`` does its payload."""
        record = await self._record_of(job)
        if not bytes(record.result):
            message = f"job {record.id} has no result"
            raise PayloadError(message)
        async for chunk in self._reader.result_of(record):
            yield chunk

    async def _record_of(self, job: Job[Any] | str) -> JobRecord:
        if isinstance(job, Job):
            return job.record
        record: JobRecord = await self._sender.send(ops.Get(job=str(job)))
        return record
