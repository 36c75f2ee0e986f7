"""Checks every segment of a queue and its history, and finds segments that it does not name.

Everything is read, in the order of the table and a few segments at once, and nothing is written. A
queue in use may drop a segment meanwhile, because its rows were merged or have left; such a segment
is not checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from bucketq.admin.history_check import HistoryCheck, check_history
from bucketq.admin.payload_objects import PayloadCheck, check_payloads
from bucketq.admin.queue_object import QueueObject
from bucketq.admin.segment_reader import SegmentReader
from bucketq.codec.decode import decode
from bucketq.codec.deletion_vector import is_vector_id
from bucketq.codec.result_index import is_result_index_id
from bucketq.codec.segment_check import CheckedRow, CheckedSegment, check_segment
from bucketq.codec.segment_file import is_segment_id
from bucketq.commit.objects.queue_segments import StaleStateError
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.reservations import reservation_of
from bucketq.model.segments import JOB_CLASSES, SegmentClass
from bucketq.model.state import State
from bucketq.store.base import ObjectMissingError
from bucketq.store.queue_folder import folder_of

_AT_ONCE = 4
"""How many segments are in memory at once: 32 MiB of rows."""
_MISSING_S = 2.0
"""How long to wait before a missing segment is looked for again: an operator may be putting objects
back, and some stores show a new object late."""
_MOST_NAMED = 5
_SPAN = 4096
"""How many numbers share one bitmap."""


@dataclass(frozen=True)
class BadSegment:
    """A segment that is missing or damaged."""

    id: str
    key: str
    cls: SegmentClass
    problems: tuple[str, ...]
    live: int
    """How many jobs or keys the queue has in it."""
    lost: int
    """How many of them cannot be read."""


@dataclass(frozen=True)
class Orphan:
    """A segment that the queue does not name."""

    key: str
    size_bytes: int


@dataclass
class DeepCheck:
    """What was found in the segments of one version of a queue."""

    version: int
    incarnation: str
    segments: int = 0
    rows: int = 0
    """How many rows that have not left were read."""
    size_bytes: int = 0
    bad: list[BadSegment] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    """Rows that are in two places, as messages call them; only the first ones."""
    dropped: int = 0
    """How many segments the queue no longer named when they were read."""
    orphans: list[Orphan] = field(default_factory=list)
    other_incarnations: dict[str, list[Orphan]] = field(default_factory=dict)
    """Segments in the folders of other incarnations, by incarnation."""
    history: HistoryCheck | None = None
    """What was found in its history; None: it has none."""
    payloads: PayloadCheck | None = None
    """What was found of its large payloads and results; None: it never had any."""

    @property
    def is_intact(self) -> bool:
        """Whether every row of the queue can be read, and is in one place."""
        return not self.bad and not self.twice


class _Numbers:
    """A set of the numbers of rows. There may be millions, so they are bits."""

    def __init__(self) -> None:
        self._spans: dict[int, bytearray] = {}

    def add(self, number: int) -> bool:
        """Add a number; return whether it was there already."""
        span, place = divmod(number, _SPAN)
        bits = self._spans.setdefault(span, bytearray(_SPAN // 8))
        byte, mask = place // 8, 1 << place % 8
        if bits[byte] & mask:
            return True
        bits[byte] |= mask
        return False


async def check_deep(target: QueueObject) -> DeepCheck:
    """Read every segment and the history of a queue, and list segments that it does not name.

    Raises:
        QueueNotFoundError: There is no queue.
        CorruptStateError: The queue object itself is damaged.
        UnavailableError: The storage did not answer in time.
    """
    state = decode((await target.read()).body, target.url).state
    found = DeepCheck(state.version, state.incarnation)
    jobs, keys = _Numbers(), _Numbers()
    for job in state.jobs:
        jobs.add(job.seq)
    for key in state.keys:
        keys.add(key.seq)
    async for segment, checked in read_segments(target, state):
        if checked is None:
            found.dropped += 1
            continue
        is_jobs = segment.record.cls in JOB_CLASSES
        found.segments += 1
        found.rows += len(checked.rows)
        found.size_bytes += segment.record.bytes
        if checked.problems:
            found.bad.append(describe_bad(target, state, segment, checked))
        _count(found, segment, checked.rows, jobs if is_jobs else keys)
    found.history = await check_history(target)
    found.payloads = await check_payloads(target)
    await _list_orphans(target, state, found)
    return found


async def read_segments(
    target: QueueObject, state: State
) -> AsyncIterator[tuple[Segment, CheckedSegment | None]]:
    """Read and check the segments of a state; None: the queue no longer names it."""
    reader = SegmentReader(target, state)
    entries = iter(list(state.cold.rows.segments.values()))
    missing: list[Segment] = []
    while some := list(islice(entries, _AT_ONCE)):
        bodies = await asyncio.gather(*(_read(target, reader, each) for each in some))
        for segment, body in zip(some, bodies, strict=True):
            if body is None:
                missing.append(segment)
            else:
                yield segment, await _check(reader, segment, body)
                await asyncio.sleep(0)
    if missing:
        await asyncio.sleep(_MISSING_S)
    for segment in missing:
        async for each in _read_missing(target, reader, segment):
            yield each


async def _check(reader: SegmentReader, segment: Segment, body: bytes) -> CheckedSegment | None:
    """Check a segment; if what has left it cannot be read, its rows are doubtful.

    None: the queue no longer names it, or what has left it.
    """
    try:
        problem = await reader.know_vector(segment)
    except StaleStateError:
        return None
    checked = check_segment(segment, body, f"{reader.segments.folder.address}{segment.record.id}")
    if problem is None:
        return checked
    problems = (f"which of its rows have left is unknown: {problem}", *checked.problems)
    return CheckedSegment(problems, [], segment.live, checked.rows)


async def _read_missing(
    target: QueueObject, reader: SegmentReader, segment: Segment
) -> AsyncIterator[tuple[Segment, CheckedSegment | None]]:
    body = await _read(target, reader, segment)
    if body is not None:
        yield segment, await _check(reader, segment, body)
    elif segment.record.id in (await reader.read_named()).ids:
        yield segment, CheckedSegment(("there is no such object",), [], segment.live)
    else:
        yield segment, None


async def _read(target: QueueObject, reader: SegmentReader, segment: Segment) -> bytes | None:
    """Read a segment whole, retrying until the storage answers; None: it is missing."""
    name = segment.record.id
    read = partial(reader.segments.folder.read_whole, name)
    try:
        return await target.until_answered(read, f"segment {name} of {target.url}")
    except ObjectMissingError:
        return None


def describe_bad(
    target: QueueObject, state: State, segment: Segment, checked: CheckedSegment
) -> BadSegment:
    """Describe a segment that has problems."""
    record = segment.record
    return BadSegment(
        id=record.id,
        key=f"{_root(target)}{state.incarnation}/{record.id}.jsonl",
        cls=record.cls,
        problems=checked.problems,
        live=segment.live,
        lost=checked.lost,
    )


def _count(
    found: DeepCheck, segment: Segment, rows: Sequence[CheckedRow], numbers: _Numbers
) -> None:
    """Note the rows whose numbers were seen before."""
    for row in rows:
        if numbers.add(row.seq) and len(found.twice) < _MOST_NAMED:
            what = "key" if segment.record.cls == "keys" else "job"
            found.twice.append(
                f"the {what} with seq {row.seq} is in segment {segment.record.id} (position "
                f"{row.position}) and in another place"
            )


async def _list_orphans(target: QueueObject, state: State, found: DeepCheck) -> None:
    """List the segments and vectors that the queue does not name, and no other objects."""
    root, named = _root(target), state.cold.rows.names() | state.results.names()
    if found.history is not None:
        named |= found.history.named
    async for info in target.store.list(root):
        incarnation, _, name = info.key.removeprefix(root).rpartition("/")
        segment_id = name.removesuffix(".jsonl")
        is_segment = is_segment_id(segment_id) and name != segment_id
        is_ours = is_segment or is_vector_id(name) or is_result_index_id(name)
        if not is_ours or "/" in incarnation:
            continue
        orphan = Orphan(info.key, info.size_bytes)
        if incarnation != state.incarnation:
            found.other_incarnations.setdefault(incarnation, []).append(orphan)
        elif segment_id not in named and not _is_reserved(state, segment_id):
            found.orphans.append(orphan)


def _is_reserved(state: State, segment_id: str) -> bool:
    """Whether a segment may still be adopted."""
    reserved = reservation_of(segment_id)
    return reserved is not None and reserved[0] in state.reservations


def _root(target: QueueObject) -> str:
    return f"{folder_of(target.store.url, target.key)}segments/"
