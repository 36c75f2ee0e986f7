"""Diagnoses a damaged object, and accepts one that an administrator has edited."""

from __future__ import annotations

from dataclasses import dataclass

from bucketq.admin.copies import copy_of
from bucketq.admin.queue_object import ChangedMeanwhileError, QueueObject, Summary, summarize
from bucketq.admin.segment_reader import SegmentReader
from bucketq.codec.decode import decode
from bucketq.codec.tombstone import is_tombstone
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.commit.objects.writer_name import writer_name
from bucketq.errors import CorruptStateError, NewerFormatError
from bucketq.model.history import break_off
from bucketq.model.oversight.audit_notes import note_action
from bucketq.model.state import State


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with an object, and whether it was repaired."""

    problem: str | None
    """None: nothing is wrong."""
    refusal: str | None = None
    """Why it cannot be accepted as it is; None: it can."""
    summary: Summary | None = None
    """Its contents, if they can be read."""
    saved: str | None = None
    """The key of a copy of the damaged object; None: nothing was changed."""
    segments: int = 0
    """How many segments an intact object names; they were not read."""


async def repair(target: QueueObject, *, accept: bool = False) -> Diagnosis:
    """Diagnose the object; with ``accept``, write it again with a valid checksum.

    Before anything is written, a copy of the damaged object is saved beside it. Rows in segments,
    and the table of segments, are kept.

    Raises:
        NewerFormatError: A newer bucketq wrote it; only that version can judge it.
        ChangedMeanwhileError: Another process has changed it meanwhile.
    """
    found = await target.read()
    try:
        state = decode(found.body, target.url).state
        return Diagnosis(None, summary=summarize(state), segments=len(state.cold.rows))
    except NewerFormatError:
        raise
    except CorruptStateError as error:
        problem = reason_of(error)
    if is_tombstone(found.body):
        return Diagnosis("its deletion was interrupted", "finish it with `bucketq delete`")
    try:
        state = decode(found.body, target.url, accept=True).state
    except CorruptStateError as error:
        return Diagnosis(problem, reason_of(error))
    twice = await SegmentReader(target, state).find_twice()
    if twice is not None:
        return Diagnosis(problem, twice)
    if not accept:
        return Diagnosis(problem, summary=summarize(state))
    saved = await _save(target, state, found.body)
    break_off(state)
    note_action(state, "repair", (), target.clock.now(), by=writer_name())
    await target.write_state(state, found.etag)
    return Diagnosis(problem, summary=summarize(state), saved=saved)


async def _save(target: QueueObject, state: State, body: bytes) -> str:
    """Save the damaged object; if it has segments, with their rows, because they are deleted later.

    If a segment is damaged too, the object is saved as it is. Repairing it keeps the segments that
    it names.
    """
    try:
        body = (await copy_of(target, state, body)).body
    except StaleStateError:
        message = f"{target.url} was changed meanwhile, and is left as it is; look again"
        raise ChangedMeanwhileError(message) from None
    except CorruptStateError:
        pass
    return await target.save_beside(body, "broken")


def reason_of(error: CorruptStateError) -> str:
    """Extract the reason from a message that also names the object and what to do."""
    text = str(error)
    _, _, reason = text.rpartition(" is not a queue that can be trusted: ")
    return reason.partition("; the object is left as it is")[0] or text
