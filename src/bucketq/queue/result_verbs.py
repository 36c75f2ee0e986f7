"""``ResultVerbs``: the part of ``Queue`` that waits for the results of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from bucketq.errors import (
    InvalidRequestError,
    JobCancelledError,
    JobExpiredError,
    JobFailedError,
    JobNotFoundError,
)
from bucketq.model.records import Progress
from bucketq.model.results import FindArchived, JobEnd, Wait, progress_text
from bucketq.queue import payload as payloads
from bucketq.queue.arguments import Duration, job_name, seconds
from bucketq.queue.large.side_reader import SideReader
from bucketq.queue.promised_jobs import PromisedJobId
from bucketq.queue.sender import Sender

_STRETCH_S = 60.0
"""How long one request waits at most. A broker does not learn that a caller was cancelled, so it
keeps a request for this long in vain; with ten thousand callers, 170 requests come in a second."""


class ResultVerbs:
    """Waiting for jobs."""

    _sender: Sender
    _reader: SideReader

    async def wait(
        self,
        job_id: str,
        *,
        timeout_s: Duration = 30.0,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Any:
        """Wait until a job is over, and return its result: plain values, or None.

        ``on_progress`` is called whenever the handler has reported how far it has come, which
        arrives with the next heartbeat of its worker. If it is async, it is awaited.

        A broker sends the result as soon as it is committed; without one, the object is read again
        about once a second. Jobs that have been archived are found too. For ``result_retention_s``
        the queue knows where a result is that is not null. Others are searched for, from the hour
        of the push on, or for a day back if the id is your own; ``timeout_s`` does not end that.

        Raises:
            JobFailedError: The job is dead; the error has its last failure.
            JobCancelledError: It was cancelled.
            JobExpiredError: It was not started before it expired.
            JobNotFoundError: There is no such job, in the queue or in its archive.
            TimeoutError: It was not over within ``timeout_s``. It is still in the queue.
        """
        self._sender.check_open()
        if isinstance(job_id, PromisedJobId) and job_id.is_pending:
            message = (
                f"job {job_id} is pushed when this handler has returned, so waiting for it here "
                "would never end: push it with queue.push"
            )
            raise InvalidRequestError(message)
        job_id, limit_s = job_name(job_id), seconds(timeout_s, "timeout_s")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        seen = "" if on_progress is None else progress_text(None)
        while True:
            wait_s = min(max(0.0, until_s - loop.time()), _STRETCH_S)
            news = await self._news_of(Wait(job=job_id, wait_s=wait_s, seen=seen))
            if isinstance(news, JobEnd):
                return _result_of(await self._reader.with_result(news))
            if news is not None and on_progress is not None:
                seen = progress_text(news)
                called = on_progress(news)
                if isawaitable(called):
                    await called
            if loop.time() >= until_s:
                message = f"job {job_id} was not over in {limit_s:g} s; wait again, or cancel it"
                raise TimeoutError(message)

    async def _news_of(self, wait: Wait) -> JobEnd | Progress | None:
        try:
            news: JobEnd | Progress | None = await self._sender.send(wait)
        except JobNotFoundError:
            news = await self._sender.send(FindArchived(job=wait.job))
        return news


def _result_of(end: JobEnd) -> Any:
    if end.outcome == "completed":
        what = f"result of job {end.id}"
        return payloads.decode_result(end.result, end.result_encoding, what)
    if end.outcome == "cancelled":
        message = f"job {end.id} was cancelled"
        raise JobCancelledError(message)
    if end.outcome == "expired":
        message = f"job {end.id} was not started before it expired"
        raise JobExpiredError(message)
    error = "no error is known" if end.error is None else end.error.error
    message = f"job {end.id} failed: {error}"
    raise JobFailedError(message, error=error)
