"""Reading and writing one object with certainty, for administrators.

A write is tried until its outcome is certain (``store.resolve_write``). Unlike in
``commit.register``, a conflict is reported to the person who asked, because what that person
looked at is no longer what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, NoReturn, TypeVar

import msgspec

from bucketq.clock import Clock
from bucketq.codec import decode
from bucketq.commit.register import judge_commit
from bucketq.errors import CorruptStateError, QueueNotFoundError, RejectedError, UnavailableError
from bucketq.model.state import State
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, ObjectStore, StoredObject
from bucketq.store.resolve_write import Verdict, write_until_certain

_ANSWER_S = 10.0
_SLOWEST_BYTES_PER_S = 1024 * 1024
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 3.0
_COMMIT_BYTES = 8
_TIME = "%Y%m%dT%H%M%SZ"

A = TypeVar("A")


class ChangedMeanwhileError(RejectedError):
    """The object is no longer what was looked at, and holds nothing of what was to be written."""


class Place(NamedTuple):
    """Where an object is, and the clock to write with."""

    store: ObjectStore
    key: str
    where: str
    """What messages call it."""
    clock: Clock
    patience_s: float = 60.0
    """How long to try before the outcome is called unknown."""


@dataclass(frozen=True)
class Summary:
    """An object in a few numbers."""

    version: int
    incarnation: str
    created_at: datetime
    size_bytes: int
    jobs: dict[str, int]
    """How many jobs have each status."""


class _Tombstone(msgspec.Struct):
    """What stands in the place of a queue for the moment before it is gone."""

    deleted_at: datetime
    commit: str


def summarize(state: State) -> Summary:
    """Count what a state holds."""
    jobs: dict[str, int] = {}
    for (_, status), count in sorted(state.counts.items()):
        jobs[status] = jobs.get(status, 0) + count
    return Summary(state.version, state.incarnation, state.created_at, state.size_bytes, jobs)


def new_commit(place: Place) -> str:
    """Draw the id of a commit."""
    return place.clock.entropy(_COMMIT_BYTES).hex()


def tombstone(place: Place, commit: str) -> bytes:
    """Bytes that are not a queue: a process that opens the object meanwhile is rejected."""
    return msgspec.json.encode(_Tombstone(place.clock.now(), commit)) + b"\n"


def is_tombstone(body: bytes) -> bool:
    """Whether a deletion was cut off between its two steps."""
    try:
        msgspec.json.decode(body, type=_Tombstone)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


async def look(place: Place) -> StoredObject:
    """Read the object as it is, whatever it is.

    Raises:
        QueueNotFoundError: There is none.
    """
    found = await find(place)
    if found is None:
        message = f"no queue at {place.where}; create one with `bucketq create`"
        raise QueueNotFoundError(message)
    return found


async def find(place: Place) -> StoredObject | None:
    """Read the object; None where there is none."""
    backoff = RetryBackoff(place.clock, _FIRST_RETRY_S, _LAST_RETRY_S)
    reason = "no answer"
    try:
        async with asyncio.timeout(place.patience_s):
            while True:
                try:
                    return await _ask(place, place.store.get(place.key), 0)
                except ObjectMissingError:
                    return None
                except UnavailableError as error:
                    reason = str(error)
                await backoff.wait()
    except TimeoutError as error:
        message = f"{place.where} could not be read within {place.patience_s:g} s: {reason}"
        raise UnavailableError(message) from error


async def write(place: Place, body: bytes, etag: str | None, commit: str = "") -> None:
    """Replace the object with this ``etag`` (None: create it), and be certain of the outcome.

    ``commit`` is the id of the commit that the bytes are; without one, others never build on them.

    Raises:
        ChangedMeanwhileError: Something else is there, and nothing of this write.
        StoreRefusedError: The store said no for good, and no earlier try is in doubt.
        UnavailableError: The outcome is unknown.
    """

    async def send() -> None:
        if etag is None:
            await _ask(place, place.store.create(place.key, body), len(body))
        else:
            await _ask(place, place.store.replace(place.key, body, etag), len(body))

    async def read_back() -> StoredObject | None:
        try:
            return await _ask(place, place.store.get(place.key), len(body))
        except ObjectMissingError:
            return None

    try:
        async with asyncio.timeout(place.patience_s + len(body) / _SLOWEST_BYTES_PER_S):
            outcome = await write_until_certain(
                send,
                read_back,
                lambda found: _judge(place, body, etag, commit, found),
                lambda: RetryBackoff(place.clock, _FIRST_RETRY_S, _LAST_RETRY_S),
            )
    except TimeoutError as error:
        message = (
            f"{place.where} gave no certain answer in time: the write may have landed, or land "
            "later; look at the queue before you try again"
        )
        raise UnavailableError(message) from error
    if outcome.verdict is Verdict.LOST:
        _refuse_changed(place, outcome.found, etag)
    if outcome.verdict is Verdict.FORGOTTEN:
        message = (
            f"whether the write to {place.where} landed is unknown: its answer was lost, and what "
            "is there now has changed too much since to tell; look whether your change is there "
            "(`bucketq stats`, `ls`, `show` or `edit`) before you make it again"
        )
        raise UnavailableError(message)


async def save_beside(place: Place, body: bytes, label: str) -> str:
    """Keep bytes in an object next to the queue, under a name of its own; return its key."""
    stem = f"{place.key}.{label}-{place.clock.now().strftime(_TIME)}"
    for number in range(100):
        aside = place._replace(key=f"{stem}-{number}" if number else stem)
        try:
            await write(aside, body, None)
        except ChangedMeanwhileError:
            continue
        return aside.key
    message = f"a hundred copies named {stem} are there already: move them away"
    raise RejectedError(message)


def _judge(
    place: Place, body: bytes, etag: str | None, commit: str, found: StoredObject | None
) -> Verdict:
    """Judge a write of ``body`` over what bore ``etag`` by what is there now.

    What replaced the whole object (another incarnation, a tombstone, nothing) holds nothing of the
    write and never will. Only later commits to the same queue, or a raw edit, can hide it.
    """
    if found is None:
        return Verdict.OPEN if etag is None else Verdict.LOST
    if found.body == body:
        return Verdict.LANDED
    if found.etag == etag:
        return Verdict.OPEN
    if not commit or is_tombstone(found.body):
        return Verdict.LOST
    try:
        there = decode(found.body, place.where).state
    except CorruptStateError:
        return Verdict.LOST if etag is None else Verdict.FORGOTTEN
    ours = decode(body, place.where).state
    return _judge_descent(ours, there) if ours.incarnation == there.incarnation else Verdict.LOST


def _judge_descent(ours: State, there: State) -> Verdict:
    """Judge a version of a queue by what the same queue is now."""
    if len(ours.commits) == 1:
        return Verdict.LANDED  # This incarnation began with it.
    verdict = judge_commit(there, ours.version, ours.commits[-1])
    # A lower version under another etag: the queue was rolled back, perhaps from ours.
    return Verdict.FORGOTTEN if verdict is Verdict.OPEN else verdict


def _refuse_changed(place: Place, found: StoredObject | None, etag: str | None) -> NoReturn:
    if etag is None:
        message = f"there is an object at {place.where} already; it is left as it is"
    elif found is None:
        message = f"{place.where} was deleted meanwhile"
    else:
        message = f"{place.where} was changed meanwhile, and is left as it is; look again"
    raise ChangedMeanwhileError(message)


async def _ask(place: Place, answer: Awaitable[A], size_bytes: int) -> A:
    """Await the store, for a time that grows with what is carried."""
    limit_s = _ANSWER_S + size_bytes / _SLOWEST_BYTES_PER_S
    try:
        async with asyncio.timeout(limit_s):
            return await answer
    except TimeoutError as error:
        message = f"no answer from {place.where} in {limit_s:.0f} s"
        raise UnavailableError(message) from error
