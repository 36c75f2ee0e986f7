"""The format of a segment: rows as lines, their numbers, the hashes of their ids, and an index.

::

    {"id":"01J…","kind":"email","status":"queued",…}     a row, as in the queue object
    …
    "AAAA…"                                               seqs: base64 of the number of each row
    "mFtz…"                                               ids: base64 of sorted hashes and positions
    {"class":"ready","kinds":[…],"runs":[…],"blocks":[…],…}    index

The entry in the queue object has the length and the checksum of the index, and the index has those
of everything else. So a reader fetches the index with one ranged GET, then only the blocks that it
needs, and checks all that it reads.

The index names the blocks with jobs that expire, and when; the entry in the queue object says when
the next one of the segment does.

A job with a unique name has a second hash, of its kind and that name. So a segment has such jobs if
it has more hashes than rows. A segment that was written by a bulk write, and is one run of jobs
whose ids follow each other, has neither: its entry has the first id, and its lines leave out what
follows from their positions, the id and the number::

    {"kind":"email","payload":{…}}

The bytes of a segment depend on its rows alone, so that two processes that write the same rows
write the same bytes. The rows of a large push are written before it is committed. So their lines
(``pushed_rows.py``) leave out what the commit decides: numbers are places in the push, to which the
entry in the queue object has the base, and the time of the push is in the entry too.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b, sha256
from itertools import accumulate, groupby, islice
from operator import attrgetter, lt
from typing import Any, cast
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from bucketq.codec.segment_index import (
    IndexFields,
    decode_arrays,
    encode_arrays,
    index_of,
    measure_blocks,
    refuse_segment,
)
from bucketq.codec.unknown_fields import encode_row
from bucketq.model.id_hashes import hash_ids, unique_name
from bucketq.model.records import JobRecord, KeyRecord, Unknown
from bucketq.model.segments import (
    SegmentClass,
    SegmentIds,
    SegmentIndex,
    SegmentRecord,
)

SEGMENT_BYTES = 8 << 20
"""A segment holds at most this many bytes of rows, or one row: a PUT of it takes about a second on
the slowest stores, and a queue of 10 million small jobs has about 300."""
_DIGEST_LENGTH = 16
"""64 bits: segments of one version or reservation are few. Those of a bulk write are named by the
digest of their index, which has the checksums of all else: a digest of all bytes would take a tenth
of the time that a row takes."""
_ID = r"(?:r[0-9]{20}-[0-9a-f]{16}|[0-9]{20})-[0-9a-f]{16}"
"""A digest of the bytes, after the last version that may introduce it or a reservation."""
_STEP_ROWS = 512
"""How many rows are encoded in one step: about a millisecond."""
_UNREADABLE = (ValueError, msgspec.MsgspecError, RecursionError)

_fields, _line = attrgetter("fields"), attrgetter("line")
_id, _seq, _unique = attrgetter("id"), attrgetter("seq"), attrgetter("unique")
_kind, _group, _expires_at = attrgetter("kind"), attrgetter("group"), attrgetter("expires_at")
_run = attrgetter("kind", "priority", "group")
_ready_order = attrgetter("kind", "priority", "group", "seq")


class SortFields(Struct, frozen=True, gc=False):
    """The fields of a row that decide its place in a segment, and by what it is found there."""

    id: str
    seq: int
    kind: str = ""
    priority: int = 0
    run_at: datetime | None = None
    finished_at: datetime | None = None
    pushed_at: datetime | None = None
    at: datetime | None = None
    unique: str | None = None
    expires_at: datetime | None = None
    attempt: int = 0
    group: str = ""


_Fields = SortFields | JobRecord


class SegmentRow(Struct, frozen=True, gc=False):
    """A row that goes into a segment."""

    fields: _Fields
    line: bytes
    """Its JSON on one line, without a line feed; unknown fields are kept."""


class EncodedSegment(Struct, frozen=True):
    """The bytes of a segment that has no name yet."""

    cls: SegmentClass
    body: bytes
    index: SegmentIndex
    index_length: int
    crc: int
    seqs: array[int]
    """The number of the row at each position."""
    ids: SegmentIds
    bounds: tuple[int, int]
    """The lowest and the highest of them."""
    first_id: str = ""
    """The id of its first row, if its lines have none because all ids follow from this one."""

    def record(self, until: int | str, at: datetime) -> SegmentRecord:
        """Return the entry of a segment that is introduced up to a version, or by an adoption."""
        if isinstance(until, str):
            index = self.body[-self.index_length :]
            # Two segments of a write may have the same lines, but not the same ids.
            digest = sha256(self.first_id.encode() + index).hexdigest()
            name = f"{until}-{digest[:_DIGEST_LENGTH]}"
        else:
            digest = blake2b(self.body, digest_size=_DIGEST_LENGTH // 2).hexdigest()
            name = f"{until:020d}-{digest}"
        return SegmentRecord(
            id=name,
            cls=self.cls,
            seq=self.bounds[0],
            last=self.bounds[1],
            rows=len(self.seqs),
            live=len(self.seqs),
            bytes=len(self.body),
            index=self.index_length,
            crc32=f"{self.crc:08x}",
            at=at,
            expires_at=min((each.first for each in self.index.expiries), default=None),
            first_id=self.first_id,
        )


_decode_fields = msgspec.json.Decoder(SortFields).decode
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines


def segment_row(line: bytes) -> SegmentRow:
    """Return the row of a line."""
    return SegmentRow(_decode_fields(line), line)


def row_of(record: JobRecord | KeyRecord, unknown: Mapping[str, Raw] | None = None) -> SegmentRow:
    """Return the row of a job or a key, with the fields that this code does not know."""
    line = encode_row(record, unknown)
    if isinstance(record, KeyRecord):
        return SegmentRow(SortFields(id=record.id, seq=record.seq, at=record.at), line)
    return SegmentRow(record, line)


def rows_of(jobs: Sequence[JobRecord], unknown: Mapping[str, Unknown]) -> list[SegmentRow]:
    """Return the rows of jobs; ``unknown`` has by id what this code does not know of some.

    Encoding them together takes a third of the time, if each of them is on one line.
    """
    lines = [] if unknown else _encode_lines(jobs).split(b"\n")[:-1]
    if len(lines) != len(jobs):
        return [row_of(job, unknown.get(job.id)) for job in jobs]
    return list(map(SegmentRow, jobs, lines))


def is_segment_id(name: str) -> bool:
    """Whether a name has the form of a segment's id."""
    return re.fullmatch(_ID, name) is not None


