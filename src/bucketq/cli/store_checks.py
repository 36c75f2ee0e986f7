"""What ``bucketq doctor`` tries on a store, and how it judges what it sees.

Everything is tried on a scratch object beside the queue, under a name of its own, which is removed
at the end. The queue itself is only read. Conditional writes are not looked up in a list of
providers but done: on a store that ignores a precondition two writers overwrite each other, and no
queue can live there.
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
from bucketq.model.done import finished_at
from bucketq.model.finished import is_due
from bucketq.store.base import (
    ObjectMissingError,
    ObjectStore,
    PreconditionFailedError,
)

Judgement = Literal["ok", "warn", "fail", "skip"]

_TRIES = 10
_TRIES_PACED = 3
_SMALL = b"x" * 1024
_LARGE_BYTES = 1024 * 1024
_RACERS = 8
_PATIENCE_S = 60.0
_CLOCK_WARN_S = 5.0
_ARCHIVE_WARN_S = 60.0
"""So long after its time a finished job that has not left shows that nothing archives."""


@dataclass(frozen=True)
class Finding:
    """One thing that was tried."""

    name: str
    judgement: Judgement
    text: str


@dataclass
class Checkup:
    """What was found, and how long things took."""

    findings: list[Finding] = field(default_factory=list)
    put_ms: float | None = None
    get_ms: float | None = None
    put_large_ms: float | None = None
    get_large_ms: float | None = None

    @property
    def is_fit(self) -> bool:
        """Whether a queue can live here."""
        return all(finding.judgement != "fail" for finding in self.findings)

    def note(self, name: str, judgement: Judgement, text: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(name, judgement, text))


async def examine(store: ObjectStore, key: str, url: str, clock: Clock) -> Checkup:
    """Try everything that a queue needs from its store."""
    checkup = Checkup()
    scratch = f"{key}.doctor-{new_id(clock)}"
    steps: list[Callable[..., Awaitable[None]]] = [
        _check_queue,
        _check_write,
        _check_conditions,
        _check_race,
        _check_clock,
        _measure,
    ]
    patient = _Patient(store, key, scratch, url, clock)
    try:
        for step in steps:
            await step(patient, checkup)
    except _EndedError:
        pass
    finally:
        await _clean_up(patient, checkup)
    return checkup


class _EndedError(Exception):
    """What was found makes further tries pointless."""


@dataclass
class _Patient:
    store: ObjectStore
    key: str
    scratch: str
    url: str
    clock: Clock
    etag: str = ""
    written_at: datetime | None = None

    async def do(self, call: Awaitable[Any]) -> Any:
        """Await the store, but not for ever."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await call
        except TimeoutError as error:
            message = f"no answer in {_PATIENCE_S:g} s"
            raise UnavailableError(message) from error

    async def replace(self, body: bytes) -> None:
        """Write the scratch object anew, as somebody who has just written it."""
        self.etag = await self.do(self.store.replace(self.scratch, body, self.etag))


async def _check_queue(patient: _Patient, checkup: Checkup) -> None:
    """Read the queue: that shows whether the credentials are good for reading."""
    try:
        found = await patient.do(patient.store.get(patient.key))
    except ObjectMissingError:
        checkup.note("read", "ok", "no queue there yet; the store answers")
        return
    except BucketQError as error:
        checkup.note("read", "fail", str(error))
        raise _EndedError from error
    try:
        state = decode(found.body, patient.url).state
    except CorruptStateError as error:
        checkup.note("queue", "fail", str(error))
        return
    checkup.note(
        "read", "ok", f"a sound queue, version {state.version:,}, {len(state.jobs):,} jobs"
    )
    late_s = state.settings.archive_after_s + _ARCHIVE_WARN_S
    oldest = state.done.oldest()
    if oldest is not None and is_due(state.done, late_s, patient.clock.now()):
        text = (
            f"{counted(len(state.done), 'finished job')} waiting for the archive, the first since "
            f"{finished_at(oldest):%Y-%m-%d %H:%M:%S} UTC; `bucketq archive flush` archives, "
            "or says what is wrong with the archive"
        )
        checkup.note("archive", "warn", text)


