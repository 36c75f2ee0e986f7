"""Jobs of a ``Workbench``, with large payloads and results in them: tests compare plain values."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bucketq.model.side_objects import is_side
from bucketq.queue.job import Job
from bucketq.queue.large.side_content import inline_body
from bucketq.queue.queue import Queue


async def whole_job(queue: Queue[Any], job: Job[Any]) -> Job[Any]:
    """Fetch what a job only names, whatever its size."""
    record = job.record
    if is_side(record.payload_encoding):
        data = b"".join([chunk async for chunk in queue.open_payload(job)])
        raw, encoding = inline_body(data, record.payload_encoding)
        record = replace(record, payload=raw, payload_encoding=encoding)
    if is_side(record.result_encoding):
        data = b"".join([chunk async for chunk in queue.open_result(job)])
        raw, encoding = inline_body(data, record.result_encoding)
        record = replace(record, result=raw, result_encoding=encoding)
    if record is not job.record:
        job.record = record
    return job
