"""How an object comes and goes: create, delete, back up, restore."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec.structs import replace

from bucketq.admin.place import (
    ChangedMeanwhileError,
    Place,
    Summary,
    find,
    is_tombstone,
    look,
    new_commit,
    save_beside,
    summarize,
    tombstone,
    write,
)
from bucketq.archive import Layout
from bucketq.clock import new_id
from bucketq.codec import Document, decode
from bucketq.errors import CorruptStateError, NewerFormatError, RejectedError, UnavailableError
from bucketq.model.operations import Release, Request
from bucketq.model.sessions import Sessions
from bucketq.model.settings import Settings, changed
from bucketq.model.state import State
from bucketq.model.transitions import apply
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import StoredObject

_ATTEMPT_STEP = 1000
"""How far a restore raises attempts: further than a job gets between a copy and its return."""
_VERSION = re.compile(rb'"version":\s*(\d{1,18})')
_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Copy:
    """A verified copy of an object."""

    body: bytes
    summary: Summary


@dataclass(frozen=True)
class Restored:
    """What came back, and what it took the place of."""

    summary: Summary
    released: int
    """Jobs that were running in the copy, and wait again."""
    saved: str | None
    """The key under which what was there before is kept."""


async def create(place: Place, settings: dict[str, object] | None = None) -> Summary:
    """Create an empty queue.

    Raises:
        RejectedError: There is one already, or something else.
        InvalidRequestError: A setting is not known or makes no sense.
    """
    chosen = changed(Settings(), settings or {})
    found = await find(place)
    if found is not None and not is_tombstone(found.body):
        message = f"there is a queue at {place.where} already; it is left as it is"
        raise RejectedError(message)
    state = State(incarnation=new_id(place.clock), created_at=place.clock.now())
    state.settings = chosen
    await _stamp_and_write(place, Document(state), None if found is None else found.etag)
    return summarize(state)


async def delete(place: Place, seen: StoredObject, *, archive: bool = False) -> int:
    """Delete the object if it still is what was seen; return how many archive objects went with it.

    A store deletes whatever is there. So the object is first replaced, under its etag, by one
    that is not a queue: from then on no process commits to it, and no job can slip in between.

    Raises:
        ChangedMeanwhileError: It is not.
    """
    stone = seen.body
    if not is_tombstone(stone):
        stone = tombstone(place, new_commit(place))
        await write(place, stone, seen.etag)
    await _remove(place, stone)
    if not archive:
        return 0
    layout = Layout.of(place.store.url, place.key)
    keys = [info.key async for info in place.store.list(layout.root) if layout.owns(info.key)]
    for key in keys:
        await place.store.delete(key)
    return len(keys)


async def backup(place: Place) -> Copy:
    """Read the object and see that it can be trusted.

    Raises:
        QueueNotFoundError: There is none.
        CorruptStateError: It cannot be trusted; a copy of it would not be a backup.
    """
    body = (await look(place)).body
    return Copy(body, summarize(decode(body, place.where).state))


async def save_to(place: Place, copy: Copy, *, overwrite: bool = False) -> None:
    """Write a copy to another object.

    Raises:
        ChangedMeanwhileError: There is an object, and it is not to be overwritten.
    """
    etag = None
    if overwrite:
        found = await find(place)
        etag = None if found is None else found.etag
    await write(place, copy.body, etag)
    found = await find(place)
    if found is None or found.body != copy.body:
        message = f"the copy at {place.where} is not what was written; do not rely on it"
        raise CorruptStateError(message)


async def restore(place: Place, body: bytes, *, overwrite: bool = False) -> Restored:
    """Bring a saved copy back, as a new incarnation.

    Its version goes on above both that of the copy and that of what is there, and requests of
    before are answered *unknown*. Jobs that were running wait again at no cost, since their
    workers are cut off. Attempts are raised beyond what any of those workers can hold, so that
    what fences by them refuses the old ones.

    Raises:
        RejectedError: There is a queue, and it is not to be replaced.
        CorruptStateError: The copy cannot be trusted, or a newer bucketq has written what is there.
    """
    document = decode(body, "the copy")
    found = await find(place)
    is_free = found is None or is_tombstone(found.body)
    if not is_free and not overwrite:
        message = (
            f"there is a queue at {place.where} already; to put the copy in its place, and lose "
            "what it holds, use --replace"
        )
        raise RejectedError(message)
    label, present = ("replaced", None) if found is None else _read_present(place, found.body)
    saved = None if found is None or is_free else await save_beside(place, found.body, label)
    released = _renew(place, document.state, present, _version_of(found))
    await _stamp_and_write(place, document, None if found is None else found.etag)
    return Restored(summarize(document.state), released, saved)


def _read_present(place: Place, body: bytes) -> tuple[str, State | None]:
    """What to call a copy of what is there, and what it holds where it can be read."""
    try:
        return "replaced", decode(body, place.where).state
    except NewerFormatError:
        raise
    except CorruptStateError:
        return "broken", None


def _version_of(found: StoredObject | None) -> int:
    """The version of an object, also of a damaged one as far as it can be read."""
    written = None if found is None else _VERSION.search(found.body, 0, _HEAD_BYTES)
    return int(written[1]) if written else 0


def _renew(place: Place, state: State, present: State | None, present_version: int) -> int:
    """Make a state that was read the first one of a new incarnation; return what was released."""
    now = place.clock.now()
    running = [state.jobs.by_id[job_id] for job_id in state.running]
    for job in running:
        apply(state, Request(Release(job=job.id, lease=job.lease or "")), now).result()
    for job in list(state.jobs):
        if job.status == "done":
            continue
        other = None if present is None else present.jobs.get(job.id)
        attempt = max(job.attempt, 0 if other is None else other.attempt)
        state.put_job(replace(job, attempt=attempt + _ATTEMPT_STEP))
    state.incarnation = new_id(place.clock)
    state.version = max(state.version, present_version)
    state.commits.clear()
    state.broker = None
    state.sessions = Sessions(horizon=state.version + 1)
    return len(running)


async def _stamp_and_write(place: Place, document: Document, etag: str | None) -> None:
    # A fresh document, because the sections of one that was read hold on to the old tables.
    prepared = Document(document.state).prepare(new_commit(place))
    try:
        await write(place, prepared.body, etag, prepared.commit)
    except ChangedMeanwhileError as error:
        if etag is None:
            message = f"there is a queue at {place.where} already; it is left as it is"
            raise ChangedMeanwhileError(message) from error
        raise


async def _remove(place: Place, stone: bytes) -> None:
    """Delete a tombstone, looking before each further try whether it still is there."""
    backoff = RetryBackoff(place.clock, 0.05, 3.0)
    for _ in range(20):
        try:
            await place.store.delete(place.key)
        except UnavailableError:
            await backoff.wait()
        found = await find(place)
        if found is None or found.body != stone:
            return
    message = f"{place.where} could not be deleted; it takes no jobs any more, try again"
    raise UnavailableError(message)
