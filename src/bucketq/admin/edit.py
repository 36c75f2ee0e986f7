"""Edits the object as text, and merges the edit with changes made meanwhile.

Editing takes a person minutes, and a queue in use changes every few seconds. So if the object was
changed meanwhile, the edit is merged into the newest version (``codec.merge``). If another process
changed one of the same rows or fields, the edit is rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import msgspec

from bucketq.admin.queue_object import ChangedMeanwhileError, QueueObject, Summary, summarize
from bucketq.admin.repair import reason_of
from bucketq.codec import decode
from bucketq.codec.merge import EditConflictError, changes, merge
from bucketq.errors import CorruptStateError, InvalidRequestError, QueueNotFoundError
from bucketq.model.state import State

# A conflict means that the queue was changed within one write; twenty in a row mean a busy queue.
_TRIES = 20


@dataclass(frozen=True)
class Draft:
    """An object as it was read to be edited."""

    text: bytes
    body: bytes
    etag: str


@dataclass(frozen=True)
class Edited:
    """The result of an edit."""

    summary: Summary
    changed: int
    """How many rows and fields were changed, added or removed."""
    changes: dict[str, int]
    """The same by table, and by field of the head."""
    unknown: tuple[str, ...]
    """Added fields that bucketq does not know, perhaps because of a typo."""


async def begin_edit(target: QueueObject, *, pretty: bool = False) -> Draft:
    """Read the object as text: as it is, one job per line, or indented.

    Raises:
        CorruptStateError: It must be repaired first.
    """
    found = await target.read()
    decode(found.body, target.url)
    text = msgspec.json.format(found.body, indent=2) + b"\n" if pretty else found.body
    return Draft(text, found.body, found.etag)


async def finish_edit(target: QueueObject, draft: Draft, text: bytes) -> Edited:
    """Write an edited text as the next version of the object.

    Raises:
        InvalidRequestError: The text is not a queue; nothing was written.
        ChangedMeanwhileError: Another process changed the same rows; nothing was written.
    """
    base = decode(draft.body, target.url, accept=True).state
    state = _parse_text(text, base)
    found_changes = changes(draft.body, text)
    unknown = tuple(
        f"{name} ({slot[0]} {slot[1]})".replace(" )", ")")
        for slot, fields in state.extra.items()
        for name in fields
        if name not in base.extra.get(slot, {})
    )
    for _ in range(_TRIES):
        # Read again: whether a write landed can only be resolved if little has changed since.
        found = await target.find()
        if found is None:
            raise QueueNotFoundError(f"{target.url} was deleted while you edited it")
        if found.etag != draft.etag:
            state = _merge(target, draft, text, found.body)
        try:
            await target.write_state(state, found.etag)
        except ChangedMeanwhileError:
            continue
        total = sum(found_changes.values())
        return Edited(summarize(state), total, found_changes, unknown)
    message = f"{target.url} changes too often to be edited: pause its workers, and try again"
    raise ChangedMeanwhileError(message)


def _parse_text(text: bytes, base: State) -> State:
    try:
        state = decode(text, "the text", accept=True).state
    except CorruptStateError as error:
        raise InvalidRequestError(f"the text cannot be used: {reason_of(error)}") from error
    for name in ("version", "incarnation", "commits"):
        if getattr(state, name) != getattr(base, name):
            message = f"the text cannot be used: leave {name!r} as it is; it cannot be edited"
            raise InvalidRequestError(message)
    return state


def _merge(target: QueueObject, draft: Draft, text: bytes, newest: bytes) -> State:
    """Apply the changes of an edit to a newer version of the object."""
    incarnation = decode(newest, target.url).state.incarnation
    if incarnation != decode(draft.body, target.url).state.incarnation:
        _refuse(target, "the queue itself was replaced")
    try:
        return decode(merge(draft.body, text, newest), target.url, accept=True).state
    except EditConflictError as error:
        _refuse(target, str(error))
    except CorruptStateError as error:
        _refuse(target, f"your changes no longer apply: {reason_of(error)}")


def _refuse(target: QueueObject, reason: str) -> NoReturn:
    message = f"{target.url} was changed while you edited it, and {reason}; nothing was written"
    raise ChangedMeanwhileError(message)
