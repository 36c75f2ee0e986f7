"""Reading and writing one object with certainty, for whoever takes care of it.

A write is tried until the object itself tells what became of it, as in ``queue.register``; the
difference is that here a conflict goes back to the person who asked, because what he looked at
is no longer what is there.
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
from bucketq.errors import (
    CorruptStateError,
    QueueNotFoundError,
    RejectedError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.model.state import State
from bucketq.queue.pace import Backoff
from bucketq.store.base import (
    ObjectMissingError,
    ObjectStore,
    PreconditionFailedError,
    StoredObject,
)

_ANSWER_S = 10.0
_SLOWEST_BYTES_PER_S = 1024 * 1024
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 3.0
_COMMIT_BYTES = 8
_TIME = "%Y%m%dT%H%M%SZ"

A = TypeVar("A")


class ChangedMeanwhileError(RejectedError):
    """The object is no longer what was looked at; nothing was changed."""


class Place(NamedTuple):
    """Where an object is, and the clock of whoever takes care of it."""

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
    """Bytes that nobody takes for a queue: whoever opens the object meanwhile is refused."""
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
    backoff = Backoff(place.clock, _FIRST_RETRY_S, _LAST_RETRY_S)
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


async def write(place: Place, body: bytes, etag: str | None, commit: str) -> None:
    """Put bytes in the place of what bears ``etag`` (None: of nothing), and be certain of it.

    Raises:
        ChangedMeanwhileError: Something else is there, so nothing was written.
        StoreRefusedError: The store said no for good, and no earlier try is in doubt.
        UnavailableError: The outcome is unknown.
    """
    try:
        async with asyncio.timeout(place.patience_s + len(body) / _SLOWEST_BYTES_PER_S):
            await _write_until_certain(place, body, etag, commit)
    except TimeoutError as error:
        message = (
            f"{place.where} gave no certain answer in time: the write may have landed, or land "
            "later; look at the queue before you try again"
        )
        raise UnavailableError(message) from error


async def save_beside(place: Place, body: bytes, label: str) -> str:
    """Keep bytes in an object next to the queue, under a name of its own; return its key."""
    stem = f"{place.key}.{label}-{place.clock.now().strftime(_TIME)}"
    for number in range(100):
        aside = place._replace(key=f"{stem}-{number}" if number else stem)
        try:
            await write(aside, body, None, "")
        except ChangedMeanwhileError:
            continue
        return aside.key
    message = f"a hundred copies named {stem} are there already: move them away"
    raise RejectedError(message)


async def _write_until_certain(place: Place, body: bytes, etag: str | None, commit: str) -> None:
    backoff = Backoff(place.clock, _FIRST_RETRY_S, _LAST_RETRY_S)
    store, key, in_doubt = place.store, place.key, False
    while True:
        try:
            if etag is None:
                await _ask(place, store.create(key, body), len(body))
            else:
                await _ask(place, store.replace(key, body, etag), len(body))
        except StoreRefusedError:
            if not in_doubt:
                raise
        except (UnavailableError, PreconditionFailedError, ObjectMissingError):
            in_doubt = True
        else:
            return
        found = await find(place)
        if found is not None and _holds(place, found.body, body, commit):
            return
        is_open = found is None if etag is None else found is not None and found.etag == etag
        if not is_open:
            _refuse_changed(place, found, etag)
        await backoff.wait()


def _holds(place: Place, found: bytes, body: bytes, commit: str) -> bool:
    """Whether a write has landed, maybe with the commits of others on top."""
    if found == body:
        return True
    try:
        return bool(commit) and commit in decode(found, place.where).state.commits
    except CorruptStateError:
        return False


def _refuse_changed(place: Place, found: StoredObject | None, etag: str | None) -> NoReturn:
    if etag is None:
        message = f"there is an object at {place.where} already; it is left as it is"
    elif found is None:
        message = f"{place.where} was deleted meanwhile; nothing was written"
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
