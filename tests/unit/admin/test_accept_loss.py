"""Giving up rows of segments that cannot be read, and repairing deep queues."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from bucketq import admin
from bucketq.admin.accept_loss import accept_loss
from bucketq.codec.decode import decode
from bucketq.codec.document import Document
from bucketq.errors import InvalidRequestError
from bucketq.model.state import State
from tests.unit.admin.deep_queues import KEY, Deep, deep
from tests.unit.admin.test_deep_check import damage


@deep
async def test_nothing_is_given_up_of_a_sound_queue(world: Deep) -> None:
    await world.fill()
    before = await world.body()
    done = await accept_loss(world.object(), None)
    assert (done.segments, done.saved, done.lost) == ((), None, 0)
    (name, *_) = (await world.head()).cold.rows.segments
    with pytest.raises(InvalidRequestError, match="can be read, so nothing of it is given up"):
        await accept_loss(world.object(), [name])
    with pytest.raises(InvalidRequestError, match="names no segment 'x'"):
        await accept_loss(world.object(), ["x"])
    assert await world.body() == before
    assert not [key for key in await world.keys() if ".broken-" in key]


@deep
async def test_the_jobs_of_a_missing_segment_are_given_up_and_all_others_kept(world: Deep) -> None:
    ids = await world.fill()
    before = await world.contents()
    name, live = await damage(world, lambda _: None)
    done = await accept_loss(world.object(), [name])
    assert done.lost == live
    after = await world.contents()
    assert len(after) == len(ids) - live
    assert [job for job in before if job in after] == after
    assert name not in (await world.head()).cold.rows.segments
    assert (await admin.check_deep(world.object())).is_intact
    assert done.saved is not None
    copy = decode(await world.body(done.saved), "copy").state
    assert [job.id for job in copy.jobs] == [job[0] for job in after]


@deep
async def test_what_can_be_read_of_a_damaged_segment_stays(world: Deep) -> None:
    """The line of ids is damaged: every job can be read, but not be found."""
    await world.fill()
    before = await world.contents()
    name, _ = await damage(world, break_ids)
    (bad,) = (await admin.check_deep(world.object())).bad
    assert (bad.id, bad.lost) == (name, 0)
    done = await accept_loss(world.object(), None)
    assert done.lost == 0
    assert await world.contents() == before
    async with world.open() as queue:
        for job_id, *_ in before:
            assert (await queue.get(job_id)).id == job_id
    assert (await admin.check_deep(world.object())).is_intact


def break_ids(body: bytes) -> bytes:
    lines = body.split(b"\n")
    lines[-3] = lines[-3][:-3] + (b"A" if lines[-3][-3:-2] != b"A" else b"B") + lines[-3][-2:]
    return b"\n".join(lines)


@deep
async def test_a_segment_that_was_not_chosen_stays_named(world: Deep) -> None:
    await world.fill()
    first, _ = await damage(world, lambda _: None)
    second = next(
        each.record.id
        for each in (await world.head()).cold.rows.of_class("later", "keys", "ready")
        if each.record.id != first
    )
    incarnation = (await world.head()).incarnation
    await world.store.connect("vandal").delete(f"queue/segments/{incarnation}/{second}.jsonl")
    await accept_loss(world.object(), [second])
    named = (await world.head()).cold.rows.segments
    assert first in named
    assert second not in named


@deep
async def test_a_queue_that_changes_meanwhile_loses_nothing_more(world: Deep) -> None:
    await world.fill()
    before = await world.contents()
    _, live = await damage(world, lambda _: None)
    async with world.open() as queue:
        pushed: list[str] = []

        class Busy(admin.QueueObject):
            async def write_state(self, state: State, etag: str | None) -> None:
                if not pushed:
                    pushed.append(await queue.push("k", "meanwhile"))
                await super().write_state(state, etag)

        done = await accept_loss(Busy(world.reader, KEY, "sim://queue", world.clock), None)
        assert done.lost == live
        assert (await queue.get(pushed[0])).payload == "meanwhile"
        assert (await queue.stats()).total("queued") == len(before) - 2 - live + 1
        jobs = await queue.claim(limit=1000)
        assert pushed[0] in {job.id for job in jobs}


@deep
async def test_a_hand_edit_that_repeats_a_row_of_a_segment_is_not_accepted(world: Deep) -> None:
    await world.fill()
    head = await world.head()
    hot = next(job for job in head.jobs if job.status == "queued")
    cold = next(each for each in head.cold.rows.of_class("ready") if each.record.last < hot.seq)
    found = await world.reader.get(KEY)
    line = next(row for row in found.body.splitlines() if b'"id":"%s"' % hot.id.encode() in row)
    other = line.replace(b'"seq":%d,' % hot.seq, b'"seq":%d,' % cold.record.last)
    edited = found.body.replace(line, other)
    assert edited != found.body
    await world.store.connect("vandal").replace(KEY, edited, found.etag)
    diagnosis = await admin.repair(world.object(), accept=True)
    assert diagnosis.saved is None
    assert diagnosis.refusal is not None
    assert f"seq {cold.record.last} is also in segment" in diagnosis.refusal


@deep
async def test_a_hand_edit_is_accepted_with_its_segments(world: Deep) -> None:
    await world.fill()
    before = await world.contents()
    found = await world.reader.get(KEY)
    edited = found.body.replace(b'"paused":false', b'"paused":true')
    await world.store.connect("vandal").replace(KEY, edited, found.etag)
    diagnosis = await admin.repair(world.object(), accept=True)
    assert diagnosis.saved is not None
    assert await world.contents() == before
    assert (await world.head()).paused


@deep
async def test_rows_are_saved_apart_if_it_is_unknown_which_have_left(world: Deep) -> None:
    ids = await world.fill()
    head = await world.head()
    segment = max(head.cold.rows.of_class("ready"), key=lambda each: each.live)
    vector = "00000000000000009999-0123456789abcdef.gone"
    record = replace(segment.record, vector=vector, vector_bytes=10, gone=())
    head.cold.rows.drop(segment)
    head.cold.rows.add(record)
    found = await world.reader.get(KEY)
    prepared = Document(head).prepare("0123456789abcdef")
    await world.store.connect("vandal").replace(KEY, prepared.body, found.etag)
    (bad,) = (await admin.check_deep(world.object())).bad
    assert (bad.id, bad.lost) == (record.id, record.live)
    assert "which of its rows have left is unknown" in bad.problems[0]
    done = await accept_loss(world.object(), None)
    assert done.lost == record.live
    assert done.doubtful is not None
    lines = (await world.body(done.doubtful)).splitlines()
    assert len(lines) == record.rows
    assert {msgspec.json.decode(line)["id"] for line in lines} <= set(ids)
    assert (await admin.check_deep(world.object())).is_intact
