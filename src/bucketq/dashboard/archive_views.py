"""The archive as the page shows it: jobs that finished in a time range, the latest first, in pages.

It is read from the storage, in threads with loops of their own, so that decoding many jobs holds up
neither the page nor a broker. A request reads back hour by hour until it has a page, or has taken
long enough; its answer says where the next one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from typing import Any, TypeVar, get_args

from msgspec import Struct

from bucketq.archive.archive_layout import Layout, hour_of, hours_between
from bucketq.archive.reader import ArchiveReader
from bucketq.client.connect_arguments import BROKERS
from bucketq.clock import Clock
from bucketq.dashboard.finished_sample import ArchiveSample, FinishedJob
from bucketq.dashboard.flow_views import (
    EndedAt,
    JobFlow,
    flow_of,
    has_archive,
    range_of,
    read_sample,
)
from bucketq.dashboard.job_views import PAGE_JOBS, row_of
from bucketq.errors import InvalidRequestError, JobNotFoundError
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.job_ids import made_at
from bucketq.model.records import JobRecord, Outcome
from bucketq.store.url import Location, open_store

T = TypeVar("T")

_HOUR = timedelta(hours=1)
_SLICE_S = 1.0
"""After how long a request begins no other hour, so that it answers soon."""
_THREADS = 2
"""How many requests read at once: more would take the processor from the page."""
_LONGEST = timedelta(days=366)
"""The longest range of one search: each hour costs a listing."""
_LOOKED_FOR = timedelta(days=31)
"""How long after its push a job is looked for if it is not known when it finished."""
_SKEW = timedelta(hours=1)
"""How far the clocks of producers and of writers of the archive may differ."""
_NOT_READ = "only jobs that are still in the queue: this page knows its broker, not its storage"
_OUTCOMES = get_args(Outcome)

Place = tuple[datetime, int, str]
"""Where a job stands in the order of the list: the latest end first."""


class ArchiveFilter(Struct, frozen=True, kw_only=True):
    """Which finished jobs are meant: all that match each of these."""

    since: datetime
    until: datetime
    """The first moment that is not meant."""
    kind: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    before: Place | None = None
    """Only those behind this place; None: all."""

    @classmethod
    def parse(cls, read: Callable[[str], list[str]], now: datetime) -> ArchiveFilter:
        """Read a filter from the query of an address; without times it is the last day."""

        def moment(name: str, usual: datetime) -> datetime:
            text = "".join(read(name)[:1])
            return parse_moment(text) if text else usual

        until = moment("until", now + _SKEW)
        wanted = cls(
            since=moment("since", now - timedelta(days=1)),
            until=until,
            kind=tuple(filter(None, read("kind"))),
            outcome=tuple(filter(None, read("outcome"))),
            before=_place_in("".join(read("before")[:1])),
        )
        if not wanted.since < until:
            message = "the first time is not before the last one"
            raise InvalidRequestError(message)
        if until - wanted.since > _LONGEST:
            raise InvalidRequestError(f"search at most {_LONGEST.days} days at once")
        if unknown := [each for each in wanted.outcome if each not in _OUTCOMES]:
            raise InvalidRequestError(f"unknown outcome {unknown[0]!r}: {', '.join(_OUTCOMES)}")
        return wanted

    def matches(self, job: JobRecord) -> bool:
        """Whether a job of the time range and the kinds is meant."""
        if self.outcome and job.outcome not in self.outcome:
            return False
        return self.before is None or _place(job) < self.before


class ArchiveViews:
    """Reads the archives of queues for the page."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: dict[str, ArchiveSample] = {}
        self._sampling: dict[str, asyncio.Lock] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="archive")

    def close(self) -> None:
        """Begin no more reads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def page(self, url: str, read: Callable[[str], list[str]]) -> dict[str, object]:
        """Return a page of finished jobs, or what was found of one in a second.

        ``next_before`` of the answer continues; None: that is all. ``read_from`` says how far back
        was read. ``read`` returns the values of a field of the query.
        """
        wanted = ArchiveFilter.parse(read, self._clock.now())
        return await self._in_thread(lambda: _read_page(url, wanted))

    async def flow(
        self,
        url: str,
        span_s: int,
        ended: Sequence[FinishedJob],
        counts_ended: EndedAt,
        note: str,
    ) -> JobFlow:
        """Return how jobs flowed through a queue lately.

        Args:
            url: The queue.
            span_s: The last so many seconds.
            ended: The jobs in the queue that have ended.
            counts_ended: The number of jobs that had ended at a time, if it is known.
            note: What is missing in ``ended``.
        """
        now = self._clock.now()
        if not has_archive(url):
            return flow_of(ended, now, span_s, counts_ended, note=note or _NOT_READ)
        sample = self._samples.setdefault(url, ArchiveSample())
        lock = self._sampling.setdefault(url, asyncio.Lock())

        async def read() -> JobFlow:
            found = await read_sample(url, sample, range_of(now, span_s), now)
            jobs, files = [*ended, *found.jobs], found.files
            read_files = found.read_files
            return flow_of(
                jobs, now, span_s, counts_ended, files=files, read_files=read_files, note=note
            )

        async with lock:  # One thread at a time changes what is remembered.
            return await self._in_thread(read)

    async def find(self, url: str, job_id: str, at: str) -> JobRecord:
        """Return one job that finished in the hour of ``at``; empty: it is looked for.

        Raises:
            JobNotFoundError: It is not there, or finished too long after its push to be found.
        """
        now = self._clock.now()
        if at:
            since = hour_of(parse_moment(at))
            until = since + _HOUR
        else:
            made = made_at(job_id)
            known = None if made is None else datetime.fromtimestamp(made / 1000, UTC)
            since = now - timedelta(days=1) if known is None else known - _SKEW
            until = min(now + _SKEW, since + _LOOKED_FOR)
        found = await self._in_thread(lambda: _find(url, job_id, since, until))
        if found is None:
            raise JobNotFoundError(
                f"job {job_id!r} was not found in the archive: it was never pushed, is not over, "
                "was deleted, or finished at another time"
            )
        return found

    async def _in_thread(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: asyncio.run(read()))


async def _read_page(url: str, wanted: ArchiveFilter) -> dict[str, object]:
    end = wanted.until
    if wanted.before is not None:
        at, seq, _ = wanted.before
        end = min(end, at + (timedelta.resolution if seq >= 0 else timedelta()))
    hours = list(hours_between(wanted.since, end))
    rows = list[JobRecord]()
    location = _located(url)
    began = asyncio.get_running_loop().time()
    next_before: Place | None = None
    read_from = wanted.until
    try:
        reader = ArchiveReader(location.store, Layout.of(location.store.url, location.key))
        while hours:
            hour = hours.pop()
            first = max(wanted.since, hour)
            found = await _latest(reader, wanted, first, min(wanted.until, hour + _HOUR))
            read_from = first
            left = PAGE_JOBS - len(rows)
            rows += found[:left]
            if len(found) > left:
                next_before = _place(rows[-1])
                break
            is_late = asyncio.get_running_loop().time() - began > _SLICE_S
            if hours and (is_late or len(rows) == PAGE_JOBS):
                next_before = (hour, -1, "")  # Behind all jobs of this hour.
                break
    finally:
        await location.store.close()
    return {
        "jobs": list(map(row_of, rows)),
        "next_before": None if next_before is None else _text_of(next_before),
        "read_from": read_from,
    }


async def _latest(
    reader: ArchiveReader, wanted: ArchiveFilter, since: datetime, until: datetime
) -> list[JobRecord]:
    """Return the jobs of a page and one more, so that memory is bounded whatever an hour has."""
    found = list[JobRecord]()
    async for some in reader.batches(since, until, wanted.kind or None):
        matching = filter(wanted.matches, some)
        found = nlargest(PAGE_JOBS + 1, [*found, *matching], key=_place)
    return found


async def _find(url: str, job_id: str, since: datetime, until: datetime) -> JobRecord | None:
    location = _located(url)
    try:
        reader = ArchiveReader(location.store, Layout.of(location.store.url, location.key))
        return await reader.find(job_id, since, until, newest=True)
    finally:
        await location.store.close()


def _located(url: str) -> Location:
    if url.startswith(BROKERS):
        raise InvalidRequestError(
            "the archive is read from the storage, and this page knows only the broker of the "
            "queue: start it with the address of the queue's object"
        )
    return open_store(url)


def _place(job: JobRecord) -> Place:
    return (finished_at(job), job.seq, job.id)


def _text_of(place: Place) -> str:
    at, seq, job_id = place
    return f"{at.isoformat()}/{seq}/{job_id}"


def _place_in(text: str) -> Place | None:
    if not text:
        return None
    at, _, rest = text.partition("/")
    seq, _, job_id = rest.partition("/")
    try:
        return (parse_moment(at), int(seq), job_id)
    except ValueError:
        raise InvalidRequestError(f"{text!r} is not a place in the archive") from None


def parse_moment(text: str) -> datetime:
    """Read a time of an address; one without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a time; write it like 2026-02-15T10:00:00Z"
        raise InvalidRequestError(message) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
