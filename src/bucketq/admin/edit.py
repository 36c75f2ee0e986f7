"""Edits the object as text, and merges the edit with changes made meanwhile.

Editing takes a person minutes, and a queue in use changes every few seconds. So if the object was
changed meanwhile, the edit is merged into the newest version (``codec.merge``). If another process
changed one of the same rows or fields, the edit is rejected.

Rows in segments are not part of the text. An edit keeps them and the table of segments, and must
not add a row with a number or an id that one of them has.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn, TypeVar

import msgspec

from bucketq.admin.queue_object import ChangedMeanwhileError, QueueObject, Summary, summarize
from bucketq.admin.repair import reason_of
from bucketq.admin.segment_reader import SegmentReader
from bucketq.codec.decode import decode
from bucketq.codec.merge import EditConflictError, changes, merge
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.commit.objects.writer_name import writer_name
from bucketq.errors import CorruptStateError, InvalidRequestError, QueueNotFoundError
from bucketq.model.effects.links.job_links import circle_text, find_circle
from bucketq.model.history import break_off
from bucketq.model.indexes.table import Row, Table
from bucketq.model.oversight.audit_notes import note_action
from bucketq.model.segments import JOB_CLASSES, SegmentRecord
from bucketq.model.state import State

R = TypeVar("R", bound=Row)

# A conflict means that the queue was changed within one write; twenty in a row mean a busy queue.
_TRIES = 20


@dataclass(frozen=True)
class Draft:
    """An object as it was read to be edited."""

    text: bytes
    body: bytes
    etag: str
    segments: int
    """How many segments there are."""
    not_shown: int
    """How many jobs are in them, and not in the text."""


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
    rows = decode(found.body, target.url).state.cold.rows
    text = msgspec.json.format(found.body, indent=2) + b"\n" if pretty else found.body
    return Draft(text, found.body, found.etag, len(rows), rows.count(*JOB_CLASSES))


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
            await _check_new_rows(target, decode(found.body, target.url, accept=True).state, state)
            break_off(state)
            _note(state, found_changes, target.clock.now())
            await target.write_state(state, found.etag)
        except (ChangedMeanwhileError, StaleStateError):
            continue
        total = sum(found_changes.values())
        return Edited(summarize(state), total, found_changes, unknown)
    message = f"{target.url} changes too often to be edited: pause its workers, and try again"
    raise ChangedMeanwhileError(message)


def _note(state: State, found: dict[str, int], now: datetime) -> None:
    about = tuple(f"{name} ({count})" for name, count in found.items())
    note_action(state, "edit", about, now, by=writer_name(), count=sum(found.values()))


def _parse_text(text: bytes, base: State) -> State:
    try:
        state = decode(text, "the text", accept=True).state
    except CorruptStateError as error:
        raise InvalidRequestError(f"the text cannot be used: {reason_of(error)}") from error
    for name in ("version", "incarnation", "commits", "former"):
        if getattr(state, name) != getattr(base, name):
            message = f"the text cannot be used: leave {name!r} as it is; it cannot be edited"
            raise InvalidRequestError(message)
    if _entries(state) != _entries(base) or state.requires != base.requires:
        raise InvalidRequestError(
            "the text cannot be used: leave 'requires' and 'segments' as they are; they say where "
            "the other rows of the queue are"
        )
    if _history(state) != _history(base):
        raise InvalidRequestError(
            "the text cannot be used: leave 'since', 'heads' and 'changes' as they are; they are "
            "the history of the queue"
        )
    if (circle := find_circle(state)) and circle != find_circle(base):
        raise InvalidRequestError(
            f"the text cannot be used: job {circle_text(circle)}, so none of them would ever run; "
            "change their 'after'"
        )
    if list(state.audit) != list(base.audit):
        raise InvalidRequestError(
            "the text cannot be used: leave 'audit' as it is; it says what operators did"
        )
    return state


def _history(state: State) -> tuple[object, ...]:
    return (state.history.since, [*state.history.copies], [*state.history.changes])


def _entries(state: State) -> list[SegmentRecord]:
    return [each.entry() for each in state.cold.rows.segments.values()]


async def _check_new_rows(target: QueueObject, before: State, state: State) -> None:
    """Refuse a row whose number or id a row in a segment may have.

    Raises:
        StaleStateError: The queue has changed.
        InvalidRequestError: There is such a row; nothing was written.
    """
    rows = before.cold.rows
    if not rows.segments:
        return
    jobs = _moved(before.jobs, state.jobs, "job", before.next_seq)
    keys = _moved(before.keys, state.keys, "key", before.known_keys.next_seq)
    reader = SegmentReader(target, before)
    found = [*await reader.read(lambda: rows.find_jobs(jobs))]
    found += await reader.read(lambda: rows.find_keys(keys))
    if found:
        raise InvalidRequestError(
            f"the text cannot be used: {found[0]} is the id of a row in a segment; use another, or "
            "cancel or purge that one first"
        )


def _moved(before: Table[R], after: Table[R], what: str, free: int) -> list[str]:
    """Return the ids of the rows that were added; their numbers must be free."""
    added = []
    for row in after:
        old = before.get(row.id)
        if (old is None or old.seq != row.seq) and row.seq < free:
            raise InvalidRequestError(
                f"the text cannot be used: {what} {row.id} has seq {row.seq}, and a row in a "
                f"segment may have the same; use {free} or more"
            )
        if old is None:
            added.append(row.id)
    return added


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
