"""Pushes many jobs in batches, and can be interrupted at any time and resumed.

A batch is committed completely or not at all. After a kill the progress file names the pending
batch. Whether it was committed follows from its jobs: they are in the queue, or in the archive, or
were never pushed. If it is committed late, after that check, pushing it again is recognised by the
ids of its jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

from msgspec import structs

from bucketq.cli.bulk.duplicates import DuplicateFinder
from bucketq.cli.bulk.feeds import Defaults, Feed, FileFeed, Item, Mark, StreamFeed, check_item
from bucketq.cli.bulk.file_adoption import NotAdoptableError, adopt_lines
from bucketq.cli.bulk.progress_file import SUFFIX, ProgressFile, ProgressRecord, read_record
from bucketq.cli.opening import open_queue
from bucketq.cli.parsing import STDIN
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output, counted
from bucketq.cli.terminal.progress_bar import Bar
from bucketq.cli.terminal.user_input import interruptible
from bucketq.client.archive import open_archive
from bucketq.client.connect_arguments import BROKERS
from bucketq.clock import Clock, SystemClock, new_id
from bucketq.errors import (
    BucketQError,
    InvalidRequestError,
    JobNotFoundError,
    KeyConflictError,
    PayloadTooLargeError,
)
from bucketq.model.settings import Settings
from bucketq.queue.queue import Queue

# Jobs per commit: with fewer, the object is rewritten more often. max_batch_jobs may lower it.
_BATCH_JOBS = 10_000
# Bounds the size of one request; max_batch_bytes of the queue may lower it.
_BATCH_BYTES = 32 * 1024 * 1024
# The archive is searched this much beyond a batch, in case clocks differ.
_CLOCK_MARGIN = timedelta(hours=1)
# Items that are checked between two turns of the event loop: a tenth of a second or so.
_ITEMS_PER_TURN = 5000
_FAULTS_OF_A_JOB = (InvalidRequestError, KeyConflictError, PayloadTooLargeError)


@dataclass(frozen=True)
class Plan:
    """How to push a feed."""

    url: str
    defaults: Defaults
    progress: Path | None
    """The progress file; None: the push cannot be resumed."""
    restart: bool
    batch_jobs: int | None
    """Jobs per commit; None: all in one commit, if that is possible."""


async def push_lines(out: Output, plan: Plan, path: Path) -> int:
    """Push the lines of a file, resuming an interrupted run, or those of stdin (``-``)."""
    if str(path) == STDIN:
        plan = replace(plan, progress=None, restart=False)
        feed = StreamFeed(sys.stdin.buffer, plan.defaults, new_id(SystemClock()))
        return await push_feed(out, plan, lambda _: feed)
    plan = replace(plan, progress=plan.progress or Path(f"{path}{SUFFIX}"))
    return await push_feed(out, plan, lambda restarts: FileFeed(path, plan.defaults, restarts))


async def push_feed(out: Output, plan: Plan, open_feed: Callable[[int], Feed]) -> int:
    """Push the feed that ``open_feed`` returns for a number of restarts; return the exit code."""
    clock = SystemClock()
    record = None if plan.progress is None else read_record(plan.progress)
    restarts = 0 if record is None else record.restarts + plan.restart
    feed = open_feed(restarts)
    async with open_queue(plan.url, out.timeout_s, create=True) as queue:
        incarnation = (await queue.stats()).incarnation
        if not incarnation:  # An older broker leaves it out.
            incarnation = (await queue.snapshot()).incarnation
        settings = await queue.settings()
        fresh = ProgressRecord(
            source=feed.digest,
            target=plan.url,
            incarnation=incarnation,
            options=plan.defaults.choice,
            restarts=restarts,
        )
        if record is None or plan.restart:
            record = fresh
        _check_same_run(plan, feed, record, fresh)
        if record.finished_at is not None and not feed.grows:
            out.done("nothing to push", _result(record, record.done.jobs))
            out.note(
                f"all {counted(record.done.number, feed.noun)} were pushed before, according to "
                f"{plan.progress}; use --restart to push them again as new jobs"
            )
            return exit_codes.OK
        progress = ProgressFile(plan.progress, record, clock)
        with Bar(out, feed.total, feed.noun) as bar:
            pusher = _Pusher(out, plan, feed, progress, bar, queue)
            if await pusher.adopt():
                return exit_codes.OK
            if feed.total is not None:
                await pusher.check(settings)
            await pusher.settle_pending(clock)
            return await pusher.run(settings)


def _check_same_run(plan: Plan, feed: Feed, record: ProgressRecord, fresh: ProgressRecord) -> None:
    """Raise ``InvalidRequestError`` if the record is of another run than this one."""
    reasons = {
        "the source has changed": record.source != fresh.source,
        f"it was pushed to {record.target}": record.target != fresh.target,
        "it was pushed with other options": record.options != fresh.options,
        "the queue was restored or recreated": record.incarnation != fresh.incarnation,
    }
    for reason, applies in reasons.items():
        if applies:
            raise InvalidRequestError(
                f"{plan.progress} is from an earlier run, but {reason} since; use --restart to "
                f"push every {feed.noun} as a new job, or name another file with --progress"
            )


def _check_archive_access(plan: Plan) -> None:
    """Raise if only the archive can answer and it cannot be read: brokers do not serve it."""
    if plan.url.startswith(("bucketq://", "bucketqs://")):
        raise InvalidRequestError(
            f"{plan.progress} names a batch that is not in the queue, and only the archive shows "
            "whether it was pushed: check with `bucketq archive cat` and the address of the "
            "queue's object, and push the missing jobs from another file"
        )


@dataclass
class _Pusher:
    """Pushes one feed into one queue."""

    _out: Output
    _plan: Plan
    _feed: Feed
    _progress: ProgressFile
    _bar: Bar
    _queue: Queue[Any]
    _is_stopped: bool = False
    _duplicates: int = 0
    """How many jobs of this run were there already."""

    async def check(self, settings: Settings) -> None:
        """Read all remaining items, so that a bad line is found before any is pushed."""
        start = self._progress.record.done
        self._bar.begin("checking", start.number)
        duplicates = DuplicateFinder(self._feed.name, self._feed.noun)
        for count, item in enumerate(self._feed.items(start)):
            job = check_item(self._feed.name, item, settings)
            duplicates.add(job, item.end.number, has_own_id=not item.has_made_id)
            if not count % _ITEMS_PER_TURN:
                self._bar.show(item.end.number)
                await asyncio.sleep(0)

    async def adopt(self) -> bool:
        """Push all lines in one commit, if they can be and need several otherwise."""
        feed, record = self._feed, self._progress.record
        is_new = record.pending is None and record.done == Mark()
        if (
            not isinstance(feed, FileFeed)
            or self._plan.batch_jobs is not None
            or (feed.total or 0) <= _BATCH_JOBS
            or not is_new
            or self._plan.url.startswith(BROKERS)
            or await self._is_begun()
        ):
            return False
        self._bar.begin("writing", 0)
        try:
            with self._explaining():
                url, timeout_s = self._plan.url, self._out.timeout_s
                end = await adopt_lines(url, timeout_s, feed, self._bar.show)
        except NotAdoptableError as reason:
            self._out.note(f"the jobs are pushed in batches, and not in one commit: {reason}")
            return False
        self._progress.settle(end)
        self._progress.finish()
        self._report(0)
        return True

    async def _is_begun(self) -> bool:
        """Whether the first job is in the queue: it was pushed in batches, by an unknown run."""
        first = next(self._feed.items(Mark()), None)
        return first is None or bool(await self._find({first.spec.id}, set()))

    async def settle_pending(self, clock: Clock) -> None:
        """Find out whether the batch that was pending at the interruption was committed."""
        record = self._progress.record
        if record.pending is None:
            return
        last = record.pending.at
        items = list(takewhile(lambda item: item.end.at <= last, self._feed.items(record.done)))
        # In a queue with partitions, a part of the batch may have been committed.
        is_spread = (await self._queue.stats()).partitions > 1
        own = {item.spec.id for item in items if item.has_made_id and not is_spread}
        wanted = own or {item.spec.id for item in items}
        found = await self._find(wanted, own)
        if not _is_there(found, wanted, own) and record.began_at is not None:
            _check_archive_access(self._plan)
            async with open_archive(self._plan.url) as archive:
                since = record.began_at - _CLOCK_MARGIN
                async for job in archive.jobs(since, clock.now() + _CLOCK_MARGIN):
                    if job.id in wanted:
                        found.add(job.id)
                        if _is_there(found, wanted, own):
                            break
        if is_spread and found and found != wanted:
            await self._push_specs([item for item in items if item.spec.id not in found])
            found = wanted
        if items and _is_there(found, wanted, own):
            self._progress.settle(record.pending)

    async def _find(self, wanted: set[Any], own: set[Any]) -> set[Any]:
        """Return those of a batch that are in the queue; not all if some prove that it is there."""
        found = set[Any]()
        for job_id in wanted:
            with contextlib.suppress(JobNotFoundError):
                found.add((await self._queue.get(job_id)).id)
                if _is_there(found, wanted, own):
                    break
        return found

    async def run(self, settings: Settings) -> int:
        """Push batch after batch; on Ctrl-C, finish the current batch and stop."""
        before = self._progress.record.done.jobs
        self._bar.begin("pushing", self._progress.record.done.number)
        jobs = min(self._plan.batch_jobs or _BATCH_JOBS, settings.max_batch_jobs)
        size_bytes = min(_BATCH_BYTES, settings.max_batch_bytes)
        items = self._feed.items(self._progress.record.done)
        with self._explaining(), interruptible():  # Reading lines blocks the event loop.
            for batch in _batches(items, jobs, size_bytes):
                await self._push(batch)
                if self._is_stopped:
                    return self._stop(before)
        self._progress.finish()
        self._report(before)
        return exit_codes.OK

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Say how far the push has come if it fails or is interrupted."""
        try:
            yield
        except BucketQError as error:
            is_ours = isinstance(error, _FAULTS_OF_A_JOB)
            self._out.note(self._how_to_fix() if is_ours else self._how_far())
            raise
        except (asyncio.CancelledError, KeyboardInterrupt):
            self._out.after_interrupt = self._how_far()
            raise

    async def _push(self, batch: list[Item]) -> None:
        end = batch[-1].end
        with self._stopping_after_batch():
            self._progress.begin(end)
            await self._push_specs(batch)
            self._progress.settle(end)
            self._bar.show(end.number)
            await asyncio.sleep(0)

    async def _push_specs(self, batch: list[Item]) -> None:
        async with contextlib.AsyncExitStack() as copies:
            specs = []
            for item in batch:
                spec = item.spec
                if item.large is not None:
                    copy = await self._feed.copy_payload(item.large)
                    copies.callback(copy.close)
                    spec = structs.replace(spec, payload=copy.payload())
                specs.append(spec)
            ids = await self._queue.push_many(specs)
            self._duplicates += sum(job_id.duplicate for job_id in ids)

    @contextlib.contextmanager
    def _stopping_after_batch(self) -> Iterator[None]:
        """During a batch, stop after it on the first Ctrl-C and at once on the second."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            if self._is_stopped and task is not None:
                task.cancel()
            else:
                self._is_stopped = True
                self._bar.say("stopping after this batch; Ctrl-C again stops at once")

        try:
            loop.add_signal_handler(signal.SIGINT, stop)
        except (NotImplementedError, RuntimeError, ValueError):
            yield  # Not the main thread, which alone receives signals.
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)  # Ctrl-C interrupts again.

    def _stop(self, before: int) -> int:
        self._progress.write()
        self._report(before)
        self._out.error(f"stopped; {self._how_far()}", exit_code=exit_codes.INTERRUPTED)
        return exit_codes.INTERRUPTED

    def _report(self, before: int) -> None:
        record = self._progress.record
        self._bar.close()
        earlier = f", {before:,} were pushed before" if before else ""
        there = f", {self._duplicates:,} of them there already" if self._duplicates else ""
        text = f"{counted(record.done.jobs - before, 'job')} pushed{there}{earlier}"
        self._out.done(text, _result(record, before, self._duplicates))
        if not record.done.number and self._progress.path is None:
            self._out.note(f"{self._feed.name} was empty; --file names a file to push")

    def _how_far(self) -> str:
        if self._progress.path is None:
            return f"{self._far()}; continue after them"
        return f"{self._far()}; to resume, run the same command again"

    def _how_to_fix(self) -> str:
        """What to do if the same command would fail again."""
        if self._progress.path is None:
            return self._how_far()
        if self._feed.grows:
            advice = "remove the job from one of the queues and run the command again"
        else:
            number = self._progress.record.done.number
            after = f"after line {number:,} " if number else ""
            advice = f"correct the lines {after}in a new file, and push that"
        return f"{self._far()}; the same command would fail again: {advice}"

    def _far(self) -> str:
        done = self._progress.record.done
        return f"{counted(done.number, self._feed.noun)} of {self._feed.name} acknowledged"


def _result(record: ProgressRecord, before: int, duplicates: int = 0) -> dict[str, object]:
    """The output of the command with --json."""
    done = record.done
    return {
        "pushed": done.jobs - before,
        "duplicates": duplicates,
        "jobs": done.jobs,
        "lines": done.number,
        "finished": record.finished_at is not None,
    }


def _is_there(found: set[Any], wanted: set[Any], own: set[Any]) -> bool:
    """Whether a batch was committed; one job with a derived id proves it, as all go together."""
    return bool(found) if own else found == wanted


def _batches(items: Iterator[Item], jobs: int, size_bytes: int) -> Iterator[list[Item]]:
    """Divide a feed into batches; no id, key or unique name occurs twice in one.

    A batch is yielded as soon as it is full, and the jobs before a bad line are yielded too.
    """
    batch: list[Item] = []
    names: set[tuple[str, str | None]] = set()
    total = 0
    while True:
        try:
            item = next(items, None)
        except InvalidRequestError:
            if batch:
                yield batch
            raise
        if item is None:
            break
        own = {("id", item.spec.id)} | ({("key", item.spec.key)} if item.spec.key else set())
        if item.spec.unique is not None:
            own.add((f"unique {item.spec.kind}", item.spec.unique))
        if batch and (total + item.size_bytes > size_bytes or names & own):
            yield batch
            batch, names, total = [], set(), 0
        batch.append(item)
        names |= own
        total += item.size_bytes
        if len(batch) >= jobs:
            yield batch
            batch, names, total = [], set(), 0
    if batch:
        yield batch
