"""``HistoryReader``: answers reads of a queue's history, from its object and its history objects.

It reads the queue object first. The newest rows are there; older ones are in objects that a listing
shows. A row that is in neither was moved meanwhile, so both are looked at again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, cast

from msgspec import Raw

from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import Clock
from bucketq.codec.deletion_vector import decode_vector
from bucketq.codec.document import Document
from bucketq.codec.history_file import ChangesName, decode_changes
from bucketq.codec.segment_file import decode_index
from bucketq.codec.segment_lines import decode_jobs, split_block
from bucketq.commit.objects.register import Register
from bucketq.commit.outcome_errors import closed
from bucketq.commit.pending_requests import PendingRequest
from bucketq.commit.upkeep.background import Background
from bucketq.errors import (
    CorruptStateError,
    HistoryGapError,
    InvalidRequestError,
    OverloadedError,
    RejectedError,
    UnavailableError,
)
from bucketq.model import check
from bucketq.model.history import (
    ChangePage,
    ChangeRecord,
    CopyPart,
    CopyRecord,
    ReadChanges,
    ReadCopy,
)
from bucketq.model.records import JobRecord
from bucketq.model.results import FindArchived, JobEnd
from bucketq.model.segments import Gone, SegmentRecord
from bucketq.model.state import State
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError

if TYPE_CHECKING:  # It is imported when it is used.
    from bucketq.commit.archive_search import ArchiveSearch

HistoryRead = ReadChanges | ReadCopy | FindArchived

_PAGE_BYTES = 1 << 20
"""How many bytes of rows an answer has, or one row: as much as a message carries at once."""
_MISSING_S = 30.0
"""How long a version may be missing before it counts as lost, as for segments."""
_AT_ONCE = 4
_MOST_WAITING = 1000
"""How many reads are answered at once, and wait for that: each takes a megabyte or more."""
_FIRST_RETRY_S = 0.02
_LAST_RETRY_S = 2.0
"""A version is mostly missing for as long as another process needs to merge it."""


class HistoryReader:
    """Reads the history of one queue."""

    def __init__(self, register: Register, clock: Clock) -> None:
        """Read beside a register that writes."""
        self._register = register
        self._own: Register | None = None
        self._clock = clock
        self._document: Document | None = None
        self._listed: list[ChangesName] = []
        self._object: tuple[ChangesName, list[bytes]] | None = None
        """The object that was read last; the next page is probably there too."""

    async def answer(self, operation: ReadChanges | ReadCopy) -> ChangePage | CopyPart:
        """Answer a read, retrying until the storage answers.

        Raises:
            HistoryGapError: The history does not reach back that far.
            RejectedError: History is off.
            CorruptStateError: A part of it is missing or damaged.
        """
        backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        loop = asyncio.get_running_loop()
        missing_since: float | None = None
        while True:
            try:
                if isinstance(operation, ReadChanges):
                    return await self._changes(await self._state_for(operation), operation)
                state = await self._load()
                return await self._copy(state, operation)
            except UnavailableError:
                await backoff.wait()
            except ObjectMissingError as error:
                self._listed, self._object = [], None
                missing_since = loop.time() if missing_since is None else missing_since
                if loop.time() - missing_since >= _MISSING_S:
                    message = f"a part of the history of {self._register.where} is missing: {error}"
                    raise CorruptStateError(message) from error
                await backoff.wait()

    async def _state_for(self, operation: ReadChanges) -> State:
        """Return the newest state; of an object that is in memory, rows never change."""
        is_known = self._object is not None and _holds(self._object[0], operation.after + 1)
        if is_known and self._document is not None:
            return self._document.state
        return await self._load()

    async def _load(self) -> State:
        """Read the queue object, if it has changed."""
        if self._own is None:
            self._own = self._register.beside()
        document = self._document
        self._document = await (
            self._own.load() if document is None else self._own.refresh(document)
        )
        return self._document.state

    async def _changes(self, state: State, operation: ReadChanges) -> ChangePage:
        check.whole_number(operation.after, "after", 0)
        check.whole_number(operation.limit, "limit", 1)
        since = state.history.since
        after = operation.after
        self._require_history(state)
        if after + 1 < since:
            raise HistoryGapError(
                f"the history of {self._register.where} begins with version {since}, and version "
                f"{after + 1} was asked for: begin with a snapshot"
            )
        rows = [*state.history.changes]
        if after >= state.version:
            rows = []
        elif rows and after + 1 >= rows[0].seq:
            rows = rows[after + 1 - rows[0].seq :]
        else:
            rows = await self._old_rows(state, after + 1)
        return ChangePage(
            incarnation=state.incarnation,
            since=since,
            version=state.version,
            changes=tuple(_first(rows, operation.limit)),
        )

    async def _old_rows(self, state: State, version: int) -> list[ChangeRecord]:
        """Return the rows from a version on that are in one object.

        Raises:
            ObjectMissingError: No object has them.
        """
        folder = self._register.history.folder(state.incarnation)
        if self._object is None or not _holds(self._object[0], version):
            name = next((each for each in self._listed if _holds(each, version)), None)
            if name is None:
                self._listed = [each for each, _ in (await folder.list()).changes]
                name = next((each for each in self._listed if _holds(each, version)), None)
            if name is None:
                message = f"no object in {folder.address} has version {version}"
                raise ObjectMissingError(message)
            self._object = (name, await folder.read_changes(name))
        name, lines = self._object
        return decode_changes(_page(lines[version - name.first :]), f"{folder.address}{name}")

    async def _copy(self, state: State, operation: ReadCopy) -> CopyPart:
        check.whole_number(operation.version, "version", 0)
        check.whole_number(operation.part, "part", 0)
        self._require_history(state)
        record = self._choose(state, operation)
        copy = await self._register.history.folder(state.incarnation).read_copy(record)
        if operation.part == 0:
            jobs = decode_jobs([bytes(job) for job in copy.jobs], 0, "the copy")[0]
        elif operation.part <= len(copy.segments):
            jobs = await self._segment(copy.segments[operation.part - 1])
        else:
            message = f"the copy has {len(copy.segments) + 1} parts, not {operation.part + 1}"
            raise InvalidRequestError(message)
        return CopyPart(
            incarnation=state.incarnation,
            version=record.seq,
            at=record.at,
            parts=len(copy.segments) + 1,
            head=Raw(copy.head),
            jobs=tuple(jobs),
        )

    def _choose(self, state: State, operation: ReadCopy) -> CopyRecord:
        """Return the newest copy that is not after a version and a time."""
        try:
            at = datetime.fromisoformat(operation.at) if operation.at else None
        except ValueError as error:
            raise InvalidRequestError(f"at is not a time: {error}") from error
        if at is not None and at.tzinfo is None:
            raise InvalidRequestError("at is a time without a zone")
        if operation.version > state.version:
            message = f"{self._register.where} has no version {operation.version} yet"
            raise InvalidRequestError(message)
        copies = [
            copy
            for copy in state.history.copies
            if (not operation.version or copy.seq <= operation.version)
            and (at is None or copy.at <= at)
        ]
        if copies:
            return copies[-1]
        first = next(iter(state.history.copies), None)
        begin = (
            "has no copy yet; the first is made with the next commit"
            if first is None
            else f"begins with version {first.seq} of {first.at:%Y-%m-%d %H:%M:%S} UTC"
        )
        raise HistoryGapError(f"the history of {self._register.where} {begin}")

    async def _segment(self, entry: SegmentRecord) -> list[JobRecord]:
        """Read the jobs of a segment that had not left when the copy was made."""
        folder = self._register.segments.folder
        where = f"{folder.address}{entry.id}"
        body = await folder.read_whole(entry.id)
        index = decode_index(entry, body[entry.bytes - entry.index :], where)
        gone = Gone(entry.gone)
        if entry.vector:
            vector = decode_vector(entry.vector, await folder.read_whole(entry.vector), where)
            gone = gone.joined(vector.get(entry.id, Gone()))
        lines = [
            line
            for block in index.blocks
            for line in split_block(block, body[block.offset : block.offset + block.length], where)
        ]
        jobs = decode_jobs(lines, 0, where, entry.pushed)[0]
        return [job for position, job in enumerate(jobs) if position not in gone]

    def _require_history(self, state: State) -> None:
        if not state.history.since:
            raise RejectedError(
                f"the history of {self._register.where} is off: switch it on with `bucketq config "
                "URL history_retention_s=604800`"
            )


class HistoryReads:
    """Reads of history and archive that a committer answers for others, beside its commits."""

    def __init__(
        self,
        register: Register,
        clock: Clock,
        archive: ArchiveWriter | None,
        current: Callable[[], State | None],
    ) -> None:
        """Read beside a register that writes, and an archive; ``current`` returns the state."""
        self._register = register
        self._clock = clock
        self._archive = archive
        self._current = current
        self._search: ArchiveSearch | None = None
        self._background = Background()
        self._reader: HistoryReader | None = None
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    def start(
        self, pending: PendingRequest, refusal: Callable[[PendingRequest], Exception | None]
    ) -> None:
        """Answer a request, unless it is refused now or when the answer is there."""
        if self._waiting >= _MOST_WAITING:
            message = f"{self._waiting} reads of history or archive wait already: try again later"
            pending.resolve(None, OverloadedError(message, retry_after_s=1.0))
            return
        self._background.start(self._answer(pending, refusal))

    async def read(self, operation: HistoryRead) -> ChangePage | CopyPart | JobEnd:
        """Answer a read of this process."""
        if isinstance(operation, FindArchived):
            # Most processes never look for an archived job.
            from bucketq.commit.archive_search import ArchiveSearch, find_end  # noqa: PLC0415

            if self._search is None and self._archive is not None:
                self._search = ArchiveSearch(self._register, self._archive, self._current)
            return await find_end(self._search, self._clock, operation.job)
        if self._reader is None:
            self._reader = HistoryReader(self._register, self._clock)
        return await self._reader.answer(operation)

    async def stop(self) -> None:
        """Stop all reads; their callers get no answer from here."""
        await self._background.finish(0)

    async def _answer(
        self, pending: PendingRequest, refusal: Callable[[PendingRequest], Exception | None]
    ) -> None:
        try:
            self._waiting += 1
            async with self._turn:
                error, answer = refusal(pending), None
                if error is None and not pending.is_resolved:
                    operation = cast("HistoryRead", pending.request.operation)
                    answer = await self.read(operation)
                    error = refusal(pending)  # The token may have been revoked meanwhile.
                pending.resolve(None if error else answer, error)
        except asyncio.CancelledError:
            pending.resolve(None, closed(self._register.where))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the request is answered with it
            pending.resolve(None, error)
        finally:
            self._waiting -= 1


def _holds(name: ChangesName, version: int) -> bool:
    return name.first <= version <= name.last


def _page(lines: list[bytes]) -> list[bytes]:
    """Return the first lines, as many as fit in a page."""
    size_bytes = 0
    for count, line in enumerate(lines):
        size_bytes += len(line)
        if size_bytes > _PAGE_BYTES and count:
            return lines[:count]
    return lines


def _first(rows: list[ChangeRecord], limit: int) -> list[ChangeRecord]:
    """Return the first rows, as many as fit in a page."""
    size_bytes = 0
    for count, row in enumerate(rows[:limit]):
        size_bytes += row.size_bytes
        if size_bytes > _PAGE_BYTES and count:
            return rows[:count]
    return rows[:limit]
