"""What was read of segments: parts are read once, checked, and decoded on demand."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw
from msgspec.structs import replace

from bucketq.codec import segment_index, segment_lines
from bucketq.codec.pushed_rows import pushed_row
from bucketq.codec.segment_file import EncodedSegment, encode_segment, row_of, sort_rows
from bucketq.commit.objects import segment_parts
from bucketq.commit.objects.segment_parts import SegmentParts
from bucketq.errors import CorruptStateError
from bucketq.model.base import NewJob
from bucketq.model.id_hashes import hash_id
from bucketq.model.indexes.cold_rows import SegmentPart
from bucketq.model.indexes.segment_reads import DecodedJobs
from bucketq.model.records import JobRecord, KeyRecord
from bucketq.model.segments import (
    Pushed,
    SegmentRecord,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEWS = {"news": Raw(b"[1.50]")}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three rows fill a block."""
    monkeypatch.setattr(segment_index, "BLOCK_BYTES", 400)


def job_of(n: int) -> JobRecord:
    payload = Raw(b"%d" % n)
    return JobRecord(id=f"j{n}", kind="a", status="queued", seq=n, payload=payload, pushed_at=NOW)


def jobs() -> EncodedSegment:
    """Nine jobs; newer code has added a field to the fifth."""
    rows = [job_of(n) for n in range(9)]
    lines = [row_of(row, NEWS if row.seq == 4 else None) for row in rows]
    return encode_segment("ready", sort_rows("ready", lines))


def keys() -> EncodedSegment:
    rows = [
        KeyRecord(id=f"k{n}", seq=n, job=f"j{n}", digest="d" * 32, at=NOW + timedelta(seconds=n))
        for n in range(9)
    ]
    return encode_segment("keys", sort_rows("keys", [row_of(row) for row in rows]))


class Storage:
    """One segment, and what was read of it."""

    def __init__(self, encoded: EncodedSegment) -> None:
        """Hold the bytes of a segment."""
        self.body = encoded.body
        self.record: SegmentRecord = encoded.record(until=5, at=NOW)
        self.reads = 0
        self.parts = SegmentParts(self.read, "test://queue/segments/")

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        assert segment == self.record.id
        self.reads += 1
        return self.body[offset : offset + length]

    async def read_all(self) -> None:
        """Fetch every part."""
        await self.parts.fetch([SegmentPart(self.record, "index")])
        index = self.parts.index(self.record)
        assert index is not None
        await self.parts.fetch([SegmentPart(self.record, "seqs"), SegmentPart(self.record, "ids")])
        await self.parts.fetch([SegmentPart(self.record, block) for block in index.blocks])


async def test_jobs_come_with_their_unknown_fields_by_position() -> None:
    storage = Storage(jobs())
    await storage.read_all()
    index = storage.parts.index(storage.record)
    assert index is not None
    assert len(index.blocks) > 2
    found, unknown = list[str](), dict[int, object]()
    for block in index.blocks:
        decoded = storage.parts.jobs(storage.record, block, block.start, block.stop)
        assert decoded is not None
        found += [job.id for job in decoded[0]]
        unknown |= decoded[1]
    assert found == [f"j{number}" for number in range(9)]
    assert unknown == {4: NEWS}


async def test_a_block_that_two_requests_need_is_read_once() -> None:
    storage = Storage(jobs())
    await storage.parts.fetch([SegmentPart(storage.record, "index")])
    index = storage.parts.index(storage.record)
    assert index is not None
    block = SegmentPart(storage.record, index.blocks[0])
    before = storage.reads
    await storage.parts.fetch([block, SegmentPart(storage.record, index.blocks[2]), block])
    await asyncio.sleep(0)
    assert storage.reads == before + 2


async def test_only_the_rows_that_are_asked_for_are_decoded() -> None:
    storage = Storage(jobs())
    await storage.read_all()
    index = storage.parts.index(storage.record)
    assert index is not None
    block = index.blocks_of(4, 5)[0]
    decoded = storage.parts.jobs(storage.record, block, 4, 5)
    assert decoded is not None
    assert ([job.id for job in decoded[0]], decoded[1]) == (["j4"], {4: NEWS})
    assert storage.parts.jobs(storage.record, block, 4, 4) == ([], {})


async def test_keys_are_decoded() -> None:
    storage = Storage(keys())
    await storage.read_all()
    index = storage.parts.index(storage.record)
    ids = storage.parts.ids(storage.record)
    assert index is not None
    assert ids is not None
    (position,) = ids.find(hash_id("k7"))
    block = index.blocks_of(position, position + 1)[0]
    found = storage.parts.keys(storage.record, block, position, position + 1)
    assert [key.id for key in found or ()] == ["k7"]


async def test_nothing_is_there_before_it_was_read_and_nothing_is_read_twice() -> None:
    storage = Storage(jobs())
    parts, record = storage.parts, storage.record
    assert (parts.index(record), parts.ids(record), parts.seqs(record)) == (None, None, None)
    await storage.read_all()
    assert None not in (parts.index(record), parts.ids(record), parts.seqs(record))
    reads = storage.reads
    await storage.read_all()
    assert storage.reads == reads
    parts.keep([])
    assert (parts.index(record), parts.ids(record), parts.seqs(record)) == (None, None, None)


async def test_a_damaged_part_is_refused_with_its_segment() -> None:
    storage = Storage(jobs())
    storage.body = storage.body.replace(b'"id":"j4"', b'"id":"jX"')
    with pytest.raises(CorruptStateError, match=f"test://queue/segments/{storage.record.id}"):
        await storage.read_all()


