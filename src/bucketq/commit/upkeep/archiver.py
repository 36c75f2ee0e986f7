"""``Archiver``: moves finished jobs from the queue to the archive, in the background.

First it writes archive files; only then it commits that their jobs leave.
It takes only jobs that a landed commit shows as done, and a job that is done never changes, so
nothing has to be locked: two processes that archive at once write a job twice, and readers see it
once.

Every commit writes the finished jobs again, so they must not pile up: each pass moves all that are
due, and if they take too many bytes they leave early. Between commits they cost nothing, so if
requests share commits, the removal of a few waits for one that is written anyway.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import accumulate, islice, repeat
from typing import Any, cast

from bucketq.archive.writer import ArchiveWriter, FinishedJob
from bucketq.clock import Clock, fraction
from bucketq.commit.upkeep.background import BackgroundLoop
from bucketq.commit.upkeep.commit_signal import CommitSignal
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import ClosedError, InvalidRequestError, SupersededError, UnavailableError
from bucketq.model.effects.archiving import is_due
from bucketq.model.effects.timekeeping import agreed
from bucketq.model.indexes.finished_jobs import FinishedJobs, finished_at
from bucketq.model.operations import NoteTime, Request
from bucketq.model.outbox import Archived, ArchivedPart, Outbox, ReadOutbox
from bucketq.model.state import State

_log = logging.getLogger("bucketq")

_PASS_S = 1.0
"""The pause between two passes: short beside ``archive_after_s``; an idle pass costs nothing."""
_BUSY_PASS_S = 0.25
"""The same after jobs had to leave early; more come soon."""
_LAST_RETRY_S = 10.0
"""The longest pause after archiving has failed: meanwhile finished jobs pile up."""
_PRUNE_S = 3600.0
"""How often archive files beyond the retention are deleted; retention is counted in days."""
_CROWD_SHARE = 4
_LEAST_CROWD_BYTES = 64 << 10
_CROWD_BYTES = 4 << 20
"""If finished jobs take more than this share of ``spill_bytes``, or a sixteenth of a larger object,
within these bounds, they leave early until half of it is left: each commit writes them again.
Measured with batches of 100: with 64 KiB twice as many cycles in a second of CPU as with 4 MiB,
with 16 MiB half as many."""
_READ_JOBS = 50_000
"""How many are taken from the outbox at once: few enough for no caller to notice the pause."""
_FILE_JOBS = 5000
_FILE_BYTES = 8 << 20
"""An archive file has at most so many jobs and bytes, so that writing one never takes long."""
_FILES_AT_ONCE = 4
"""How many are written at once, and their jobs removed by one commit. Each commit writes the whole
object; but more jobs would hold up other requests, and more files would take much memory."""
_QUIET_S = 10.0
"""How long after they are due jobs wait at most for a request that causes a commit, and no longer
than ``archive_after_s``. A queue with a job every few seconds makes a quarter fewer commits."""
_REMOVAL_S = 1.0
"""How long jobs whose files are there wait for a commit to leave with: a push is mostly followed by
a completion within that. If this process is killed meanwhile, another writes their files again."""
_WRITE_TRIES = 6
"""About half a minute in all: a storage that is away for longer fails the pass."""


class Archiver:
    """Moves the finished jobs of one queue to its archive; without one, they stay in the queue."""

    def __init__(
        self,
        submit: Callable[[Request], Awaitable[Any]],
        writer: ArchiveWriter | None,
        clock: Clock,
        where: str,
        next_commit: CommitSignal | None = None,
    ) -> None:
        """Commit with ``submit``; ``where`` is what messages call the queue.

        ``next_commit`` says when a request causes one that is shared; None: none are.
        """
        self._submit = submit
        self._has_archive = writer is not None
        # ``start`` and ``flush`` check that there is one; nothing else begins to archive.
        self._writer = cast("ArchiveWriter", writer)
        self._next_commit = next_commit
        self._clock = clock
        self._where = where
        self._turn = asyncio.Lock()
        to = writer.where if writer is not None else ""
        what = f"archiving to {to} fails, and finished jobs stay in the queue"
        self._loop = BackgroundLoop(clock, TransientFault(clock, _log, what, _LAST_RETRY_S))
        self._prune_at = 0.0
        self._was_crowded = False
        self._has_files = False
        """Whether jobs are in the archive already, and wait for a commit that removes them."""
        self._flushes = 0
        """How many calls of ``flush`` are running; nothing waits meanwhile."""

    def start(self, current: Callable[[], State | None]) -> None:
        """Archive what is due in the background, until ``stop``.

        ``current`` returns the state in memory: a queue without finished jobs costs no request.
        """
        if self._has_archive:
            self._prune_at = asyncio.get_running_loop().time() + _PRUNE_S
            self._loop.start(partial(self._pass, current), _PASS_S)

    def notice(self, state: State) -> None:
        """Look at a state after a commit: finished jobs that came in a burst leave at once."""
        if state.done.size_bytes > max(state.settings.spill_bytes, 2 * _crowd_bytes(state)):
            self._loop.wake()

    async def stop(self) -> None:
        """Stop archiving. Jobs whose files are there still leave."""
        if self._next_commit is not None and self._has_files:
            self._next_commit.announce()
            await asyncio.sleep(0)
        await self._loop.stop()

    async def _pass(self, current: Callable[[], State | None]) -> float:
        """Archive what is due; return the pause until the next pass."""
        now_s = asyncio.get_running_loop().time()
        try:
            while await self._move_due(current()):
                pass
            if now_s >= self._prune_at:
                self._prune_at = now_s + _PRUNE_S
                await self._prune(current)
        except (ClosedError, SupersededError):
            raise
        except Exception as error:
            _note_trouble(current(), str(error) or type(error).__name__)
            raise
        _note_trouble(current(), "")
        return _BUSY_PASS_S if self._was_crowded else _PASS_S

    async def flush(self) -> int:
        """Archive everything that is finished now; return how many jobs left by this.

        Everything has left when it returns, even if another process was faster. Jobs that finish
        meanwhile are not included.
        """
        if not self._has_archive:
            message = f"the queue {self._where} was opened without an archive"
            raise InvalidRequestError(message)
        self._flushes += 1
        if self._next_commit is not None:
            self._next_commit.announce()
        try:
            async with self._turn:
                return await self._move(await self._submit(Request(ReadOutbox())))
        finally:
            self._flushes -= 1

    async def _move_due(self, state: State | None) -> bool:
        """Archive jobs that are due; return whether there may be more."""
        if state is None:
            return False
        age_s = state.settings.archive_after_s
        crowd_bytes = _crowd_bytes(state)
        self._was_crowded = is_crowded = state.done.size_bytes > crowd_bytes
        if not is_crowded and not is_due(state.done, age_s, self._clock.now()):
            return False
        if not is_crowded:
            await self._wait_for_commit(self._quiet_s(state.done, age_s))
        keep_bytes = crowd_bytes // 2 if is_crowded else None
        read = ReadOutbox(min_age_s=age_s, keep_bytes=keep_bytes, limit=_READ_JOBS)
        async with self._turn:
            outbox: Outbox = await self._submit(Request(read))
            has_more = len(outbox.jobs) == _READ_JOBS
            await self._move(outbox, waits=not is_crowded and not has_more)
        return has_more

    async def _move(self, outbox: Outbox, *, waits: bool = False) -> int:
        """Archive jobs, and remove them from the queue; return how many left by this.

        ``waits``: their removal may wait for a commit that is written anyway.
        """
        count, files = 0, _archive_files(outbox)
        while some := list(islice(files, _FILES_AT_ONCE)):
            writing = (self._write(*each, outbox.version) for each in some)
            written = await asyncio.gather(*writing, return_exceptions=True)
            failures = [each for each in written if isinstance(each, BaseException)]
            parts = [each for each in written if not isinstance(each, BaseException)]
            if parts and waits:
                self._has_files = True
                try:
                    await self._wait_for_commit(_REMOVAL_S)
                finally:
                    self._has_files = False
            if parts:  # Those that are in the archive leave, whatever has failed.
                count += await self._submit(Request(Archived(parts=tuple(parts))))
            if failures:
                raise failures[0]
        return count

    def _quiet_s(self, done: FinishedJobs, age_s: float) -> float:
        """Return for how much longer the oldest of the jobs that are due may wait."""
        oldest, most_s = done.oldest(), min(age_s, _QUIET_S)
        if oldest is None:
            return 0.0
        left_s = age_s + most_s - (self._clock.now() - finished_at(oldest)).total_seconds()
        return left_s if left_s <= most_s else 0.0  # A clock was set back: they leave now.

    async def _wait_for_commit(self, limit_s: float) -> None:
        """Wait for a commit that a request causes, unless ``flush`` is running."""
        if self._next_commit is not None and not self._flushes and limit_s > 0:
            await self._next_commit.wait(limit_s)

    async def _write(
        self, jobs: Sequence[FinishedJob], lines: Sequence[bytes], version: int
    ) -> ArchivedPart:
        keys = await self._put(jobs, lines, version)
        ids = tuple([(job.id, job.seq) for job, _ in jobs])
        return ArchivedPart(ids, tuple(map(self._writer.name_of, keys)))

    async def _put(
        self, jobs: Sequence[FinishedJob], lines: Sequence[bytes], version: int
    ) -> list[str]:
        for attempt in range(_WRITE_TRIES - 1):
            with suppress(UnavailableError):
                return await self._writer.write(jobs, version, lines)
            await asyncio.sleep(fraction(self._clock) * 2**attempt)
        return await self._writer.write(jobs, version, lines)

    async def _prune(self, current: Callable[[], State | None]) -> None:
        """Delete what is too old; for good, so not by the clock of this process alone."""
        state = current()
        if state is None or not state.settings.archive_retention_s:
            return
        await self._submit(Request(NoteTime()))  # In an idle queue no other commit does.
        state = current() or state
        before = agreed(state, self._clock.now())
        await self._writer.prune(before - timedelta(seconds=state.settings.archive_retention_s))


def _note_trouble(state: State | None, trouble: str) -> None:
    """Let errors that result from it name the reason; none: archiving works."""
    if state is not None:
        state.archive_trouble = trouble


def _crowd_bytes(state: State) -> int:
    """How many bytes finished jobs may take before they leave early."""
    unfinished_bytes = state.size_bytes - state.done.size_bytes
    least = max(state.settings.spill_bytes // _CROWD_SHARE, _LEAST_CROWD_BYTES)
    return min(_CROWD_BYTES, max(least, unfinished_bytes // 16))


def _archive_files(outbox: Outbox) -> Iterator[tuple[Sequence[FinishedJob], Sequence[bytes]]]:
    """Split jobs and their lines into archive files."""
    jobs, lines, start = outbox.jobs, outbox.lines, 0
    sums = [0, *accumulate(map(len, lines or repeat(b"", len(jobs))))]
    while start < len(jobs):
        most = bisect_right(sums, sums[start] + _FILE_BYTES) - 1
        stop = max(start + 1, min(most, start + _FILE_JOBS))
        yield jobs[start:stop], lines[start:stop]
        start = stop
