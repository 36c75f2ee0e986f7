"""Editing the object as text: out to an editor, and back under compare-and-set.

Editing takes a person minutes, and a queue in use changes every few seconds. So if the object was
changed meanwhile, the edit is merged into the newest version (``codec.merge``). If another process
changed one of the same rows or fields, the edit is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import msgspec

from bucketq.admin.place import (
    ChangedMeanwhileError,
    Place,
    Summary,
    find,
    look,
    new_commit,
    summarize,
    write,
)
from bucketq.admin.repair import reason_of
from bucketq.codec import Document, decode
from bucketq.codec.merge import EditConflictError, changes, merge
from bucketq.errors import CorruptStateError, InvalidRequestError, QueueNotFoundError
from bucketq.model.state import State

_TRIES = 20


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
    """How many rows and fields were changed, added or removed."""
    changes: dict[str, int]
    """The same by table, and by field of the head."""
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
        ChangedMeanwhileError: Another process has changed the same; nothing was written.
    """
    base = decode(draft.body, place.where, accept=True).state
    document = _read_text(text, base)
    found_changes = changes(draft.body, text)
    unknown = tuple(
        f"{name} ({slot[0]} {slot[1]})".replace(" )", ")")
        for slot, fields in document.state.extra.items()
        for name in fields
        if name not in base.extra.get(slot, {})
    )
    for _ in range(_TRIES):
        # The person took a while: whether a write landed can only be found out soon after it.
        found = await find(place)
        if found is None:
            message = f"{place.where} was deleted while you edited it"
            raise QueueNotFoundError(message)
        if found.etag != draft.etag:
            document = _merge(place, draft, text, found.body)
        prepared = Document(document.state).prepare(new_commit(place))
        try:
            await write(place, prepared.body, found.etag, prepared.commit)
        except ChangedMeanwhileError:
            continue
        total = sum(found_changes.values())
        return Edited(summarize(document.state), total, found_changes, unknown)
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


def _merge(place: Place, draft: Draft, text: bytes, newest: bytes) -> Document:
    """Make the changes of an edit to a newer version of the object."""
    incarnation = decode(newest, place.where).state.incarnation
    if incarnation != decode(draft.body, place.where).state.incarnation:
        _refuse(place, "the queue itself was replaced")
    try:
        return decode(merge(draft.body, text, newest), place.where, accept=True)
    except EditConflictError as error:
        _refuse(place, str(error))
    except CorruptStateError as error:
        _refuse(place, f"your changes do not fit to it any more: {reason_of(error)}")


def _refuse(place: Place, reason: str) -> NoReturn:
    message = f"{place.where} was changed while you edited it, and {reason}; nothing was written"
    raise ChangedMeanwhileError(message)
