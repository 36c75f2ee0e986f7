"""Large payloads and results on executors, which read them by themselves.

The driver sends jobs with references to side objects. An executor reads those that it needs from
the store, or from the broker if the address is that of a broker. None passes through the driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bucketq.archive.side_folder import SideFolder
from bucketq.clock import SystemClock
from bucketq.errors import BucketQError, PayloadLostError, UnavailableError
from bucketq.model.records import NOTHING, Encoding, JobRecord
from bucketq.model.side_objects import Content, is_side, read_ref, refs_of
from bucketq.queue.job import Job
from bucketq.queue.large.payload_stream import checked_parts, in_order
from bucketq.queue.large.side_content import inline_body
from bucketq.spark.format_options import check_shared
from bucketq.spark.queue_access import QueueAccess, opened_store
from bucketq.store.base import ObjectMissingError

ReadBody = Callable[[JobRecord, Content], AsyncIterator[bytes]]
"""Yields the payload or result of a job in chunks."""

_GROUP_BYTES = 64 << 20
"""How many bytes an executor fetches before it hands rows to Spark, which bounds its memory."""
_AT_ONCE = 4
"""How many bodies are fetched at once: enough to hide the latency of a store."""


class LargeRef(Struct, frozen=True):
    """What the columns ``payload_ref`` and ``result_ref`` show of a side object, as JSON."""

    object: str
    bytes: int
    digest: str
    part_bytes: int
    encoding: Encoding
    """``object`` if its bytes are JSON, and ``object-bytes`` otherwise."""


@asynccontextmanager
async def opened_bodies(access: QueueAccess) -> AsyncIterator[ReadBody]:
    """Open the store of a queue, or its broker, to read large payloads and results.

    Reading raises ``PayloadLostError`` if one is missing or damaged.
    """
    if access.is_broker:
        async with access.connection() as queue:

            def ask(record: JobRecord, content: Content) -> AsyncIterator[bytes]:
                job = Job[Any](record, Any)
                return queue.open_payload(job) if content == "payload" else queue.open_result(job)

            yield ask
        return
    check_shared(access.url)
    async with opened_store(access.url) as location:
        folder = SideFolder.of(location.store, location.key, SystemClock())

        def read(record: JobRecord, content: Content) -> AsyncIterator[bytes]:
            what = f"{content} of job {record.id}"
            ref = read_ref(getattr(record, content), what)

            async def part(number: int) -> bytes:
                try:
                    return await folder.read_part(ref.object, number)
                except ObjectMissingError as error:
                    message = (
                        f"an executor does not find {folder.address}{ref.object}: it was deleted, "
                        "or the executors have no access to the store of the queue"
                    )
                    raise PayloadLostError(message) from error

            return checked_parts(part, ref, what)

        yield read


def size_of(record: JobRecord, content: Content) -> int:
    """Return how many bytes a payload or result has that is a side object; 0: it is in its job."""
    raw, encoding = getattr(record, content), getattr(record, f"{content}_encoding")
    if raw is NOTHING or not is_side(encoding):
        return 0
    return read_ref(raw, f"{content} of job {record.id}").bytes


async def with_body(read: ReadBody, record: JobRecord, content: Content) -> JobRecord:
    """Return a job with its payload or result in it, instead of the reference."""
    data = b"".join([chunk async for chunk in read(record, content)])
    raw, encoding = inline_body(data, getattr(record, f"{content}_encoding"))
    return replace(record, **{content: raw, f"{content}_encoding": encoding})


def with_bodies(
    access: QueueAccess, jobs: Sequence[JobRecord], most_bytes: int
) -> Iterator[Sequence[JobRecord]]:
    """Yield jobs, with payloads and results of up to ``most_bytes`` each in them, some at a time.

    Nothing is opened if there is nothing to fetch.

    Raises:
        PayloadLostError: One is missing or damaged.
        UnavailableError: It could not be fetched.
    """
    if not any(refs_of(job) and _wanted(job, most_bytes) for job in jobs):
        yield jobs
        return
    with asyncio.Runner() as runner:
        opened = opened_bodies(access)
        read = runner.run(opened.__aenter__())
        try:
            for some in _groups(jobs, most_bytes):
                yield runner.run(_fetch(read, some, most_bytes))
        finally:
            runner.run(opened.__aexit__(None, None, None))


def _wanted(job: JobRecord, most_bytes: int) -> list[tuple[Content, int]]:
    contents: tuple[Content, ...] = ("payload", "result")
    sizes = [(content, size_of(job, content)) for content in contents]
    return [(content, size) for content, size in sizes if 0 < size <= most_bytes]


def _groups(jobs: Sequence[JobRecord], most_bytes: int) -> Iterator[list[JobRecord]]:
    some: list[JobRecord] = []
    left = _GROUP_BYTES
    for job in jobs:
        size = sum(size for _, size in _wanted(job, most_bytes))
        if some and size > left:
            yield some
            some, left = [], _GROUP_BYTES
        some.append(job)
        left -= size
    if some:
        yield some


async def _fetch(read: ReadBody, jobs: Sequence[JobRecord], most_bytes: int) -> Sequence[JobRecord]:
    async def fill(job: JobRecord) -> JobRecord:
        for content, _ in _wanted(job, most_bytes):
            try:
                job = await with_body(read, job, content)
            except PayloadLostError as error:
                hint = 'to read the other columns, set option("fetchBytes", "0")'
                raise PayloadLostError(f"{error}; {hint}") from error
            except BucketQError as error:
                message = f"an executor cannot fetch the {content} of job {job.id}: {error}"
                raise UnavailableError(message) from error
        return job

    return [job async for job in in_order(fill, jobs, _AT_ONCE)]
