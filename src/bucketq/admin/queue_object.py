"""The object of a queue, for administrators: read it, and write it with a certain outcome.

A write is repeated until its outcome is certain (``store.resolve_write``). Unlike in
``commit.objects.register``, a conflict is reported to the administrator, who decided on a version
that is no longer the current one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NoReturn, TypeVar

from bucketq.clock import Clock
from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.codec.tombstone import is_tombstone
from bucketq.commit.objects.history_folder import HistoryFolder
from bucketq.commit.objects.register import judge_commit
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.commit.objects.store_calls import NoAnswerError, StoreCalls, larger_than, patience_s
from bucketq.errors import CorruptStateError, QueueNotFoundError, RejectedError, UnavailableError
from bucketq.model.state import State
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, ObjectStore, StoredObject
from bucketq.store.resolve_write import Verdict, write_until_certain

# The first retry is quick, since most faults are momentary; the last spares a store in trouble.
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 3.0
# Like the ids of other commits: random, and too long to collide.
_COMMIT_BYTES = 8
# More copies within one second than one administrator makes.
_MOST_COPIES = 100

A = TypeVar("A")


class ChangedMeanwhileError(RejectedError):
    """The object was changed since it was read; nothing was written."""


@dataclass(frozen=True)
class Summary:
    """The contents of a queue in numbers."""

    version: int
    incarnation: str
    created_at: datetime
    size_bytes: int
    jobs: dict[str, int]
    """How many jobs have each status."""


@dataclass(frozen=True)
class QueueObject:
    """The object of a queue in its store."""

    store: ObjectStore
    key: str
    url: str
    """Its address in messages."""
    clock: Clock
    timeout_s: float = 60.0
    """How long to retry before the outcome is reported as unknown."""

    async def read(self) -> StoredObject:
        """Read the object without checking its contents.

        Raises:
            QueueNotFoundError: It does not exist.
        """
        found = await self.find()
        if found is None:
            raise QueueNotFoundError(f"no queue at {self.url}; create one with `bucketq create`")
        return found

    async def find(self) -> StoredObject | None:
        """Read the object; None if it does not exist."""
        expected_bytes = 0

        async def get() -> StoredObject | None:
            nonlocal expected_bytes
            try:
                return await self._get(expected_bytes)
            except NoAnswerError:
                expected_bytes = larger_than(expected_bytes)
                raise

        return await self.until_answered(get, self.url)

    async def until_answered(self, read: Callable[[], Awaitable[A]], what: str) -> A:
        """Read ``what``, retrying while the storage does not answer.

        Raises:
            UnavailableError: It did not answer in time.
        """
        backoff = self.backoff()
        reason = "no answer"
        try:
            async with asyncio.timeout(self.timeout_s):
                while True:
                    try:
                        return await read()
                    except UnavailableError as error:
                        reason = str(error)
                    await backoff.wait()
        except TimeoutError as error:
            message = f"{what} could not be read within {self.timeout_s:g} s: {reason}"
            raise UnavailableError(message) from error

    async def write_state(self, state: State, etag: str | None) -> None:
        """Write a state as the next version; see ``write``."""
        # A new document, because the sections of one that was read refer to the old tables.
        prepared = Document(state).prepare(self.new_commit(), self.clock.now())
        await self.write(prepared.body, etag, prepared.commit)

    async def write(self, body: bytes, etag: str | None, commit: str = "") -> None:
        """Replace the object with this ``etag`` (None: create it); the outcome is certain.

        ``commit`` is the id of the commit in ``body``; without one, no commit builds on it.

        Raises:
            ChangedMeanwhileError: Another object is there; nothing was written.
            StoreRefusedError: The store rejected the write, and no earlier try is in doubt.
            UnavailableError: The outcome is unknown.
        """

        async def send() -> None:
            if etag is None:
                writing = self.store.create(self.key, body)
            else:
                writing = self.store.replace(self.key, body, etag)
            await StoreCalls(self.url).ask(writing, len(body))

        try:
            async with asyncio.timeout(self.timeout_s + patience_s(len(body))):
                outcome = await write_until_certain(
                    send,
                    lambda: self._get(len(body)),
                    lambda found: self._judge(body, etag, commit, found),
                    self.backoff,
                )
        except TimeoutError as error:
            raise UnavailableError(
                f"{self.url} gave no certain answer in time: the write may have landed, or land "
                "later; check the queue before you try again"
            ) from error
        if outcome.verdict is Verdict.LOST:
            self._refuse_changed(outcome.found, etag)
        if outcome.verdict is Verdict.FORGOTTEN:
            raise UnavailableError(
                f"whether the write to {self.url} landed is unknown: its answer was lost, and the "
                "object has changed too much since; check whether your change is there "
                "(`bucketq stats`, `ls`, `show` or `edit`) before you make it again"
            )

    async def save_beside(self, body: bytes, label: str) -> str:
        """Save bytes in a new object next to the queue; return its key."""
        stem = f"{self.key}.{label}-{self.clock.now():%Y%m%dT%H%M%SZ}"
        for number in range(_MOST_COPIES):
            key = f"{stem}-{number}" if number else stem
            try:
                await replace(self, key=key).write(body, None)
            except ChangedMeanwhileError:
                continue
            return key
        raise RejectedError(f"there are {_MOST_COPIES} copies named {stem} already: move them away")

    def segments_of(self, incarnation: str) -> SegmentFolder:
        """Return the folder of the segments of an incarnation of this queue."""
        return SegmentFolder(self.store, self.key, incarnation, self.url, self.clock)

    def history_of(self, incarnation: str) -> HistoryFolder:
        """Return the folder of the history of an incarnation of this queue."""
        return HistoryFolder(self.store, self.key, incarnation, self.clock)

    def new_commit(self) -> str:
        """Draw the id of a commit."""
        return self.clock.entropy(_COMMIT_BYTES).hex()

    def backoff(self) -> RetryBackoff:
        """Pauses between tries."""
        return RetryBackoff(self.clock, _FIRST_RETRY_S, _LAST_RETRY_S)

    def _judge(
        self, body: bytes, etag: str | None, commit: str, found: StoredObject | None
    ) -> Verdict:
        """Judge by the current object whether ``body`` was written over the one with ``etag``.

        If the whole object was replaced (another incarnation, a tombstone) or deleted, nothing of
        the write is left. Only later commits to the same queue, or a raw edit, can hide it.
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
            current = decode(found.body, self.url).state
        except CorruptStateError:
            return Verdict.LOST if etag is None else Verdict.FORGOTTEN
        return _judge_descent(decode(body, self.url).state, current)

    def _refuse_changed(self, found: StoredObject | None, etag: str | None) -> NoReturn:
        if etag is None:
            message = f"there is an object at {self.url} already; it is left as it is"
        elif found is None:
            message = f"{self.url} was deleted meanwhile"
        else:
            message = f"{self.url} was changed meanwhile, and is left as it is; look again"
        raise ChangedMeanwhileError(message)

    async def _get(self, expected_bytes: int) -> StoredObject | None:
        try:
            return await StoreCalls(self.url).ask(self.store.get(self.key), expected_bytes)
        except ObjectMissingError:
            return None


def _judge_descent(ours: State, current: State) -> Verdict:
    if ours.incarnation != current.incarnation:
        return Verdict.LOST
    if len(ours.commits) == 1:
        return Verdict.LANDED  # This incarnation began with it.
    verdict = judge_commit(current, ours.version, ours.commits[-1])
    # A lower version under another etag: the queue was rolled back, perhaps from ours.
    return Verdict.FORGOTTEN if verdict is Verdict.OPEN else verdict


def summarize(state: State) -> Summary:
    """Count the jobs of a state."""
    jobs: dict[str, int] = {}
    for (_, status), count in sorted(state.counts.items()):
        jobs[status] = jobs.get(status, 0) + count
    if not state.cold.is_attached:  # Then those in segments are not counted by kind.
        rows = state.cold.rows
        for status, count in (
            ("dead", rows.count("dead")),
            ("queued", rows.count("ready", "later")),
        ):
            if count:
                jobs[status] = jobs.get(status, 0) + count
    return Summary(state.version, state.incarnation, state.created_at, state.size_bytes, jobs)
