"""``Register``: how a commit is stored: load, commit, and resolve lost answers.

A write whose answer was lost may have landed, so ``store.resolve_write`` reads the object back
until its outcome is certain. Here is how a queue is judged: every commit writes version
``base + 1`` with an id of its own, and the object keeps the ids of the last versions::

    object at version       our id at base + 1?       verdict
    ------------------      --------------------      -----------------------------------------
    base                    -                         still open: write the identical bytes again
    above base              yes                       landed (maybe with others' commits on top)
    above base              another's                 lost: it never will land
    far above base          too long ago to tell      forgotten: the requests go through
                                                      deduplication on the fresh state

The register also remembers the newest version that it has seen, and rejects an object that is
older, has another incarnation, or is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from msgspec import Struct

from bucketq.archive.side_folder import SideFolder
from bucketq.clock import Clock, new_id
from bucketq.codec.decode import decode
from bucketq.codec.document import Document, Prepared
from bucketq.commit.objects.heading_reader import HeadingReader
from bucketq.commit.objects.pacing import Pacer
from bucketq.commit.objects.queue_history import QueueHistory
from bucketq.commit.objects.queue_segments import QueueSegments
from bucketq.commit.objects.seen_object import SeenObject, deleted_in_use, refuse_deleted
from bucketq.commit.objects.segment_sweep import NamedSegments, named_by
from bucketq.commit.objects.store_calls import NoAnswerError, StoreCalls, larger_than, patience_s
from bucketq.errors import (
    QueueNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.model import settings
from bucketq.model.indexes.cold_rows import SegmentPart
from bucketq.model.partitions import Partition, compare, new_partition
from bucketq.model.state import State
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import (
    ObjectMissingError,
    ObjectStore,
    PreconditionFailedError,
    StoredObject,
)
from bucketq.store.resolve_write import Verdict, write_until_certain
from bucketq.tracing import commit_span

_COMMIT_BYTES = 8
"""Enough for ids that never repeat among the 64 of the ring."""
_STALLED_S = 0.4
"""How long a commit may fail before it counts as stalled. Reading a large object again costs more
than waiting for a short fault to pass. A file that is locked says so after 0.5 s."""
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 3.0
"""Retries begin at about the latency of a store, and are rare enough for one in trouble."""

A = TypeVar("A")


class Settled(Struct, frozen=True):
    """The verdict on a commit, and the document to continue with."""

    verdict: Verdict
    document: Document


class Register:
    """A queue object that is read whole and replaced whole."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        where: str,
        clock: Clock,
        partition: Partition | None = None,
    ) -> None:
        """Make a register of the object ``key``; ``where`` is what messages call it.

        It must be the ``partition``; None: a queue without partitions.
        """
        self._store = store
        self._key = key
        self.where = where
        self._clock = clock
        self._calls = StoreCalls(where)
        self.heading = HeadingReader(store, key, where, partition, self._calls)
        """Reads which broker serves the queue."""
        self.segments = QueueSegments(store, key, where, clock)
        """The segments of the queue."""
        self.history, self.side = QueueHistory(store, key, clock), SideFolder.of(store, key, clock)
        self.writer = ""
        """What the history calls this process: its user and host."""
        self._pacer = Pacer(store.write_interval_s)
        self._seen: SeenObject | None = None
        self._expected_bytes = 0
        self._known_bytes = 0
        self.stalled = asyncio.Event()
        """Set while a commit has failed for a while and its outcome is unknown."""

    @property
    def version(self) -> int:
        """The newest version that this register has seen in the object."""
        return self._seen.version if self._seen else 0

    @property
    def partition(self) -> Partition | None:
        """Which partition of a queue it is, and of which queue once that was read."""
        return self.heading.partition

    @property
    def trouble(self) -> UnavailableError | None:
        """Why the storage did not answer the last request, for a caller that gives up."""
        return self._calls.trouble

    @property
    def failures(self) -> int:
        """How many requests for the object were not answered, or refused."""
        return self._calls.failures

    @property
    def patience_s(self) -> float:
        """How long the storage may take to answer, for an object of this size."""
        return patience_s(self._known_bytes)

    def beside(self) -> Register:
        """Return another register of the same object, to read it while this one writes."""
        other = Register(self._store, self._key, self.where, self._clock, self.partition)
        other._seen, other._expected_bytes = self._seen, self._expected_bytes
        other.segments, other.history = self.segments, self.history
        return other

    async def fetch(self, parts: Collection[SegmentPart]) -> None:
        """Read parts of segments, retrying until the storage answers.

        Raises:
            StaleStateError: The queue no longer names one of the segments.
            CorruptStateError: One is damaged, or is missing although the queue names it.
            StoreRefusedError: The store does not let them be read.
        """
        await self.segments.fetch(parts, self.read_named)

    async def read_named(self) -> NamedSegments:
        """Read from the object, and not from memory, which segments the queue names."""
        state = (await self.beside().load()).state
        return named_by(state)

    async def open(self, *, create: bool) -> Document:
        """Load the queue, or create it if it does not exist.

        Raises:
            QueueNotFoundError: It does not exist, and ``create`` is False.
        """
        backoff = self._backoff()
        while True:
            try:
                return await self.load()
            except ObjectMissingError as error:
                if not create:
                    message = f"no queue at {self.where}; push to it, or run `bucketq create`"
                    raise QueueNotFoundError(message) from error
            except UnavailableError:
                await backoff.wait()
                continue
            try:
                return await self._create()
            except (PreconditionFailedError, UnavailableError):
                # Another process created it, or our own creation landed without an answer.
                await backoff.wait()

    async def in_time(self, loading: Awaitable[Document], timeout_s: float) -> Document:
        """Wait for the first read of the object, for a limited time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await loading
        except TimeoutError as error:
            reason = "" if self.trouble is None else f" ({self.trouble})"
            message = f"{self.where} could not be read within {timeout_s:g} s{reason}"
            raise UnavailableError(message) from self.trouble or error

    async def load(self) -> Document:
        """Read the queue as it is now.

        Raises:
            ObjectMissingError: It does not exist.
            SupersededError: It existed, and was deleted or replaced.
        """
        seen = self._seen
        try:
            found = await self._calls.ask(self._store.get(self._key), self._expected_bytes)
        except ObjectMissingError:
            self._refuse_if_seen()
            raise
        except NoAnswerError:
            self._expected_bytes = larger_than(self._expected_bytes)
            raise
        self._expected_bytes = self._known_bytes = len(found.body)
        return self._take(found, seen)

    async def load_until_answered(self) -> tuple[Document, float]:
        """Read the queue, retrying until it is answered; also return when the last try began."""
        backoff = self._backoff()
        while True:
            began_s = asyncio.get_running_loop().time()
            try:
                return await self.load(), began_s
            except UnavailableError:
                await backoff.wait()

    async def refresh(self, document: Document) -> Document:
        """Return ``document`` if the object has not changed, or else read the object again."""
        seen = self._seen
        if seen is None:
            return await self.load()
        found = await self._get_if_changed(seen.etag, document.state.size_bytes)
        if found is None:
            return document
        fresh = self._take(found, seen)
        return document if fresh.state.version == seen.version else fresh

    def prepare(self, document: Document) -> Prepared:
        """Encode what was applied to a document as its next version."""
        return document.prepare(self._clock.entropy(_COMMIT_BYTES).hex(), self._clock.now())

    async def commit(self, document: Document, prepared: Prepared) -> Settled:
        """Write a prepared commit, and retry until its outcome is certain.

        The document may be changed meanwhile; those changes belong to the next commit. Bound the
        time with ``asyncio.timeout``; after that the outcome is unknown.

        Raises:
            StoreRefusedError: The store refused the write, and no earlier try is in doubt.
            SupersededError: The object is gone, replaced or rolled back.
            CorruptStateError: The object cannot be trusted.
        """
        seen = self._seen
        if seen is None or seen.version != prepared.version - 1:
            message = f"commit of version {prepared.version} on a base that was never loaded"
            raise AssertionError(message)
        base, began_s = seen, asyncio.get_running_loop().time()

        async def send() -> None:
            with self._stalling_since(began_s):
                await self._send(document, prepared, base.etag)

        async def read_back() -> Document | None:
            nonlocal base
            with self._stalling_since(began_s):
                found = await self._read_back(document, prepared, base)
            if self._seen is not None and self._seen.version == base.version:
                base = self._seen  # The same version may have another etag by now.
            return found

        def judge(found: Document | None) -> Verdict:
            if found is None:
                return Verdict.OPEN
            if found is document:
                return Verdict.LANDED
            return judge_commit(found.state, prepared.version, prepared.commit)

        try:
            with commit_span(self.where, prepared.version, len(prepared.body)) as span:
                outcome = await write_until_certain(send, read_back, judge, self._backoff)
                if span is not None:
                    span.set_attribute("bucketq.commit.verdict", outcome.verdict.value)
        finally:
            self.stalled.clear()
        return Settled(outcome.verdict, outcome.found or document)

    @contextmanager
    def _stalling_since(self, began_s: float) -> Iterator[None]:
        """Mark a commit that began then as stalled, if a try fails after a while."""
        try:
            yield
        except (UnavailableError, StoreRefusedError) as error:
            # A storage that throttles accepts the write at a slower pace.
            is_throttled = isinstance(error, UnavailableError) and error.throttled
            if asyncio.get_running_loop().time() - began_s >= _STALLED_S and not is_throttled:
                self.stalled.set()
            raise

    async def _send(self, document: Document, prepared: Prepared, etag: str) -> None:
        """Try once to write a commit."""
        await self._pacer.turn()
        try:
            etag = await self._calls.ask(
                self._store.replace(self._key, prepared.body, etag), len(prepared.body)
            )
        except UnavailableError as error:
            if error.throttled:
                self._pacer.was_throttled()
            raise
        self._pacer.went_well()
        self._know(etag, document.state, prepared)

    async def _read_back(
        self, document: Document, prepared: Prepared, base: SeenObject
    ) -> Document | None:
        """Read the object after a write: None if it is unchanged, ``document`` if it is ours."""
        trouble = self.trouble
        found = await self._get_if_changed(base.etag, len(prepared.body))
        if found is None:
            self._calls.trouble = (
                trouble  # A read that succeeds does not explain why the write failed.
            )
            return None
        if found.body == prepared.body:
            self._know(found.etag, document.state, prepared)
            return document
        return self._take(found, base)

    async def _create(self) -> Document:
        state = State(incarnation=new_id(self._clock), created_at=self._clock.now())
        state.settings = settings.DEEP
        state.partition = new_partition(self.partition, state.incarnation, state.requires)
        document = Document(state)
        prepared = self.prepare(document)
        self.segments.attach(state)
        etag = await self._calls.ask(
            self._store.create(self._key, prepared.body), len(prepared.body)
        )
        await self._demand_conditions(prepared)
        self.heading.partition = state.partition
        self._know(etag, state, prepared)
        return document

    async def _demand_conditions(self, prepared: Prepared) -> None:
        """Reject a store that ignores conditions: a queue on it would silently lose jobs.

        After a queue was created, creating it again must fail.
        """
        try:
            await self._calls.ask(self._store.create(self._key, prepared.body), len(prepared.body))
        except (PreconditionFailedError, UnavailableError, StoreRefusedError):
            return  # It failed as it must, or the answer proves nothing.
        await self._store.delete(self._key)
        message = (
            f"{self.where} was created twice: its store ignores conditional writes, and a queue "
            "on it would lose jobs; use another store (`bucketq doctor` checks it)"
        )
        raise StoreRefusedError(message)

    async def _get_if_changed(self, etag: str, size_bytes: int) -> StoredObject | None:
        try:
            return await self._calls.ask(self._store.get_if_changed(self._key, etag), size_bytes)
        except ObjectMissingError:
            self._refuse_if_seen()
            raise

    def _know(self, etag: str, state: State, prepared: Prepared) -> None:
        self._expected_bytes = self._known_bytes = len(prepared.body)
        line = prepared.body[: prepared.body.index(b"\n")]
        self._seen = SeenObject(etag, state.incarnation, prepared.version, prepared.commit, line)

    def _take(self, found: StoredObject, seen: SeenObject | None) -> Document:
        """Decode what was read, and check it against what was known when the read began."""
        refuse_deleted(found.body, self.where, was_seen=self._seen is not None)
        document = decode(found.body, self.where)
        state = document.state
        self.heading.partition = compare(state.partition, self.partition, self.where)
        line = found.body[: found.body.index(b"\n")]
        now = SeenObject(found.etag, state.incarnation, state.version, state.commits[-1], line)
        if seen is not None:
            seen.compare(now, self.where)
        if self._seen is None or self._seen.version <= now.version:
            self._seen = now
        self.segments.attach(state)
        return document

    def _refuse_if_seen(self) -> None:
        if self._seen is not None:
            raise deleted_in_use(self.where)

    def _backoff(self) -> RetryBackoff:
        return RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)


def judge_commit(state: State, version: int, commit: str) -> Verdict:
    """Judge a commit, written as ``version``, by the ring of a state of the same queue."""
    behind = state.version - version
    if behind < 0:
        return Verdict.OPEN
    if behind >= len(state.commits):
        return Verdict.FORGOTTEN
    return Verdict.LANDED if state.commits[-1 - behind] == commit else Verdict.LOST
