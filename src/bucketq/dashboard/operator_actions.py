"""What the page can change, each by an ordinary verb of the queue.

An action is a document with the field ``action``. Actions on all jobs that match a filter are made
in slices: an answer says how many jobs were changed and where to continue, so the page can show how
far it is, and stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct, field

from bucketq.dashboard.job_views import JobFilter, page_of
from bucketq.errors import InvalidRequestError, JobNotFoundError, PayloadError
from bucketq.model import check
from bucketq.model.settings import Settings
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue

_AT_ONCE = 25
"""How many jobs are changed at once: a broker commits them together."""


class OperatorAction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user asks for; which fields are needed depends on ``action``."""

    action: str
    job: str = ""
    kind: str | None = None
    """Of ``pause`` and ``resume``; None: all kinds."""
    name: str = ""
    """A worker, schedule, batch, consumer, token or limit."""
    filter: JobFilter = field(default_factory=JobFilter)
    after: int = 0
    settings: dict[str, Any] = {}
    payload: str | None = None
    """JSON, of ``push``; None: as the job has it."""
    priority: int | None = None
    """Of ``push`` (None: as the job has it) and ``set-priority``."""


class Changed(Struct, frozen=True, kw_only=True):
    """What came of an action, as a sentence and in numbers."""

    text: str
    count: int = 1
    next_after: int | None = None
    """Where the next slice begins; None: there is none."""
    job: str = ""
    """The job that was pushed."""


Perform = Callable[[Queue[Any], OperatorAction], Awaitable[Changed]]


async def perform(queue: Queue[Any], action: OperatorAction) -> Changed:
    """Do what was asked for. Raises ``InvalidRequestError`` if there is no such action."""
    chosen = ACTIONS.get(action.action)
    if chosen is None:
        raise InvalidRequestError(f"unknown action {action.action!r}")
    return await chosen(queue, action)


async def _cancel(queue: Queue[Any], action: OperatorAction) -> Changed:
    answer = await queue.cancel(action.job)
    return Changed(text=f"job {action.job}: {answer.replace('_', ' ')}")


async def _set_priority(queue: Queue[Any], action: OperatorAction) -> Changed:
    priority = _priority_of(action)
    await queue.set_priority(action.job, priority)
    return Changed(text=f"job {action.job} has priority {priority}")


def _priority_of(action: OperatorAction) -> int:
    if action.priority is None:
        message = "say which priority: the smaller number goes first"
        raise InvalidRequestError(message)
    check.priority(action.priority)
    return action.priority


async def _redrive(queue: Queue[Any], action: OperatorAction) -> Changed:
    count = await queue.redrive([action.job])
    return Changed(text=f"job {action.job} is queued again", count=count)


async def _purge(queue: Queue[Any], action: OperatorAction) -> Changed:
    count = await queue.purge([action.job])
    return Changed(text=f"job {action.job} was moved to the archive", count=count)


async def _push(queue: Queue[Any], action: OperatorAction) -> Changed:
    """Push a new job like another one, perhaps with another payload or priority."""
    job = await queue.get(action.job)
    payload = await _whole_payload(queue, job)
    if action.payload is not None:
        try:
            payload = msgspec.json.decode(action.payload)
        except msgspec.DecodeError as error:
            raise PayloadError(f"the payload is not JSON: {error}") from error
    new = await queue.push(
        job.kind,
        payload,
        priority=job.priority if action.priority is None else action.priority,
        max_attempts=job.max_attempts,
        backoff=job.backoff,
        tags=job.tags or None,
        group=job.group,
    )
    return Changed(text=f"pushed job {new}", job=str(new))


async def _whole_payload(queue: Queue[Any], job: Job[Any]) -> Any:
    """Return the payload of a job, fetched if it is large."""
    if not job.is_unfetched:
        return job.payload  # Raises if it is too large to be copied here.
    content = b"".join([chunk async for chunk in queue.open_payload(job)])
    return (
        content if job.record.payload_encoding == "object-bytes" else msgspec.json.decode(content)
    )


async def _cancel_all(queue: Queue[Any], action: OperatorAction) -> Changed:
    async def cancel(queue: Queue[Any], names: list[str]) -> int:
        return await _each(names, queue.cancel)

    return await _slice(queue, action, ("queued", "running"), cancel)


async def _set_priority_all(queue: Queue[Any], action: OperatorAction) -> Changed:
    priority = _priority_of(action)

    async def change(queue: Queue[Any], names: list[str]) -> int:
        return await _each(names, lambda name: queue.set_priority(name, priority))

    return await _slice(queue, action, ("queued",), change)


