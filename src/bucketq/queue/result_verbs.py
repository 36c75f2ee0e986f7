"""``ResultVerbs``: the part of ``Queue`` that waits for the results of jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from bucketq.errors import JobCancelledError, JobFailedError, JobNotFoundError
from bucketq.model.results import FindArchived, JobEnd, Wait
from bucketq.queue import payload as payloads
from bucketq.queue.arguments import Duration, job_name, seconds
from bucketq.queue.sender import Sender

_STRETCH_S = 60.0
"""How long one request waits at most. A broker does not learn that a caller was cancelled, so it
keeps a request for this long in vain; with ten thousand callers, 170 requests come in a second."""


class ResultVerbs:
    """Waiting for jobs."""

    _sender: Sender

    async def wait(self, job_id: str, *, timeout_s: Duration = 30.0) -> Any:
        """Wait until a job is over, and return its result: plain values, or None.

        A broker sends the result as soon as it is committed; without one, the object is read again
        about once a second. Jobs that have been archived are found too: the search begins in the
        hour of the push, or a day ago if the id is your own, and ``timeout_s`` does not end it.

        Raises:
            JobFailedError: The job is dead; the error has its last failure.
            JobCancelledError: It was cancelled.
            JobNotFoundError: There is no such job, in the queue or in its archive.
            TimeoutError: It was not over within ``timeout_s``. It is still in the queue.
        """
        self._sender.check_open()
        job_id, limit_s = job_name(job_id), seconds(timeout_s, "timeout_s")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while True:
            wait_s = min(max(0.0, until_s - loop.time()), _STRETCH_S)
            end = await self._end_of(job_id, wait_s)
            if end is not None:
                return _result_of(end)
            if loop.time() >= until_s:
                message = f"job {job_id} was not over in {limit_s:g} s; wait again, or cancel it"
                raise TimeoutError(message)

    async def _end_of(self, job_id: str, wait_s: float) -> JobEnd | None:
        try:
            end: JobEnd | None = await self._sender.send(Wait(job=job_id, wait_s=wait_s))
        except JobNotFoundError:
            end = await self._sender.send(FindArchived(job=job_id))
        return end


def _result_of(end: JobEnd) -> Any:
    if end.outcome == "completed":
        what = f"result of job {end.id}"
        return payloads.decode_result(end.result, end.result_encoding, what)
    if end.outcome == "cancelled":
        message = f"job {end.id} was cancelled"
        raise JobCancelledError(message)
    error = "no error is known" if end.error is None else end.error.error
    message = f"job {end.id} failed: {error}"
    raise JobFailedError(message, error=error)
