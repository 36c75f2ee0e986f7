"""The checks of ``bucketq doctor``.

They use a scratch object beside the queue, which is deleted at the end; the queue itself is only
read. Conditional writes are tested, not looked up in a list of providers: on a store that ignores
a precondition two writers overwrite each other, and a queue would lose jobs.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from bucketq.cli.terminal.output import counted
from bucketq.clock import Clock, new_id
from bucketq.codec import decode
from bucketq.errors import BucketQError, CorruptStateError, UnavailableError
from bucketq.model.archiving import is_due
from bucketq.model.finished_jobs import finished_at
from bucketq.store.base import ObjectMissingError, ObjectStore, PreconditionFailedError

Judgement = Literal["ok", "warn", "fail", "skip"]

_TRIES = 10
_TRIES_PACED = 3
"""Samples of the latency; fewer on a store that demands a pause between writes."""
_SMALL = b"x" * 1024
_LARGE_BYTES = 1024 * 1024
_RACERS = 8
"""Writers that replace the same version at once."""
_PATIENCE_S = 60.0
_CLOCK_WARN_S = 5.0
"""Above the resolution of timestamps, which may be a second, and far below clock_margin_s."""
_ARCHIVE_WARN_S = 60.0
"""A finished job this long overdue shows that no process archives."""


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


async def check_store(store: ObjectStore, key: str, url: str, clock: Clock) -> StoreChecks:
    """Check everything that a queue needs from its store."""
    checks = StoreChecks()
    scratch = f"{key}.doctor-{new_id(clock)}"
    steps: list[Callable[..., Awaitable[None]]] = [
        _check_queue,
        _check_write,
        _check_conditions,
        _check_race,
        _check_clock,
        _measure,
    ]
    target = _Scratch(store, key, scratch, url, clock)
    try:
        for step in steps:
            await step(target, checks)
    except _EndedError:
        pass
    finally:
        await _clean_up(target, checks)
    return checks


class _EndedError(Exception):
    """A failed check makes the following ones pointless."""


@dataclass
class _Scratch:
    store: ObjectStore
    queue_key: str
    key: str
    url: str
    clock: Clock
    etag: str = ""
    written_at: datetime | None = None

    async def do(self, call: Awaitable[Any]) -> Any:
        """Await a call to the store, with a timeout."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await call
        except TimeoutError as error:
            message = f"no answer in {_PATIENCE_S:g} s"
            raise UnavailableError(message) from error

    async def replace(self, body: bytes) -> None:
        """Replace the scratch object under its current etag."""
        self.etag = await self.do(self.store.replace(self.key, body, self.etag))


async def _check_queue(target: _Scratch, checks: StoreChecks) -> None:
    """Read the queue, which shows whether the credentials allow reading."""
    try:
        found = await target.do(target.store.get(target.queue_key))
    except ObjectMissingError:
        checks.note("read", "ok", "no queue yet; the store answers")
        return
    except BucketQError as error:
        checks.note("read", "fail", str(error))
        raise _EndedError from error
    try:
        state = decode(found.body, target.url).state
    except CorruptStateError as error:
        checks.note("queue", "fail", str(error))
        return
    checks.note(
        "read", "ok", f"an intact queue, version {state.version:,}, {len(state.jobs):,} jobs"
    )
    late_s = state.settings.archive_after_s + _ARCHIVE_WARN_S
    oldest = state.done.oldest()
    if oldest is not None and is_due(state.done, late_s, target.clock.now()):
        text = (
            f"{counted(len(state.done), 'finished job')} waiting for the archive, the first since "
            f"{finished_at(oldest):%Y-%m-%d %H:%M:%S} UTC; `bucketq archive flush` archives, "
            "or reports what is wrong with the archive"
        )
        checks.note("archive", "warn", text)


async def _check_write(target: _Scratch, checks: StoreChecks) -> None:
    """Create the scratch object, and read it back."""
    try:
        target.etag = await target.do(target.store.create(target.key, b"1"))
        target.written_at = target.clock.now()
        found = await target.do(target.store.get(target.key))
    except BucketQError as error:
        checks.note("write", "fail", str(error))
        raise _EndedError from error
    if found.body != b"1" or found.etag != target.etag:
        checks.note("write", "fail", "the object read back differs from the one written")
        raise _EndedError
    checks.note("write", "ok", "an object beside the queue can be created and read")


async def _check_conditions(target: _Scratch, checks: StoreChecks) -> None:
    """Write under preconditions that do not hold, and check that the writes are rejected."""
    store, scratch, stale = target.store, target.key, target.etag
    faults = []
    try:
        if await _took(target, store.create(scratch, b"2")):
            faults.append("an object was created over one that exists")
            target.etag = (await target.do(store.get(scratch))).etag
        await target.replace(b"3")
        if await _took(target, store.replace(scratch, b"4", stale)):
            faults.append("an object was replaced under an outdated etag")
        body = (await target.do(store.get(scratch))).body
        if not faults and body != b"3":
            faults.append("a rejected write changed the object")
        if await _took(target, store.replace(f"{scratch}-none", b"5", target.etag)):
            faults.append("an object that does not exist was replaced")
        target.etag = (await target.do(store.get(scratch))).etag
        unchanged = await target.do(store.get_if_changed(scratch, target.etag))
    except BucketQError as error:
        checks.note("conditional writes", "fail", str(error))
        raise _EndedError from error
    if faults:
        text = "; ".join(faults)
        text += ": two writers would overwrite each other's jobs; keep no queue in this store"
        checks.note("conditional writes", "fail", text)
        raise _EndedError
    checks.note("conditional writes", "ok", "stale and repeated writes are rejected")
    if unchanged is not None:
        text = "not supported: every poll of the queue downloads all of it"
        checks.note("conditional reads", "warn", text)