async def _check_write(patient: _Patient, checkup: Checkup) -> None:
    """Create the scratch object, and read it back."""
    try:
        patient.etag = await patient.do(patient.store.create(patient.scratch, b"1"))
        patient.written_at = patient.clock.now()
        found = await patient.do(patient.store.get(patient.scratch))
    except BucketQError as error:
        checkup.note("write", "fail", str(error))
        raise _EndedError from error
    if found.body != b"1" or found.etag != patient.etag:
        checkup.note("write", "fail", "what was written is not what is read back")
        raise _EndedError
    checkup.note("write", "ok", "an object beside the queue can be created and read")


async def _check_conditions(patient: _Patient, checkup: Checkup) -> None:
    """Write under preconditions that do not hold, and see that nothing comes of it."""
    store, scratch, stale = patient.store, patient.scratch, patient.etag
    faults = []
    try:
        if await _took(patient, store.create(scratch, b"2")):
            faults.append("an object was created over one that exists")
            patient.etag = (await patient.do(store.get(scratch))).etag
        await patient.replace(b"3")
        if await _took(patient, store.replace(scratch, b"4", stale)):
            faults.append("an object was replaced under an etag that it no longer bore")
        body = (await patient.do(store.get(scratch))).body
        if not faults and body != b"3":
            faults.append("a write that was refused has changed the object")
        if await _took(patient, store.replace(f"{scratch}-none", b"5", patient.etag)):
            faults.append("an object that does not exist was replaced")
        patient.etag = (await patient.do(store.get(scratch))).etag
        unchanged = await patient.do(store.get_if_changed(scratch, patient.etag))
    except BucketQError as error:
        checkup.note("conditional writes", "fail", str(error))
        raise _EndedError from error
    if faults:
        text = "; ".join(faults)
        text += ": two writers would overwrite each other's jobs; keep no queue in this store"
        checkup.note("conditional writes", "fail", text)
        raise _EndedError
    checkup.note("conditional writes", "ok", "stale and repeated writes are refused")
    if unchanged is not None:
        text = "not supported: every look at the queue downloads all of it"
        checkup.note("conditional reads", "warn", text)


async def _check_race(patient: _Patient, checkup: Checkup) -> None:
    """Let several replace the same version at once: one may win."""
    store, scratch, etag = patient.store, patient.scratch, patient.etag
    races = (
        patient.do(store.replace(scratch, b"racer %d" % number, etag)) for number in range(_RACERS)
    )
    answers = await asyncio.gather(*races, return_exceptions=True)
    winners = sum(not isinstance(answer, BaseException) for answer in answers)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, BucketQError):
            raise answer
    patient.etag = (await patient.do(store.get(scratch))).etag
    if winners > 1:
        text = f"{winners} of {_RACERS} writers replaced the same version at once: not atomic"
        checkup.note("atomicity", "fail", f"{text}; keep no queue in this store")
        raise _EndedError
    checkup.note("atomicity", "ok", f"of {_RACERS} writers at once at most one wins")


async def _check_clock(patient: _Patient, checkup: Checkup) -> None:
    """Compare this machine's clock with the one that the store stamps objects with."""
    await _pause(patient)
    before = patient.clock.now()
    await patient.replace(b"what time is it?")
    after = patient.clock.now()
    stamp = await _modified_at(patient, checkup)
    if stamp is None:
        return
    # The stamp of some stores has whole seconds.
    early, late = before - stamp - timedelta(seconds=1), stamp - after
    off_s = max(early, late, timedelta()).total_seconds()
    if off_s <= _CLOCK_WARN_S:
        checkup.note("clock", "ok", "this machine and the store agree on the time")
    else:
        text = f"this machine and the store differ by {off_s:,.0f} s: set this machine's clock"
        checkup.note("clock", "warn", f"{text}; clock_margin_s forgives 300 s by default")


