"""Editing the object as text: out to an editor, and back under compare-and-set.

Somebody who edits is slow, and a queue in use changes every few seconds. So where the object
was changed meanwhile, the jobs and settings that the person has changed are changed in the newest
version, provided that nobody else has touched just these. If somebody has, the edit is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from bucketq.codec import Document, decode
from bucketq.errors import CorruptStateError, InvalidRequestError, QueueNotFoundError
from bucketq.model.job import JobRecord
from bucketq.model.state import State
from bucketq.queue.admin.place import (
    ChangedMeanwhileError,
    Place,
    Summary,
    find,
    look,
    new_commit,
    summarize,
    write,
)
from bucketq.queue.admin.repair import reason_of

_TRIES = 20
_CHANGEABLE = ("settings", "paused", "paused_kinds")


@dataclass(frozen=True)
class Draft:
    """An object that was handed out to be edited."""

    text: bytes
    body: bytes
    etag: str


@dataclass(frozen=True)
class Edited:
    """What an edit has led to."""

    summary: Summary
    changed: int
    """How many jobs were changed, added or removed."""
    unknown: tuple[str, ...]
    """Fields that were added and that bucketq does not know: mistyped, perhaps."""


async def begin_edit(place: Place, *, pretty: bool = False) -> Draft:
    """Hand out the object as text: as it is, one job a line, or indented.

    Raises:
        CorruptStateError: It has to be repaired first.
    """
    found = await look(place)
    decode(found.body, place.where)
    text = msgspec.json.format(found.body, indent=2) + b"\n" if pretty else found.body
    return Draft(text, found.body, found.etag)


async def finish_edit(place: Place, draft: Draft, text: bytes) -> Edited:
    """Write an edited text as the next version of the object.

    Raises:
        InvalidRequestError: The text is not a queue; nothing was written.
        ChangedMeanwhileError: Somebody else has changed the same; nothing was written.
    """
    base = decode(draft.body, place.where, accept=True).state
    document = _read_text(text, base)
    edited = document.state
    changes = _changes(base, edited)
    unknown = tuple(
        f"{name} ({slot[0]} {slot[1]})".replace(" )", ")")
        for slot, fields in edited.extra.items()
        for name in fields
        if name not in base.extra.get(slot, {})
    )
    for _ in range(_TRIES):
        # The person took a while: whether a write landed can only be told soon after it.
        found = await find(place)
        if found is None:
            message = f"{place.where} was deleted while you edited it"
            raise QueueNotFoundError(message)
        if found.etag != draft.etag:
            document = decode(found.body, place.where, accept=True)
            _carry_over(place, base, edited, document.state)
        prepared = Document(document.state).prepare(new_commit(place))
        try:
            await write(place, prepared.body, found.etag, prepared.commit)
        except ChangedMeanwhileError:
            continue
        return Edited(summarize(document.state), len(changes), unknown)
    message = f"{place.where} changes too fast to be edited: pause its workers, and try again"
    raise ChangedMeanwhileError(message)


def _read_text(text: bytes, base: State) -> Document:
    try:
        document = decode(text, "the text", accept=True)
    except CorruptStateError as error:
        message = f"the text cannot be used: {reason_of(error)}"
        raise InvalidRequestError(message) from error
    state = document.state
    for name in ("version", "incarnation", "commits"):
        if getattr(state, name) != getattr(base, name):
            message = f"the text cannot be used: leave {name!r} as it is, it is not for editing"
            raise InvalidRequestError(message)
    return document


def _changes(base: State, edited: State) -> dict[str, tuple[JobRecord | None, JobRecord | None]]:
    """The jobs that a person has changed: what they were, and what they are to be."""
    old, new = base.jobs.by_id, edited.jobs.by_id
    ids = [*old, *(job_id for job_id in new if job_id not in old)]
    return {
        job_id: (old.get(job_id), new.get(job_id))
        for job_id in ids
        if old.get(job_id) != new.get(job_id)
    }


def _carry_over(place: Place, base: State, edited: State, fresh: State) -> None:
    """Make the changes of an edit to a newer version of the object."""
    if fresh.incarnation != base.incarnation:
        _refuse(place, "the queue itself was replaced")
    if _rest_of(edited) != _rest_of(base):
        _refuse(place, "more than jobs and settings was edited, which needs a queue at rest")
    for name in _CHANGEABLE:
        if getattr(edited, name) != getattr(base, name):
            if getattr(fresh, name) != getattr(base, name):
                _refuse(place, f"somebody else has changed {name}")
            setattr(fresh, name, getattr(edited, name))
    for job_id, (old, new) in _changes(base, edited).items():
        if fresh.jobs.get(job_id) != old or (old and new and old.seq != new.seq):
            _refuse(place, f"job {job_id} has been changed by somebody else")
        if new is None:
            fresh.remove_job(job_id)
        elif old is None:
            fresh.put_job(msgspec.structs.replace(new, seq=fresh.next_seq))
            fresh.next_seq += 1
        else:
            fresh.put_job(new)


def _rest_of(state: State) -> tuple[object, ...]:
    """All that a person can have edited beside jobs and settings."""
    sessions = state.sessions
    return (
        state.broker,
        state.created_at,
        state.extra,
        list(state.keys),
        list(sessions.table),
        sessions.horizon,
    )


def _refuse(place: Place, reason: str) -> None:
    message = f"{place.where} was changed while you edited it, and {reason}; nothing was written"
    raise ChangedMeanwhileError(message)