def split_rows(rows: Sequence[SegmentRow]) -> Iterable[Sequence[SegmentRow]]:
    """Cut rows, in their order, into what goes in one segment each."""
    start, size_bytes = 0, 0
    for place, row in enumerate(rows):
        length = len(row.line) + 1
        if place > start and size_bytes + length > SEGMENT_BYTES:
            yield rows[start:place]
            start, size_bytes = place, 0
        size_bytes += length
    if start < len(rows):
        yield rows[start:]


def sort_rows(cls: SegmentClass, rows: Iterable[SegmentRow]) -> list[SegmentRow]:
    """Sort rows into the order of a class of segments."""
    if cls != "ready":
        return sorted(rows, key=lambda row: order_of(cls, row.fields))
    found = list(rows)
    orders = [*map(_ready_order, map(_fields, found))]
    if all(map(lt, orders, islice(orders, 1, None))):  # As the rows of one kind mostly are.
        return found
    return [found[place] for place in sorted(range(len(found)), key=orders.__getitem__)]


def encode_segment(
    cls: SegmentClass, rows: Sequence[SegmentRow], first_id: str = ""
) -> EncodedSegment:
    """Encode rows that are sorted, at least one.

    ``first_id`` says that they are one run of jobs whose ids follow each other from this one on,
    numbered from 0 on, and that their lines have neither.
    """
    steps = encode_in_steps(cls, rows, first_id)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("EncodedSegment", end.value)


def encode_in_steps(
    cls: SegmentClass, rows: Sequence[SegmentRow], first_id: str = ""
) -> Generator[None, None, EncodedSegment]:
    """Encode rows as ``encode_segment`` does; others may have a turn after each step."""
    given, ids = [*map(_fields, rows)], SegmentIds(array("Q"), array("I"))
    if not first_id:
        ids = yield from _hash_in_steps(given)
    kinds = list(dict.fromkeys(map(_kind, given))) if cls != "keys" else []
    numbers = {kind: place for place, kind in enumerate(kinds)}
    lines = b"\n".join([*map(_line, rows), b""])
    ends = list(accumulate([len(row.line) + 1 for row in rows]))
    yield
    fields = IndexFields(cls=cls, kinds=kinds, blocks=measure_blocks([lines], ends))
    if cls == "ready":
        # In their order rows are of one run if the first and the last are.
        is_one = _run(given[0]) == _run(given[-1])
        runs = [given] if is_one else [list(run) for _, run in groupby(given, _run)]
        fields.runs = [
            (numbers[run[0].kind], run[0].priority, len(run), run[0].seq) for run in runs
        ]
        if any(run[0].group for run in runs):
            fields.groups = [run[0].group for run in runs]
    else:
        fields.times = (_time(cls, given[0]), _time(cls, given[-1]))
        if cls != "keys":
            places = map(numbers.__getitem__, map(_kind, given))
            fields.kind_runs = [(place, len(list(run))) for place, run in groupby(places)]
            fields.groups = sorted(set(filter(None, map(_group, given))))
    if cls in ("ready", "later"):
        fields.expiries = _expiries(given, fields.blocks)
    yield
    seqs = array("Q", map(_seq, given))
    return join_segment([lines], seqs, ids, fields, (min(seqs), max(seqs)), first_id)