async def _modified_at(patient: _Patient, checkup: Checkup) -> datetime | None:
    listing: AsyncIterator[Any] = patient.store.list(patient.scratch)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for info in listing:
                if info.key == patient.scratch:
                    checkup.note("list", "ok", "objects can be listed, as the archive needs it")
                    found: datetime = info.modified_at
                    return found
    except (BucketQError, TimeoutError) as error:
        checkup.note("list", "fail", f"{error}: the archive cannot be read without listing")
        return None
    checkup.note("list", "fail", "an object that was just written is not in the listing")
    return None


async def _measure(patient: _Patient, checkup: Checkup) -> None:
    """Take the time of writes and reads."""
    interval_s = patient.store.write_interval_s
    loop = asyncio.get_running_loop()
    puts, gets = [], []
    try:
        for number in range(_TRIES_PACED if interval_s else _TRIES):
            await _pause(patient)
            begin = loop.time()
            await patient.replace(_SMALL + b"%d" % number)
            middle = loop.time()
            await patient.do(patient.store.get(patient.scratch))
            puts.append(middle - begin)
            gets.append(loop.time() - middle)
        await _pause(patient)
        begin = loop.time()
        await patient.replace(b"x" * _LARGE_BYTES)
        middle = loop.time()
        await patient.do(patient.store.get(patient.scratch))
    except BucketQError as error:
        checkup.note("latency", "warn", f"could not be measured: {error}")
        return
    checkup.put_large_ms = 1000 * (middle - begin)
    checkup.get_large_ms = 1000 * (loop.time() - middle)
    checkup.put_ms = 1000 * statistics.median(puts)
    checkup.get_ms = 1000 * statistics.median(gets)
    text = (
        f"PUT {checkup.put_ms:.1f} ms, GET {checkup.get_ms:.1f} ms at 1 KiB; "
        f"PUT {checkup.put_large_ms:.0f} ms, GET {checkup.get_large_ms:.0f} ms at 1 MiB"
    )
    checkup.note("latency", "ok", text)


async def _clean_up(patient: _Patient, checkup: Checkup) -> None:
    """Remove what was tried on, and see that it is gone."""
    if patient.written_at is None:
        return
    checkup.findings.append(_versioning(patient))
    try:
        for key in (patient.scratch, f"{patient.scratch}-none"):
            await patient.do(patient.store.delete(key))
        await patient.do(patient.store.get(patient.scratch))
    except ObjectMissingError:
        checkup.note("delete", "ok", "the scratch object is removed again")
    except BucketQError as error:
        checkup.note("delete", "warn", f"{patient.scratch} is left behind: {error}")
    else:
        checkup.note("delete", "warn", f"{patient.scratch} is still there after its deletion")


def _versioning(patient: _Patient) -> Finding:
    """Tell whether the store keeps a copy of every commit, where an etag shows it."""
    scheme = patient.url.partition(":")[0]
    if scheme in {"file", "memory"}:
        return Finding("versioning", "ok", "none: a commit replaces the one before it")
    version, separator, _ = patient.etag.partition(";")
    if scheme in {"s3", "az"} and separator and version not in {"", "null"}:
        text = (
            "on: the bucket keeps a copy of every commit, and you pay for all of them; let a "
            "lifecycle rule delete old versions after a few days"
        )
        return Finding("versioning", "warn", text)
    if scheme == "s3":
        return Finding("versioning", "ok", "off, as far as the answers show")
    text = "could not be checked: if it is on, the bucket keeps and bills a copy of every commit"
    return Finding("versioning", "skip", text)


async def _took(patient: _Patient, write: Awaitable[str]) -> bool:
    """Whether a write succeeded that should have been refused."""
    try:
        await patient.do(write)
    except (PreconditionFailedError, ObjectMissingError):
        return False
    return True


async def _pause(patient: _Patient) -> None:
    """Wait as long as the provider wants between two writes of one object."""
    if patient.store.write_interval_s:
        await asyncio.sleep(patient.store.write_interval_s)
