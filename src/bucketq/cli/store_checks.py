"""The checks of ``bucketq doctor``.

They use a scratch object beside the queue, which is deleted at the end; the queue itself is only
read. Conditional writes are tested, not looked up in a list of providers: on a store that ignores
a precondition two writers overwrite each other, and a queue would lose jobs.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NoReturn

from bucketq.admin import QueueObject
from bucketq.cli.terminal.output import counted, size
from bucketq.clock import new_id
from bucketq.codec.decode import decode
from bucketq.commit.objects.segment_folder import SegmentFolder
from bucketq.errors import BucketQError, CorruptStateError, UnavailableError
from bucketq.model.effects.archiving import is_due
from bucketq.model.effects.links.job_links import circle_text, find_circle
from bucketq.model.indexes.cold_rows import ColdRows
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.state import State
from bucketq.store.base import ObjectMissingError, PreconditionFailedError

Judgement = Literal["ok", "warn", "fail", "skip"]

# Samples of the latency: enough for a median. Fewer on a store that demands a pause between writes.
_TRIES = 10
_TRIES_PACED = 3
# A queue of a few jobs, and one of some thousand.
_SMALL = b"x" * 1024
_LARGE_BYTES = 1024 * 1024
# Writers that replace the same version at once: two may miss each other by chance.
_RACERS = 8
# No single request takes this long, unless the store does not answer at all.
_TIMEOUT_S = 60.0
# Above the resolution of timestamps, which may be a second, and far below clock_margin_s.
_CLOCK_WARN_S = 5.0
# A finished job this long overdue shows that no process archives.
_ARCHIVE_WARN_S = 60.0
# Segments are rewritten after seven days; one that is older shows that no process does that.
_OLD_SEGMENT = timedelta(days=8)
# The format of objects that name segments.
_DEEP_FORMAT = 2


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    judgement: Judgement
    text: str


@dataclass
class StoreChecks:
    """The results of all checks, and the measured times."""

    findings: list[Finding] = field(default_factory=list)
    put_ms: float | None = None
    get_ms: float | None = None
    put_large_ms: float | None = None
    get_large_ms: float | None = None

    @property
    def is_fit(self) -> bool:
        """Whether the store can hold a queue."""
        return all(finding.judgement != "fail" for finding in self.findings)

    def note(self, name: str, judgement: Judgement, text: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(name, judgement, text))


async def check_store(target: QueueObject) -> StoreChecks:
    """Check everything that a queue needs from its store."""
    checker = _Checker(target)
    try:
        with suppress(_EndedError):
            await checker.check_queue()
            await checker.check_write()
            await checker.check_segments()
            await checker.check_conditions()
            await checker.check_race()
            await checker.check_clock()
            await checker.measure()
    finally:
        await checker.clean_up()
    return checker.checks


class _EndedError(Exception):
    """A failed check makes the following ones pointless."""


class _Checker:
    def __init__(self, target: QueueObject) -> None:
        self.checks = StoreChecks()
        self._target = target
        self._store = target.store
        self._key = f"{target.key}.doctor-{new_id(target.clock)}"
        """The key of the scratch object."""
        self._etag = ""
        """The etag of the scratch object, once it is written."""
        self._state: State | None = None
        """The queue, if there is one that can be read."""

    async def check_queue(self) -> None:
        """Read the queue, which shows whether the credentials allow reading."""
        note = self.checks.note
        try:
            found = await self._do(self._store.get(self._target.key))
            state = self._state = decode(found.body, self._target.url).state
        except ObjectMissingError:
            note("read", "ok", "no queue yet; the store answers")
            return
        except CorruptStateError as error:
            note("queue", "fail", str(error))
            return
        except BucketQError as error:
            self._fail("read", str(error))
        counted_jobs = counted(state.jobs_count, "job")
        note("read", "ok", f"an intact queue, version {state.version:,}, {counted_jobs}")
        if circle := find_circle(state):
            text = (
                f"job {circle_text(circle)}, so none of them ever runs; cancel one of them, or "
                "change its `after` with `bucketq edit`"
            )
            note("dependencies", "warn", text)
        late_s = state.settings.archive_after_s + _ARCHIVE_WARN_S
        oldest = state.done.oldest()
        if oldest is not None and is_due(state.done, late_s, self._target.clock.now()):
            text = (
                f"{counted(len(state.done), 'finished job')} waiting for the archive, the first "
                f"since {finished_at(oldest):%Y-%m-%d %H:%M:%S} UTC; `bucketq archive flush` "
                "archives, or reports what is wrong with the archive"
            )
            note("archive", "warn", text)

    async def check_write(self) -> None:
        """Create the scratch object, and read it back."""
        with self._ending("write"):
            self._etag = await self._do(self._store.create(self._key, b"1"))
            found = await self._do(self._store.get(self._key))
        if found.body != b"1" or found.etag != self._etag:
            self._fail("write", "the object read back differs from the one written")
        self.checks.note("write", "ok", "an object beside the queue can be created and read")

    async def check_segments(self) -> None:
        """Put, read, list and delete an object where segments are, and look at their entries."""
        state, note = self._state, self.checks.note
        if state is not None and state.settings.max_format < _DEEP_FORMAT:
            note("segments", "skip", "not used: max_format is 1, so the object holds every job")
            return
        incarnation = "doctor" if state is None else state.incarnation
        target = self._target
        folder = SegmentFolder(self._store, target.key, incarnation, target.url, target.clock)
        try:
            await self._do(folder.probe())
        except BucketQError as error:
            note("segments", "fail", f"{error}; or keep all jobs in the object: max_format=1")
            return
        rows = ColdRows() if state is None else state.cold.rows
        text = (
            f"{counted(len(rows), 'segment')}, {size(rows.live_bytes)}; objects can be put, read, "
            f"listed and deleted under {folder.address}, which no lifecycle rule may expire"
        )
        ages = [target.clock.now() - each.record.at for each in rows.segments.values()]
        if ages and max(ages) > _OLD_SEGMENT:
            text += (
                f"; the oldest is {max(ages).days} days old: brokers and workers rewrite segments "
                "after 7 days, so keep one of them running"
            )
            note("segments", "warn", text)
            return
        note("segments", "ok", text)

    async def check_conditions(self) -> None:
        """Write under preconditions that do not hold, and check that the writes are rejected."""
        store, key, stale = self._store, self._key, self._etag
        faults = []
        with self._ending("conditional writes"):
            if await self._succeeds(store.create(key, b"2")):
                faults.append("an object was created over one that exists")
                await self._reread()
            await self._replace(b"3")
            if await self._succeeds(store.replace(key, b"4", stale)):
                faults.append("an object was replaced under an outdated etag")
            body = (await self._do(store.get(key))).body
            if not faults and body != b"3":
                faults.append("a rejected write changed the object")
            if await self._succeeds(store.replace(f"{key}-none", b"5", self._etag)):
                faults.append("an object that does not exist was replaced")
            await self._reread()
            unchanged = await self._do(store.get_if_changed(key, self._etag))
        if faults:
            text = "two writers would overwrite each other's jobs; keep no queue in this store"
            self._fail("conditional writes", f"{'; '.join(faults)}: {text}")
        self.checks.note("conditional writes", "ok", "stale and repeated writes are rejected")
        if unchanged is not None:
            text = "not supported: every poll of the queue downloads all of it"
            self.checks.note("conditional reads", "warn", text)

    async def check_race(self) -> None:
        """Let several writers replace the same version at once: only one may succeed."""
        races = (
            self._do(self._store.replace(self._key, b"racer %d" % number, self._etag))
            for number in range(_RACERS)
        )
        answers = await asyncio.gather(*races, return_exceptions=True)
        winners = sum(not isinstance(answer, BaseException) for answer in answers)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, BucketQError):
                raise answer
        await self._reread()
        if winners > 1:
            text = f"{winners} of {_RACERS} writers replaced the same version at once: not atomic"
            self._fail("atomicity", f"{text}; keep no queue in this store")
        text = f"of {_RACERS} concurrent writers at most one succeeds"
        self.checks.note("atomicity", "ok", text)

    async def check_clock(self) -> None:
        """Compare the clock of this host with the timestamps of the store."""
        await self._pause()
        before = self._target.clock.now()
        await self._replace(b"clock")
        after = self._target.clock.now()
        stamp = await self._modified_at()
        if stamp is None:
            return
        # The stamp of some stores has whole seconds.
        early, late = before - stamp - timedelta(seconds=1), stamp - after
        off_s = max(early, late, timedelta()).total_seconds()
        if off_s <= _CLOCK_WARN_S:
            self.checks.note("clock", "ok", "this host and the store agree on the time")
        else:
            text = f"this host and the store differ by {off_s:,.0f} s: set the clock of this host"
            self.checks.note("clock", "warn", f"{text}; clock_margin_s tolerates 300 s by default")

    async def measure(self) -> None:
        """Measure writes and reads."""
        checks = self.checks
        tries = _TRIES_PACED if self._store.write_interval_s else _TRIES
        try:
            small = [await self._timed(_SMALL + b"%d" % number) for number in range(tries)]
            checks.put_large_ms, checks.get_large_ms = await self._timed(b"x" * _LARGE_BYTES)
        except BucketQError as error:
            checks.note("latency", "warn", f"could not be measured: {error}")
            return
        checks.put_ms, checks.get_ms = map(statistics.median, zip(*small, strict=True))
        text = (
            f"PUT {checks.put_ms:.1f} ms, GET {checks.get_ms:.1f} ms at 1 KiB; "
            f"PUT {checks.put_large_ms:.0f} ms, GET {checks.get_large_ms:.0f} ms at 1 MiB"
        )
        checks.note("latency", "ok", text)

    async def clean_up(self) -> None:
        """Delete the scratch object, and check that it is gone."""
        if not self._etag:
            return
        note, key = self.checks.note, self._key
        note("versioning", *self._versioning())
        try:
            for each in (key, f"{key}-none"):
                await self._do(self._store.delete(each))
            await self._do(self._store.get(key))
        except ObjectMissingError:
            note("delete", "ok", "the scratch object was deleted")
        except BucketQError as error:
            note("delete", "warn", f"{key} is left behind: {error}")
        else:
            note("delete", "warn", f"{key} is still there after its deletion")

    def _versioning(self) -> tuple[Judgement, str]:
        """Whether the store keeps a copy of every commit, as far as an etag shows it."""
        scheme = self._target.url.partition(":")[0]
        if scheme in {"file", "memory"}:
            return "ok", "none: a commit replaces the previous one"
        version, separator, _ = self._etag.partition(";")
        if scheme in {"s3", "az"} and separator and version not in {"", "null"}:
            return "warn", (
                "on: the bucket keeps a copy of every commit, and you pay for all of them; let a "
                "lifecycle rule delete old versions after a few days"
            )
        if scheme == "s3":
            return "ok", "off, as far as the responses show"
        return "skip", (
            "could not be checked: if it is on, the bucket keeps and bills a copy of every commit"
        )

    async def _modified_at(self) -> datetime | None:
        note = self.checks.note
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                async for info in self._store.list(self._key):
                    if info.key == self._key:
                        note("list", "ok", "objects can be listed, as the archive requires")
                        return info.modified_at
        except (BucketQError, TimeoutError) as error:
            note("list", "fail", f"{error}: the archive cannot be read without listing")
            return None
        note("list", "fail", "an object that was just written is not in the listing")
        return None

    async def _timed(self, body: bytes) -> tuple[float, float]:
        """How many milliseconds it takes to write these bytes, and to read them."""
        loop = asyncio.get_running_loop()
        await self._pause()
        begin = loop.time()
        await self._replace(body)
        middle = loop.time()
        await self._do(self._store.get(self._key))
        return 1000 * (middle - begin), 1000 * (loop.time() - middle)

    async def _replace(self, body: bytes) -> None:
        """Replace the scratch object under its current etag."""
        self._etag = await self._do(self._store.replace(self._key, body, self._etag))

    async def _reread(self) -> None:
        """Read the current etag of the scratch object."""
        self._etag = (await self._do(self._store.get(self._key))).etag

    async def _succeeds(self, write: Awaitable[str]) -> bool:
        """Whether a write succeeds that should be rejected."""
        try:
            await self._do(write)
        except (PreconditionFailedError, ObjectMissingError):
            return False
        return True

    async def _do(self, call: Awaitable[Any]) -> Any:
        """Await a call to the store, with a timeout."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await call
        except TimeoutError as error:
            raise UnavailableError(f"no answer in {_TIMEOUT_S:g} s") from error

    async def _pause(self) -> None:
        """Wait as long as the provider requires between two writes of one object."""
        if self._store.write_interval_s:
            await asyncio.sleep(self._store.write_interval_s)

    @contextmanager
    def _ending(self, name: str) -> Iterator[None]:
        """Fail this check, and with it the following ones, if a request fails."""
        try:
            yield
        except BucketQError as error:
            self._fail(name, str(error))

    def _fail(self, name: str, text: str) -> NoReturn:
        self.checks.note(name, "fail", text)
        raise _EndedError
