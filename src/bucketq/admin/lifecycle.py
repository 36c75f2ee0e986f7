"""Creates, deletes and restores the object of a queue."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec.structs import replace

from bucketq.admin.queue_object import (
    QueueObject,
    Summary,
    summarize,
)
from bucketq.archive import Layout
from bucketq.clock import new_id
from bucketq.codec import decode, is_tombstone, tombstone
from bucketq.errors import CorruptStateError, NewerFormatError, RejectedError, UnavailableError
from bucketq.model.operations import Release, Request
from bucketq.model.sessions import Sessions
from bucketq.model.settings import DEEP, changed
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.store.base import StoredObject

# More attempts than a job makes between a backup and its restore, and still readable.
_ATTEMPT_STEP = 1000
_VERSION = re.compile(rb'"version":\s*(\d{1,18})')
# The version is among the first fields; payloads, which may quote one, come later.
_HEAD_BYTES = 64 * 1024
# With the backoff about half a minute; the command can be repeated at any later time.
_DELETE_TRIES = 20


@dataclass(frozen=True)
class Restored:
    """The restored queue, and what it replaced."""

    summary: Summary
    released: int
    """Jobs that were running in the copy, and are queued again."""
    saved: str | None
    """The key of a copy of the replaced object."""


async def create(target: QueueObject, settings: dict[str, object] | None = None) -> Summary:
    """Create an empty queue.

    Raises:
        RejectedError: There is an object already.
        InvalidRequestError: A setting is unknown or invalid.
    """
    chosen = changed(DEEP, settings or {})
    found = await target.find()
    if found is not None and not is_tombstone(found.body):
        raise RejectedError(f"there is a queue at {target.url} already; it is left as it is")
    state = State(incarnation=new_id(target.clock), created_at=target.clock.now())
    state.settings = chosen
    await target.write_state(state, None if found is None else found.etag)
    return summarize(state)


async def delete(target: QueueObject, seen: StoredObject, *, archive: bool = False) -> int:
    """Delete the object if it is still the one that was seen; return how many archive files too.

    A store deletes whatever is there. So the object is first replaced, under its etag, by one
    that is not a queue: from then on no process commits to it, and no job can be added in between.

    Raises:
        ChangedMeanwhileError: It was changed; nothing was deleted.
    """
    stone = seen.body
    if not is_tombstone(stone):
        stone = tombstone(target.clock.now(), target.new_commit())
        await target.write(stone, seen.etag)
    await _remove(target, stone)
    if not archive:
        return 0
    layout = Layout.of(target.store.url, target.key)
    keys = [info.key async for info in target.store.list(layout.root) if layout.owns(info.key)]
    for key in keys:
        await target.store.delete(key)
    return len(keys)


async def restore(target: QueueObject, body: bytes, *, overwrite: bool = False) -> Restored:
    """Restore a saved copy as a new incarnation.

    Its version is above those of the copy and of the replaced object, and earlier requests are
    answered *unknown*. Jobs that were running are queued again without using up an attempt, since
    their workers are disconnected. Attempt numbers are raised beyond those that any of these
    workers can hold, so that systems that fence by them reject the old workers.

    Raises:
        RejectedError: There is a queue, and ``overwrite`` is not set.
        CorruptStateError: The copy is damaged, or a newer bucketq wrote the present object.
    """
    state = decode(body, "the copy").state
    found = await target.find()
    is_free = found is None or is_tombstone(found.body)
    if not is_free and not overwrite:
        raise RejectedError(
            f"there is a queue at {target.url} already; to replace it with the copy, and lose its "
            "jobs, use --replace"
        )
    label, present = ("replaced", None) if found is None else _read_present(target, found.body)
    saved = None if found is None or is_free else await target.save_beside(found.body, label)
    released = _renew(target, state, present, _version_of(found))
    await target.write_state(state, None if found is None else found.etag)
    return Restored(summarize(state), released, saved)


def _read_present(target: QueueObject, body: bytes) -> tuple[str, State | None]:
    """Return the label for a copy of the present object, and its state if it can be read."""
    try:
        return "replaced", decode(body, target.url).state
    except NewerFormatError:
        raise
    except CorruptStateError:
        return "broken", None


def _version_of(found: StoredObject | None) -> int:
    """The version of an object, even of a damaged one if it can be read; 0 if not."""
    written = None if found is None else _VERSION.search(found.body, 0, _HEAD_BYTES)
    return int(written[1]) if written else 0


def _renew(target: QueueObject, state: State, present: State | None, present_version: int) -> int:
    """Make a state the first of a new incarnation; return how many jobs were released."""
    now = target.clock.now()
    running = [state.jobs.by_id[job_id] for job_id in state.running]
    for job in running:
        apply(state, Request(Release(job=job.id, lease=job.lease or "")), now).result()
    for job in list(state.jobs):
        if job.status == "done":
            continue
        other = None if present is None else present.jobs.get(job.id)
        attempt = max(job.attempt, 0 if other is None else other.attempt)
        state.put_job(replace(job, attempt=attempt + _ATTEMPT_STEP))
    state.incarnation = new_id(target.clock)
    state.version = max(state.version, present_version)
    state.commits.clear()
    state.broker = None
    state.sessions = Sessions(horizon=state.version + 1)
    return len(running)


async def _remove(target: QueueObject, stone: bytes) -> None:
    """Delete a tombstone, checking before each retry that it is still there."""
    backoff = target.backoff()
    for _ in range(_DELETE_TRIES):
        try:
            await target.store.delete(target.key)
        except UnavailableError:
            await backoff.wait()
        found = await target.find()
        if found is None or found.body != stone:
            return
    raise UnavailableError(f"{target.url} could not be deleted; it accepts no more jobs, try again")