def join_segment(
    lines: Sequence[bytes | memoryview],
    seqs: array[int],
    ids: SegmentIds,
    fields: IndexFields,
    bounds: tuple[int, int],
    first_id: str = "",
) -> EncodedSegment:
    """Make a segment of the lines of its rows and of what was found out about them.

    The lines may be in several pieces. ``fields`` lack only what follows from the numbers and the
    ids; ``bounds`` are the lowest and the highest number. With a ``first_id`` there are no ``ids``,
    and the numbers are not written.
    """
    seqs_text = encode_arrays(array("Q") if first_id else seqs)
    ids_text = encode_arrays(ids.hashes, ids.positions)
    fields.seqs = (len(seqs_text), f"{crc32(seqs_text):08x}")
    fields.ids = (len(ids_text), f"{crc32(ids_text):08x}")
    text = _encode(fields) + b"\n"
    body = b"".join([*lines, seqs_text, ids_text, text])
    return EncodedSegment(
        cls=fields.cls,
        body=body,
        index=index_of(fields, len(body) - len(text)),
        index_length=len(text),
        crc=crc32(text),
        seqs=seqs,
        ids=ids,
        bounds=bounds,
        first_id=first_id,
    )


def decode_index(record: SegmentRecord, text: bytes, where: str) -> SegmentIndex:
    """Decode the index of a segment; ``where`` is what an error calls the segment.

    Raises:
        CorruptStateError: It is not the index that the queue object names.
    """
    if len(text) != record.index or f"{crc32(text):08x}" != record.crc32:
        refuse_segment(where, "its index is not the one that the queue names")
    try:
        fields = msgspec.json.decode(text, type=IndexFields)
        index = index_of(fields, record.bytes - len(text))
    except (*_UNREADABLE, IndexError) as error:
        refuse_segment(where, f"its index cannot be decoded ({error})")
    if fields.cls != record.cls or index.blocks[-1].stop != record.rows:
        refuse_segment(where, "its index does not fit the entry in the queue")
    return index


def decode_seqs(index: SegmentIndex, text: bytes, where: str, base: int = 0) -> array[int]:
    """Decode the number of each row, which are in the bytes that the index names.

    An empty line says that they follow each other.

    Raises:
        CorruptStateError: They are not what the index says.
    """
    (seqs,) = decode_arrays(index.seqs, text, "Q", where)
    if not seqs:
        return array("Q", range(base, base + index.blocks[-1].stop))
    return array("Q", (base + seq for seq in seqs)) if base else seqs


def decode_ids(index: SegmentIndex, text: bytes, where: str) -> SegmentIds:
    """Decode the hashes of a segment's ids, which are in the bytes that its index names.

    Raises:
        CorruptStateError: They are not what the index says.
    """
    return SegmentIds(*decode_arrays(index.ids, text, "QI", where))


def order_of(cls: SegmentClass, fields: _Fields) -> tuple[Any, ...]:
    """Return what the rows of a class are sorted by."""
    if cls == "ready":
        return (fields.kind, fields.priority, fields.group, fields.seq)
    return (_time(cls, fields), fields.seq)


def _time(cls: SegmentClass, fields: _Fields) -> datetime:
    if cls == "later":
        found = fields.run_at
    elif cls == "dead":
        found = fields.finished_at or fields.pushed_at
    else:
        found = None if isinstance(fields, JobRecord) else fields.at
    if found is None:
        message = f"row {fields.id} has no time, and cannot be in a segment of class {cls!r}"
        raise ValueError(message)
    return found


def _expiries(
    rows: Sequence[_Fields], blocks: Sequence[tuple[int, int, str]]
) -> list[tuple[int, datetime, datetime]]:
    """Return the blocks with jobs that expire: place, first and last time."""
    if not any(map(_expires_at, rows)):
        return []
    found, start = [], 0
    for place, (count, *_) in enumerate(blocks):
        some = rows[start : start + count]
        times = [each.expires_at for each in some if not each.attempt]
        if given := [at for at in times if at is not None]:
            found.append((place, min(given), max(given)))
        start += count
    return found


def _hash_in_steps(rows: Sequence[_Fields]) -> Generator[None, None, SegmentIds]:
    """Hash the ids, and the unique names of rows that have one; sort them, with positions."""
    hashes, positions = array("Q"), array("I", range(len(rows)))
    for start in range(0, len(rows), _STEP_ROWS):
        hashes.extend(hash_ids(map(_id, rows[start : start + _STEP_ROWS])))
        yield
    named = [at for at, unique in enumerate(map(_unique, rows)) if unique is not None]
    if named:
        some = (rows[at] for at in named)
        hashes.extend(hash_ids([unique_name(each.kind, each.unique or "") for each in some]))
        positions.extend(named)
        yield
    ids = sort_hashes(hashes, positions)
    yield
    return ids


def sort_hashes(hashes: array[int], positions: array[int]) -> SegmentIds:
    """Sort hashes, each with its position."""
    order = sorted(range(len(hashes)), key=hashes.tolist().__getitem__)
    return SegmentIds(
        array("Q", map(hashes.__getitem__, order)), array("I", map(positions.__getitem__, order))
    )