async def _redrive_all(queue: Queue[Any], action: OperatorAction) -> Changed:
    return await _slice(queue, action, ("dead",), lambda queue, jobs: queue.redrive(jobs))


async def _purge_all(queue: Queue[Any], action: OperatorAction) -> Changed:
    return await _slice(queue, action, ("dead",), lambda queue, jobs: queue.purge(jobs))


async def _slice(
    queue: Queue[Any],
    action: OperatorAction,
    statuses: tuple[str, ...],
    change: Callable[[Queue[Any], list[str]], Awaitable[int]],
) -> Changed:
    """Change the next jobs that match the filter and can be changed in this way."""
    query = action.filter.query()
    wanted = [each for each in statuses if not action.filter.status or each in action.filter.status]
    if not wanted:
        message = f"only jobs that are {' or '.join(statuses)} can be changed in this way"
        raise InvalidRequestError(message)
    page = await page_of(queue, query | {"statuses": wanted}, action.after)
    names = [job.id for job in page.jobs if not job.cancel_requested]
    count = await change(queue, names) if names else 0
    return Changed(text=f"{count:,} jobs", count=count, next_after=page.next_after)


async def _each(names: list[str], change: Callable[[str], Awaitable[object]]) -> int:
    """Change jobs one by one, and return how many were changed."""

    async def try_one(name: str) -> bool:
        try:
            await change(name)
        except (JobNotFoundError, InvalidRequestError):
            return False  # It has left, or was claimed since it was listed.
        return True

    count = 0
    for start in range(0, len(names), _AT_ONCE):
        count += sum(await asyncio.gather(*map(try_one, names[start : start + _AT_ONCE])))
    return count


async def _pause(queue: Queue[Any], action: OperatorAction) -> Changed:
    await queue.pause(action.kind)
    return Changed(text=f"{action.kind or 'the queue'} is paused")


async def _resume(queue: Queue[Any], action: OperatorAction) -> Changed:
    await queue.resume(action.kind)
    return Changed(text=f"{action.kind or 'the queue'} is resumed")


async def _drain(queue: Queue[Any], action: OperatorAction) -> Changed:
    names = [each.name for each in await queue.workers() if each.id == action.name]
    count = await queue.drain(action.name)
    # The page gives the id, because several may have the same name; people know the name.
    return Changed(text=f"worker {(names or [action.name])[0]} was asked to finish", count=count)


async def _configure(queue: Queue[Any], action: OperatorAction) -> Changed:
    if unknown := [name for name in action.settings if name not in Settings.__struct_fields__]:
        raise InvalidRequestError(f"there is no setting {unknown[0]!r}")
    await queue.configure(**action.settings)
    return Changed(text=f"changed {', '.join(action.settings)}")


async def _pause_schedule(queue: Queue[Any], action: OperatorAction) -> Changed:
    await queue.pause_schedule(action.name)
    return Changed(text=f"schedule {action.name} is paused")


async def _resume_schedule(queue: Queue[Any], action: OperatorAction) -> Changed:
    await queue.resume_schedule(action.name)
    return Changed(text=f"schedule {action.name} is resumed")


async def _run_schedule(queue: Queue[Any], action: OperatorAction) -> Changed:
    job = await queue.run_schedule(action.name)
    return Changed(text=f"schedule {action.name} pushed job {job}", job=job)


async def _close_batch(queue: Queue[Any], action: OperatorAction) -> Changed:
    batch = await queue.close_batch(action.name)
    return Changed(text=f"batch {action.name} is {batch.status}")


async def _revoke_token(queue: Queue[Any], action: OperatorAction) -> Changed:
    if not await queue.revoke_token(action.name):
        return Changed(text=f"there is no token {action.name}: it was revoked before", count=0)
    return Changed(text=f"token {action.name} was revoked")


ACTIONS: dict[str, Perform] = {
    "cancel": _cancel,
    "set-priority": _set_priority,
    "redrive": _redrive,
    "purge": _purge,
    "push": _push,
    "cancel-all": _cancel_all,
    "set-priority-all": _set_priority_all,
    "redrive-all": _redrive_all,
    "purge-all": _purge_all,
    "pause": _pause,
    "resume": _resume,
    "drain": _drain,
    "configure": _configure,
    "pause-schedule": _pause_schedule,
    "resume-schedule": _resume_schedule,
    "run-schedule": _run_schedule,
    "close-batch": _close_batch,
    "revoke-token": _revoke_token,
}
"""What can be asked for. Each needs the right ``admin``, but ``push`` and ``close-batch``."""