async def test_many_held_blocks_are_decoded_ahead_and_kept_until_they_are_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_parts, "_MANY_BLOCKS", 2)
    monkeypatch.setattr(segment_parts, "_DECODED_BLOCKS", 1)
    storage = Storage(jobs())
    record, parts = storage.record, storage.parts
    await parts.fetch([SegmentPart(record, "index")])
    index = parts.index(record)
    assert index is not None
    assert len(index.blocks) == 3
    needed = [SegmentPart(record, block) for block in index.blocks]
    decoded = list[int]()

    def decode(lines: list[bytes], start: int, where: str, pushed: Pushed | None) -> DecodedJobs:
        decoded.append(start)
        return segment_lines.decode_jobs(lines, start, where, pushed)

    monkeypatch.setattr(segment_parts, "decode_jobs", decode)

    def read() -> list[str]:
        found = [parts.jobs(record, block, block.start, block.stop) for block in index.blocks]
        assert found[1] is not None
        assert found[1][1] == {4: NEWS}
        return [job.id for each in found if each is not None for job in each[0]]

    await parts.fetch(needed)
    await parts.decode_ahead(needed)
    assert decoded == [], "nothing holds them"
    parts.hold(needed)
    await parts.decode_ahead(needed[:2])
    assert decoded == [], "two are not many"
    await parts.decode_ahead(needed)
    starts = [block.start for block in index.blocks]
    assert decoded == starts
    assert read() == [f"j{n}" for n in range(9)]
    assert parts.jobs(record, index.blocks[1], 4, 5) == ([job_of(4)], {4: NEWS})
    assert decoded == starts, "they were decoded before"
    parts.release(needed)
    assert read() == [f"j{n}" for n in range(9)]
    assert decoded == starts + starts


@pytest.mark.parametrize("many_blocks", [0, 99])
async def test_rows_of_a_push_are_decoded_again_for_an_entry_with_another_base(
    monkeypatch: pytest.MonkeyPatch, many_blocks: int
) -> None:
    """Its commit was lost, and the same segment is named by the next one."""
    monkeypatch.setattr(segment_parts, "_MANY_BLOCKS", many_blocks)
    new = [NewJob(id=f"j{n}", kind="a", payload=Raw(b"%d" % n)) for n in range(9)]
    storage = Storage(encode_segment("ready", [pushed_row(job, n) for n, job in enumerate(new)]))
    parts = storage.parts
    for base, at in ((5, NOW), (7, NOW + timedelta(seconds=1)), (7, NOW)):
        record = replace(storage.record, base=base, pushed_at=at)
        await parts.fetch([SegmentPart(record, "index"), SegmentPart(record, "seqs")])
        index = parts.index(record)
        assert index is not None
        needed = [SegmentPart(record, block) for block in index.blocks]
        parts.hold(needed)
        await parts.fetch(needed)
        await parts.decode_ahead(needed)
        found = [parts.jobs(record, block, block.start, block.stop) for block in index.blocks]
        jobs = [job for each in found if each is not None for job in each[0]]
        assert [job.seq for job in jobs] == [*range(base, base + 9)]
        assert {job.pushed_at for job in jobs} == {at}
        assert [*(parts.seqs(record) or ())] == [*range(base, base + 9)]


async def test_a_part_that_is_asked_for_twice_is_read_once_and_can_be_read_again() -> None:
    """Two priorities meet in a block, so that claims ask for it on behalf of both."""
    storage = Storage(jobs())
    await storage.parts.fetch([SegmentPart(storage.record, "index")])
    index = storage.parts.index(storage.record)
    assert index is not None
    parts = [SegmentPart(storage.record, block) for block in index.blocks]
    reads = storage.reads
    await storage.parts.fetch([*parts, parts[0], *parts])
    assert storage.reads == reads + 1
    assert all(storage.parts.has_block(storage.record, block) for block in index.blocks)
    assert storage.parts._under_way == {}


@pytest.mark.parametrize("held", [(), (0,), (0, 1, 2)])
async def test_what_was_not_used_for_longest_leaves_and_no_more_than_has_to(
    monkeypatch: pytest.MonkeyPatch, held: tuple[int, ...]
) -> None:
    storage = Storage(jobs())
    record, parts = storage.record, storage.parts
    await storage.read_all()
    index = parts.index(record)
    assert index is not None
    needed = [SegmentPart(record, block) for block in index.blocks]

    def there() -> list[int]:
        return [place for place in range(3) if parts.has_block(record, index.blocks[place])]

    for block in index.blocks:
        assert parts.jobs(record, block, block.start, block.stop) is not None
    all_bytes = sum(block.length for block in index.blocks)
    monkeypatch.setattr(segment_parts, "ROW_BYTES", all_bytes)
    parts.release([])
    assert there() == [0, 1, 2]
    monkeypatch.setattr(segment_parts, "ROW_BYTES", all_bytes - 1)
    parts.hold([needed[place] for place in held])
    parts.release([])
    left = [place for place in range(3) if place not in held][:1]
    assert there() == [place for place in range(3) if place not in left]
    parts.release([needed[place] for place in held])
    assert len(there()) == 2
    monkeypatch.setattr(segment_parts, "ROW_BYTES", 0)
    parts.release([])
    assert there() == []
    assert not parts._decoded
    await storage.read_all()  # The storage has them still.
