"""Checking every segment of a queue: what is damaged, missing, twice there, or left over."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bucketq.admin import QueueObject
from bucketq.admin.deep_check import BadSegment, check_deep
from bucketq.codec.deletion_vector import decode_vector
from bucketq.codec.document import Document
from bucketq.codec.segment_check import CheckedSegment, check_segment
from bucketq.codec.segment_file import encode_segment, segment_row
from bucketq.model.indexes.cold_segment import Segment
from bucketq.model.segments import SegmentClass, SegmentRecord
from bucketq.model.state import State
from bucketq.store.base import StoredObject
from bucketq.testing import run
from tests.compat.states import segments, vectors
from tests.unit.admin.deep_queues import KEY, Deep, deep

CLASSES: list[SegmentClass] = [*segments()]


def golden(cls: SegmentClass) -> tuple[SegmentRecord, bytes]:
    return segments()[cls]


def check(record: SegmentRecord, body: bytes) -> CheckedSegment:
    segment = Segment(record)
    if record.vector:
        vector = decode_vector(record.vector, vectors()[record.vector], "its vector")
        segment.take_vector(vector[record.id])
    return check_segment(segment, body, "it")


@pytest.mark.parametrize("cls", CLASSES)
def test_a_sound_segment_has_no_problems(cls: SegmentClass) -> None:
    record, body = golden(cls)
    found = check(record, body)
    assert found.problems == ()
    assert found.lost == 0
    assert len(found.rows) == record.live


@pytest.mark.parametrize("cls", CLASSES)
def test_every_changed_byte_is_found(cls: SegmentClass) -> None:
    record, body = golden(cls)
    for place in range(0, len(body), 17):
        changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        found = check(record, changed)
        assert found.problems, place
        assert found.lost + len(found.rows) == record.live
    for length in range(0, len(body), 97):
        assert check(record, body[:length]).problems
    assert check(record, body + b"x").problems == (
        f"it has {len(body) + 1:,} bytes instead of {len(body):,}",
    )


def made(cls: SegmentClass, lines: list[bytes]) -> CheckedSegment:
    """Check a segment of these rows whose checksums are right."""
    rows = [segment_row(line) for line in lines]
    encoded = encode_segment(cls, rows)
    record = encoded.record(1, golden(cls)[0].at)
    return check(record, encoded.body)


def rows_of(cls: SegmentClass) -> list[bytes]:
    record, body = golden(cls)
    return [
        row.line for row in check(replace(record, gone=(), vector="", live=record.rows), body).rows
    ]


@pytest.mark.parametrize("cls", CLASSES)
def test_rows_out_of_order_are_found(cls: SegmentClass) -> None:
    lines = rows_of(cls)
    assert not made(cls, lines).problems
    found = made(cls, [*lines[1:], lines[0]]).problems
    assert any("is out of order" in problem for problem in found)


def test_rows_of_another_class_are_found() -> None:
    assert "is not a dead job" in made("dead", rows_of("ready")).problems[0]
    assert "is not a job that waits" in made("ready", rows_of("dead")).problems[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seq": 0}, "its numbers go from"),
        ({"last": 10**9}, "its numbers go from"),
        ({"rows": 10**6}, "does not fit the entry"),
        ({"crc32": "00000000"}, "is not the one that the queue names"),
    ],
)
def test_an_entry_that_does_not_fit_is_found(change: dict[str, Any], problem: str) -> None:
    record, body = golden("ready")
    assert problem in check(replace(record, **change), body).problems[0]


async def damage(world: Deep, change: Callable[[bytes], bytes | None]) -> tuple[str, int]:
    """Change or delete one of the segments of jobs; return its id, and how many jobs it has."""
    head = await world.head()
    segment = max(head.cold.rows.of_class("ready"), key=lambda each: each.live)
    key = f"queue/segments/{head.incarnation}/{segment.record.id}.jsonl"
    link = world.store.connect("vandal")
    found = await link.get(key)
    changed = change(found.body)
    if changed is None:
        await link.delete(key)
    else:
        await link.replace(key, changed, found.etag)
    return segment.record.id, segment.live


@deep
async def test_a_sound_queue_is_intact(world: Deep) -> None:
    await world.fill()
    found = await check_deep(world.object())
    head = await world.head()
    assert found.is_intact
    assert found.segments == len(head.cold.rows)
    assert found.rows == head.cold.rows.count("ready", "later", "dead", "keys")
    assert found.dropped == 0


@deep
async def test_a_missing_segment_is_named_with_its_jobs(world: Deep) -> None:
    await world.fill()
    name, live = await damage(world, lambda _: None)
    found = await check_deep(world.object())
    (bad,) = found.bad
    assert not found.is_intact
    assert bad == BadSegment(
        id=name,
        key=f"queue/segments/{found.incarnation}/{name}.jsonl",
        cls="ready",
        problems=("there is no such object",),
        live=live,
        lost=live,
    )


@deep
async def test_a_damaged_segment_is_named_with_the_rows_that_are_lost(world: Deep) -> None:
    await world.fill()
    name, live = await damage(world, lambda body: body.replace(b'"payload":', b'"payloud":', 1))
    (bad,) = (await check_deep(world.object())).bad
    assert (bad.id, bad.live) == (name, live)
    assert "do not fit its index" in bad.problems[0]
    assert 0 < bad.lost <= live


@deep
async def test_a_row_in_two_places_is_found(world: Deep) -> None:
    await world.fill()
    head = await world.head()
    segment = next(head.cold.rows.of_class("ready"))
    body = await body_of(world, head, segment)
    line = check_segment(segment, body, "it").rows[0].line
    job = msgspec.json.decode(line, type=type(next(iter(head.jobs))))
    head.jobs.insert([job])
    object_ = await world.reader.get(KEY)
    prepared = Document(head).prepare("0123456789abcdef")
    await world.store.connect("vandal").replace(KEY, prepared.body, object_.etag)
    found = await check_deep(world.object())
    assert not found.is_intact
    (text,) = found.twice
    assert re.search(rf"job with seq {job.seq} is in segment {segment.record.id} \(position", text)


async def body_of(world: Deep, head: State, segment: Segment) -> bytes:
    key = f"queue/segments/{head.incarnation}/{segment.record.id}.jsonl"
    return (await world.reader.get(key)).body


@deep
async def test_segments_that_the_queue_does_not_name_are_listed(world: Deep) -> None:
    await world.fill()
    before = await check_deep(world.object())
    link = world.store.connect("vandal")
    mine = f"queue/segments/{before.incarnation}/00000000000000000009-0123456789abcdef.jsonl"
    other = "queue/segments/01OTHER/00000000000000000009-0123456789abcdef.jsonl"
    for key in (mine, other, "queue/segments/notes.txt", "queue/segments/01OTHER/notes.txt"):
        await link.create(key, b"left")
    found = await check_deep(world.object())
    assert found.is_intact
    added = [each for each in found.orphans if each not in before.orphans]
    assert [(each.key, each.size_bytes) for each in added] == [(mine, 4)]
    assert [[each.key for each in some] for some in found.other_incarnations.values()] == [[other]]


@deep
async def test_a_segment_that_is_dropped_meanwhile_is_not_a_fault(world: Deep) -> None:
    await world.fill()
    stale = await world.reader.get(KEY)
    async with world.open() as queue:
        while jobs := await queue.claim(limit=100):
            await queue.complete_many(jobs)
    for key in await world.segments():
        await world.store.connect("sweeper").delete(key)
    reads = iter([stale])

    class Stale(QueueObject):
        async def read(self) -> StoredObject:
            return next(reads, None) or await super().read()

    found = await check_deep(Stale(world.reader, KEY, "sim://queue", world.clock))
    assert found.dropped > 0
    assert {each.cls for each in found.bad} <= {"later", "keys"}, "those are still named"


def test_nothing_is_found_in_a_queue_without_segments() -> None:
    async def main(loop: Any) -> None:
        world = Deep(loop)
        async with world.open() as queue:
            await queue.push("k", 1)
        found = await check_deep(world.object())
        assert found.is_intact
        assert (found.segments, found.orphans, found.other_incarnations) == (0, [], {})

    run(main)
