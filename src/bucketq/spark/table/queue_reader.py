"""A queue at one version, as lines of JSON that are cut into parts for the executors.

The driver reads the queue once, so that all parts are of one version, and decodes as little of it
as it can: that is for the executors, of which there are many. Where it can reach the object, it
takes the lines from there; through a broker it asks for the jobs.
"""

from __future__ import annotations

import asyncio

import msgspec

from bucketq.client.blocking import connect_sync
from bucketq.client.connect import BROKERS
from bucketq.clock import SystemClock
from bucketq.codec import read_job_lines
from bucketq.errors import QueueNotFoundError, UnavailableError
from bucketq.spark.format_options import Access, ReadOptions
from bucketq.store.backoff import Backoff
from bucketq.store.base import ObjectMissingError
from bucketq.store.url import Location, open_store

_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 3.0
_encode = msgspec.json.Encoder().encode


class _Glance(msgspec.Struct):
    """What of a job decides whether it is wanted."""

    kind: str
    status: str


_glance = msgspec.json.Decoder(_Glance).decode


def read_snapshot(options: ReadOptions) -> list[bytes]:
    """The lines of the jobs that are wanted, in their order."""
    access = options.access
    if access.url.startswith(BROKERS):
        lines = _ask_broker(access)
    else:
        lines = asyncio.run(_read_object(access))
    if not options.statuses and not options.kinds:
        return lines
    return [line for line in lines if _is_wanted(_glance(line), options)]


def _is_wanted(job: _Glance, options: ReadOptions) -> bool:
    return (not options.statuses or job.status in options.statuses) and (
        not options.kinds or job.kind in options.kinds
    )


def _ask_broker(access: Access) -> list[bytes]:
    with connect_sync(
        access.url, launch="never", create=False, timeout_s=access.timeout_s, token=access.token
    ) as queue:
        return [_encode(job) for job in queue.snapshot().jobs]


async def _read_object(access: Access) -> list[bytes]:
    location = open_store(access.url)
    try:
        body = await _get(location, access.timeout_s)
    finally:
        await location.store.close()
    return read_job_lines(body, location.url)


async def _get(location: Location, timeout_s: float) -> bytes:
    """Read the object, trying again until the time is over."""
    backoff = Backoff(SystemClock(), _FIRST_RETRY_S, _LAST_RETRY_S)
    trouble: UnavailableError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return (await location.store.get(location.key)).body
                except UnavailableError as error:
                    trouble = error
                await backoff.wait()
    except ObjectMissingError as error:
        message = f"no queue at {location.url}; create one by pushing to it"
        raise QueueNotFoundError(message) from error
    except TimeoutError as error:
        message = (
            f"{location.url} could not be read within {timeout_s:g} s"
            f"{f' ({trouble})' if trouble else ''}: try again"
        )
        raise UnavailableError(message) from error
