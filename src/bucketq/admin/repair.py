"""What is wrong with an object, and taking it as it is."""

from __future__ import annotations

from dataclasses import dataclass

from bucketq.admin.place import (
    Place,
    Summary,
    is_tombstone,
    look,
    new_commit,
    save_beside,
    summarize,
    write,
)
from bucketq.codec import Document, decode
from bucketq.errors import CorruptStateError, NewerFormatError


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with an object, and what was done about it."""

    problem: str | None
    """None: nothing is wrong."""
    refusal: str | None = None
    """Why it cannot be accepted as it is; None: it can."""
    summary: Summary | None = None
    """What it holds, where that can be read."""
    saved: str | None = None
    """The key of a copy of the broken object; None: nothing was changed."""


async def repair(place: Place, *, accept: bool = False) -> Diagnosis:
    """Say what is wrong with the object; with ``accept`` take what a person has made of it.

    Before anything is written a copy of the broken object is put beside it.

    Raises:
        NewerFormatError: A newer bucketq wrote it; it is for that one to judge.
        ChangedMeanwhileError: Another process has changed it meanwhile.
    """
    found = await look(place)
    try:
        return Diagnosis(None, summary=summarize(decode(found.body, place.where).state))
    except NewerFormatError:
        raise
    except CorruptStateError as error:
        problem = reason_of(error)
    if is_tombstone(found.body):
        return Diagnosis("its deletion was cut off", "finish it with `bucketq delete`")
    try:
        document = decode(found.body, place.where, accept=True)
    except CorruptStateError as error:
        return Diagnosis(problem, reason_of(error))
    if not accept:
        return Diagnosis(problem, summary=summarize(document.state))
    saved = await save_beside(place, found.body, "broken")
    prepared = Document(document.state).prepare(new_commit(place))
    await write(place, prepared.body, found.etag, prepared.commit)
    return Diagnosis(problem, summary=summarize(document.state), saved=saved)


def reason_of(error: CorruptStateError) -> str:
    """The reason alone, of a message that also says where and what to do."""
    text = str(error)
    _, _, reason = text.rpartition(" is not a queue that can be trusted: ")
    return reason.partition("; the object is left as it is")[0] or text