async def _check_race(target: _Scratch, checks: StoreChecks) -> None:
    """Let several writers replace the same version at once: only one may succeed."""
    store, scratch, etag = target.store, target.key, target.etag
    races = (
        target.do(store.replace(scratch, b"racer %d" % number, etag)) for number in range(_RACERS)
    )
    answers = await asyncio.gather(*races, return_exceptions=True)
    winners = sum(not isinstance(answer, BaseException) for answer in answers)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, BucketQError):
            raise answer
    target.etag = (await target.do(store.get(scratch))).etag
    if winners > 1:
        text = f"{winners} of {_RACERS} writers replaced the same version at once: not atomic"
        checks.note("atomicity", "fail", f"{text}; keep no queue in this store")
        raise _EndedError
    checks.note("atomicity", "ok", f"of {_RACERS} concurrent writers at most one succeeds")


async def _check_clock(target: _Scratch, checks: StoreChecks) -> None:
    """Compare the clock of this host with the timestamps of the store."""
    await _pause(target)
    before = target.clock.now()
    await target.replace(b"clock")
    after = target.clock.now()
    stamp = await _modified_at(target, checks)
    if stamp is None:
        return
    # The stamp of some stores has whole seconds.
    early, late = before - stamp - timedelta(seconds=1), stamp - after
    off_s = max(early, late, timedelta()).total_seconds()
    if off_s <= _CLOCK_WARN_S:
        checks.note("clock", "ok", "this host and the store agree on the time")
    else:
        text = f"this host and the store differ by {off_s:,.0f} s: set the clock of this host"
        checks.note("clock", "warn", f"{text}; clock_margin_s tolerates 300 s by default")


async def _modified_at(target: _Scratch, checks: StoreChecks) -> datetime | None:
    listing: AsyncIterator[Any] = target.store.list(target.key)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for info in listing:
                if info.key == target.key:
                    checks.note("list", "ok", "objects can be listed, as the archive requires")
                    found: datetime = info.modified_at
                    return found
    except (BucketQError, TimeoutError) as error:
        checks.note("list", "fail", f"{error}: the archive cannot be read without listing")
        return None
    checks.note("list", "fail", "an object that was just written is not in the listing")
    return None


async def _measure(target: _Scratch, checks: StoreChecks) -> None:
    """Measure writes and reads."""
    interval_s = target.store.write_interval_s
    loop = asyncio.get_running_loop()
    puts, gets = [], []
    try:
        for number in range(_TRIES_PACED if interval_s else _TRIES):
            await _pause(target)
            begin = loop.time()
            await target.replace(_SMALL + b"%d" % number)
            middle = loop.time()
            await target.do(target.store.get(target.key))
            puts.append(middle - begin)
            gets.append(loop.time() - middle)
        await _pause(target)
        begin = loop.time()
        await target.replace(b"x" * _LARGE_BYTES)
        middle = loop.time()
        await target.do(target.store.get(target.key))
    except BucketQError as error:
        checks.note("latency", "warn", f"could not be measured: {error}")
        return
    checks.put_large_ms = 1000 * (middle - begin)
    checks.get_large_ms = 1000 * (loop.time() - middle)
    checks.put_ms = 1000 * statistics.median(puts)
    checks.get_ms = 1000 * statistics.median(gets)
    text = (
        f"PUT {checks.put_ms:.1f} ms, GET {checks.get_ms:.1f} ms at 1 KiB; "
        f"PUT {checks.put_large_ms:.0f} ms, GET {checks.get_large_ms:.0f} ms at 1 MiB"
    )
    checks.note("latency", "ok", text)


async def _clean_up(target: _Scratch, checks: StoreChecks) -> None:
    """Delete the scratch object, and check that it is gone."""
    if target.written_at is None:
        return
    checks.findings.append(_versioning(target))
    try:
        for key in (target.key, f"{target.key}-none"):
            await target.do(target.store.delete(key))
        await target.do(target.store.get(target.key))
    except ObjectMissingError:
        checks.note("delete", "ok", "the scratch object was deleted")
    except BucketQError as error:
        checks.note("delete", "warn", f"{target.key} is left behind: {error}")
    else:
        checks.note("delete", "warn", f"{target.key} is still there after its deletion")


def _versioning(target: _Scratch) -> Finding:
    """Report whether the store keeps a copy of every commit, as far as an etag shows it."""
    scheme = target.url.partition(":")[0]
    if scheme in {"file", "memory"}:
        return Finding("versioning", "ok", "none: a commit replaces the previous one")
    version, separator, _ = target.etag.partition(";")
    if scheme in {"s3", "az"} and separator and version not in {"", "null"}:
        text = (
            "on: the bucket keeps a copy of every commit, and you pay for all of them; let a "
            "lifecycle rule delete old versions after a few days"
        )
        return Finding("versioning", "warn", text)
    if scheme == "s3":
        return Finding("versioning", "ok", "off, as far as the responses show")
    text = "could not be checked: if it is on, the bucket keeps and bills a copy of every commit"
    return Finding("versioning", "skip", text)


async def _took(target: _Scratch, write: Awaitable[str]) -> bool:
    """Whether a write succeeded that should have been rejected."""
    try:
        await target.do(write)
    except (PreconditionFailedError, ObjectMissingError):
        return False
    return True


async def _pause(target: _Scratch) -> None:
    """Wait as long as the provider requires between two writes of one object."""
    if target.store.write_interval_s:
        await asyncio.sleep(target.store.write_interval_s)
